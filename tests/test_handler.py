"""The logging handler: what becomes of records, storms, outages, forks, exits, and of its own troubles."""

from __future__ import annotations

import base64
import logging
import logging.config
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from telegram_connector.envelope import TelegramOutbound, decode
from telegram_connector.errors import EnvelopeError, SettingsError
from telegram_connector.handler import TelegramHandler
from telegram_connector.publisher import Publisher
from tests.nats_server import NatsServer, make_user
from tests.test_publisher import PATIENCE_SECONDS, dead_port, freeze, host, unreachable


def stored(server: NatsServer, count: int = 0) -> list[TelegramOutbound]:
    """All envelopes in the stream, once there are `count` of them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with server.client() as client:
        while (there := client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]["messages"]) < count:
            assert time.monotonic() < deadline, there
            threading.Event().wait(0.02)
        messages = [
            client.api("STREAM.MSG.GET.TELEGRAM_OUTBOUND", {"seq": n + 1})["message"] for n in range(there)
        ]
    return [decode(base64.b64decode(message["data"])) for message in messages]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of the program's that loses its handlers afterwards."""
    logger = logging.getLogger("shop.orders")
    yield logger
    logger.propagate = True
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def attach(logger: logging.Logger, server: NatsServer | None = None, **options: Any) -> TelegramHandler:
    settings = server.settings(server.publisher_seed) if server else unreachable()
    handler = TelegramHandler(settings, **options)
    logger.addHandler(handler)
    return handler


@pytest.mark.integration
def test_a_record_becomes_a_plain_text_alert(nats_server: NatsServer, logger: logging.Logger) -> None:
    handler = attach(logger, nats_server, chat="@ops_room", message_thread_id=7, silent=True)
    logger.error("order %s <b>failed</b>", 17)
    logger.warning("not sent: below the level")
    handler.flush()
    [envelope] = stored(nats_server)
    assert envelope.text == "ERROR shop.orders: order 17 <b>failed</b>"
    assert (envelope.chat, envelope.message_thread_id, envelope.kind) == ("@ops_room", 7, "alert")
    assert (envelope.parse_mode, envelope.disable_notification) == (None, True)


@pytest.mark.integration
def test_the_first_goes_at_once_without_a_flush(nats_server: NatsServer, logger: logging.Logger) -> None:
    attach(logger, nats_server, pause_seconds=1000)
    logger.error("at once")
    assert [e.text for e in stored(nats_server, 1)] == ["ERROR shop.orders: at once"]


@pytest.mark.integration
def test_a_storm_is_few_messages_with_a_count(nats_server: NatsServer, logger: logging.Logger) -> None:
    handler = attach(logger, nats_server, pause_seconds=1000)
    for n in range(5000):
        logger.error("order %d failed", n)
    handler.flush()
    texts = [e.text for e in stored(nats_server)]
    assert len(texts) <= 2
    assert texts[-1].endswith("order 4999 failed")
    counts = [int(t.split(" ")[0][1:]) if t.startswith("[") else 1 for t in texts]
    assert sum(counts) == 5000


@pytest.mark.integration
def test_a_long_traceback_keeps_its_end(nats_server: NatsServer, logger: logging.Logger) -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        else:
            raise ValueError("x" * 3000 + " the end")

    handler = attach(logger, nats_server)
    try:
        deep(30)
    except ValueError:
        logger.exception("job failed")
    handler.flush()
    [envelope] = stored(nats_server)
    assert envelope.text.startswith("ERROR shop.orders: job failed\nTraceback (most recent call last):\n")
    assert envelope.text.endswith("the end")
    assert len(envelope.text) <= 4096


@pytest.mark.integration
def test_secrets_are_blotted_out_also_where_the_text_is_cut(
    nats_server: NatsServer, logger: logging.Logger
) -> None:
    token = "123456:" + "Ab-_" * 9
    handler = attach(logger, nats_server, secrets=[token])
    seed = nats_server.publisher_seed
    for place in range(900, 1100):  # the beginning's end is about there
        logger.error("%s", "x" * place + token + "y" * 5000 + seed)
    handler.flush()
    said = "".join(e.text for e in stored(nats_server))
    assert "<redacted>" in said
    assert seed not in said
    assert token[:10] not in said


@pytest.mark.integration
def test_texts_that_are_no_texts(nats_server: NatsServer, logger: logging.Logger) -> None:
    handler = attach(logger, nats_server)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.propagate = (
        False  # pytest would report what it captures, and cannot tell half a pair to its parent
    )
    logger.error("half \ud800 a pair")
    logger.error(" \n ")
    logger.error(ValueError("an object"))
    handler.flush()
    assert (
        "\n\n".join(e.text for e in stored(nats_server)) == "half ? a pair\n\n(an empty record)\n\nan object"
    )


@pytest.mark.integration
def test_our_own_loggers_are_passed_over_and_so_is_what_formatting_logs(
    nats_server: NatsServer, logger: logging.Logger
) -> None:
    class Talkative:
        def __str__(self) -> str:
            logger.error("while formatting")
            return "talkative"

    handler = attach(logger, nats_server)
    logger.propagate = False  # pytest's own handlers format too
    for name in ("telegram_connector", "telegram_connector.relay", "nats.aio.client", "urllib3"):
        other = logging.getLogger(name)
        other.addHandler(handler)
        other.error("about ourselves")
        other.removeHandler(handler)
    logger.error("%s", Talkative())
    handler.flush()
    assert [e.text for e in stored(nats_server)] == ["ERROR shop.orders: talkative"]


def test_a_record_that_cannot_be_formatted_is_no_end(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    attach(logger, flush_seconds=0.1)
    logger.propagate = False  # pytest's own handlers raise
    logger.error("%d", "not a number")
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.integration
def test_configured_by_a_dictionary(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SEED", nats_server.publisher_seed, raising=False)
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"short": {"format": "%(message)s!"}},
            "handlers": {
                "telegram": {
                    "class": "telegram_connector.handler.TelegramHandler",
                    "level": "WARNING",
                    "formatter": "short",
                    "chat": "-100123",
                    "settings": {"nats_url": nats_server.url, "nats_nkey_seed": f"ext://{__name__}.SEED"},
                }
            },
            "loggers": {"shop.dict": {"handlers": ["telegram"]}},
        }
    )
    logger = logging.getLogger("shop.dict")
    logger.warning("hello")
    [handler] = logger.handlers
    handler.flush()
    assert [(e.text, e.chat) for e in stored(nats_server)] == [("hello!", "-100123")]
    logger.removeHandler(handler)
    handler.close()


def test_wrong_arguments_are_named_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="either settings or publisher"):
        TelegramHandler()
    with pytest.raises(SettingsError, match="NATS_URL"):
        TelegramHandler({"nats_auth": "none"})
    with pytest.raises(EnvelopeError, match="chat"):
        TelegramHandler(unreachable(), chat="ops")


# Outages


def test_with_the_broker_down_logging_does_not_wait_and_what_is_too_much_is_counted(
    logger: logging.Logger,
) -> None:
    handler = attach(logger, capacity=10, flush_seconds=0.2)
    logger.error("under way")
    queue = handler._queues[os.getpid()]
    with queue._changed:
        assert queue._changed.wait_for(lambda: queue._sending, PATIENCE_SECONDS)
    started = time.monotonic()
    for n in range(1000):
        logger.error(f"record {n}")  # a template each
    assert time.monotonic() - started < 10  # a wait for the broker for each would take hours
    assert queue._gathering._dropped == 990
    started = time.monotonic()
    handler.close()
    handler.close()
    assert time.monotonic() - started < 5
    logger.error("after the end")
    assert handler._queues == {}


@pytest.mark.integration
def test_what_was_logged_during_an_outage_is_sent_after_it_once_and_said(
    nats_server: NatsServer, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    nats_server.kill()
    handler = attach(logger, nats_server)
    logger.error("first")
    logger.error("second")
    handler._flush_seconds = 0.1
    handler.flush()  # in vain
    nats_server.start()
    assert stored(nats_server, 1)[0].text.startswith("ERROR shop.orders: first")
    handler._flush_seconds = PATIENCE_SECONDS
    handler.flush()
    texts = [text for e in stored(nats_server) for text in e.text.split("\n\n")]
    assert texts == ["ERROR shop.orders: first", "ERROR shop.orders: second"]


@pytest.mark.integration
def test_wrong_credentials_are_said_once_to_the_other_handlers(
    nats_server: NatsServer, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    handler = TelegramHandler(nats_server.settings(make_user()[0]), flush_seconds=0.1)
    logger.addHandler(handler)
    logging.getLogger().addHandler(handler)  # where our own records would come by
    said = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set()

    watch = Watch()
    ours = logging.getLogger("telegram_connector")
    ours.addHandler(watch)
    try:
        logger.error("x")
        assert said.wait(PATIENCE_SECONDS)
        handler.close()
    finally:
        ours.removeHandler(watch)
        logging.getLogger().removeHandler(handler)
    said_of_it = [r.getMessage() for r in caplog.records if "cannot be sent yet" in r.getMessage()]
    assert len(said_of_it) == 1
    assert "NATS_TELEGRAM_NKEY_SEED" in said_of_it[0]


# Forks and exits


def run(code: str, url: str, seed: str, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, float]:
    """The stderr of a program of a few lines with the handler on its root logger, and its exit's seconds."""
    prelude = """
        import logging, os, sys, threading, time, warnings
        from telegram_connector.handler import TelegramHandler
        from telegram_connector.settings import NatsSettings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        handler = TelegramHandler(NatsSettings.from_env(os.environ))
        logging.basicConfig(level="INFO", handlers=[handler])
        log = logging.getLogger("shop")
    """
    _, errors, seconds = host(textwrap.dedent(prelude) + textwrap.dedent(code), url, seed, meanwhile)
    return errors, seconds


@pytest.mark.integration
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_script_that_logs_and_ends_loses_nothing(nats_server: NatsServer, name: str) -> None:
    url = nats_server.url.replace("127.0.0.1", name)
    errors, seconds = run('log.error("the last words")', url, nats_server.publisher_seed)
    assert errors == ""
    assert seconds < 5
    assert [e.text for e in stored(nats_server)] == ["ERROR shop: the last words"]


@pytest.mark.integration
def test_a_forked_child_sends_its_own_and_not_its_parents(nats_server: NatsServer) -> None:
    errors, _ = run(
        """
        handler._pause_seconds = 1000
        log.error("one")
        log.error("parent")
        children = []
        for n in range(3):
            child = os.fork()
            if child == 0:
                log.error("child %d", n)
                logging.shutdown()
                os._exit(0)
            children.append(child)
        assert {os.waitpid(child, 0)[1] for child in children} == {0}
        """,
        nats_server.url,
        nats_server.publisher_seed,
    )
    assert errors == ""
    texts = sorted(text for e in stored(nats_server) for text in e.text.split("\n\n"))
    assert texts == [f"ERROR shop: {what}" for what in ("child 0", "child 1", "child 2", "one", "parent")]


@pytest.mark.integration
def test_a_fork_while_other_threads_log(nats_server: NatsServer) -> None:
    errors, _ = run(
        """
        def work(name):
            for n in range(2000):
                log.error("thread %s", name)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        children = []
        for n in range(10):
            child = os.fork()
            if child == 0:
                log.error("child %d", n)
                logging.shutdown()
                os._exit(0)
            children.append(child)
        assert {os.waitpid(child, 0)[1] for child in children} == {0}
        for thread in threads:
            thread.join()
        """,
        nats_server.url,
        nats_server.publisher_seed,
    )
    assert errors == ""
    said = {text.split("ERROR ")[1] for e in stored(nats_server) for text in e.text.split("\n\n")}
    assert {f"shop: child {n}" for n in range(10)} <= said


def test_a_script_exits_in_time_with_the_broker_down_and_says_what_it_lost() -> None:
    code = """
        logging.getLogger("telegram_connector").addHandler(logging.StreamHandler())
        log.error("nobody hears this")
    """
    errors, seconds = run(code, f"nats://127.0.0.1:{dead_port()}", make_user()[0])
    assert errors.splitlines()[-1] == "log records were not sent before the end"
    assert 3 <= seconds < 3 + 5


@pytest.mark.integration
def test_a_script_exits_in_time_with_the_broker_frozen(nats_server: NatsServer) -> None:
    code = """
        log.error("one")
        handler.flush()
        print("ready", flush=True)
        input()
        log.error("two")
    """
    _, seconds = run(code, nats_server.url, nats_server.publisher_seed, lambda: freeze(nats_server))
    assert seconds < 3 + 5
    nats_server.signal(signal.SIGCONT)
    assert stored(nats_server)[0].text == "ERROR shop: one"


@pytest.mark.integration
def test_a_publisher_of_the_programs_is_used_and_left_open(
    nats_server: NatsServer, logger: logging.Logger
) -> None:
    with Publisher(nats_server.settings(nats_server.publisher_seed)) as publisher:
        handler = TelegramHandler(publisher=publisher)
        logger.addHandler(handler)
        logger.error("x")
        handler.close()
        assert publisher.publish(TelegramOutbound(msg_id="a", text="y")).seq == 2
    assert [e.text for e in stored(nats_server)] == ["ERROR shop.orders: x", "y"]
