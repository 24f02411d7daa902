"""The publisher inside other programs: checks, receipts, threads, forks, outages, exits."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError, PublishFailed, SettingsError, TextRefused
from telegram_connector.publisher import PublishAck, Publisher, fits, reads_well
from telegram_connector.settings import NatsSettings, Settings
from tests.nats_server import NatsServer, make_user, running_server

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0


def envelope(msg_id: str = "a", text: str = "hello", **more: Any) -> TelegramOutbound:
    return TelegramOutbound(msg_id=msg_id, text=text, **more)


def publisher(server: NatsServer, **more: Any) -> Publisher:
    return Publisher(server.settings(server.publisher_seed), **more)


def stored(server: NatsServer) -> list[str]:
    """The msg_id of every message in the stream, in its order."""
    with server.client() as client:
        count = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]["messages"]
        messages = [
            client.api("STREAM.MSG.GET.TELEGRAM_OUTBOUND", {"seq": n + 1})["message"] for n in range(count)
        ]
    return [json.loads(base64.b64decode(message["data"]))["msg_id"] for message in messages]


def dead_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unreachable(**more: Any) -> NatsSettings:
    return NatsSettings(nats_url=f"nats://127.0.0.1:{dead_port()}", nats_nkey_seed=make_user()[0], **more)


def freeze(server: NatsServer) -> None:
    """Stop the server; returns once it is."""
    assert server.process is not None
    server.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)


def host(code: str, url: str, seed: str, meanwhile: Callable[[], None]) -> tuple[str, str, float]:
    """Run a program; `meanwhile` is called when it prints that it is ready, and then it goes on.

    Returns:
        What it printed, its stderr, and the seconds from the time that it printed last to its end.
    """
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code + "\nprint(time.monotonic(), flush=True)\n"],
        env={
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(ROOT),
            "NATS_URL": url,
            "NATS_TELEGRAM_NKEY_SEED": seed,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        if first == "ready\n":
            meanwhile()
            process.stdin.write("go on\n")
            process.stdin.flush()
            first = ""
        rest, errors = process.stdout.read(), process.stderr.read()
    ended = time.monotonic()
    assert process.returncode == 0, errors
    *printed, last = (first + rest).splitlines(keepends=True)
    return "".join(printed), errors, ended - float(last)


def run(code: str, url: str, seed: str, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, float]:
    """What a program of a few lines with a `publisher` prints, and how many seconds its exit takes."""
    prelude = """
        import os, sys, threading, time, warnings
        from telegram_connector.envelope import TelegramOutbound
        from telegram_connector.errors import PublishFailed
        from telegram_connector.publisher import Publisher
        from telegram_connector.settings import NatsSettings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        publisher = Publisher(NatsSettings.from_env(os.environ))
        def envelope(msg_id):
            return TelegramOutbound(msg_id=msg_id, text="hello")
    """
    printed, errors, seconds = host(textwrap.dedent(prelude) + textwrap.dedent(code), url, seed, meanwhile)
    assert errors == ""  # no warning, no traceback
    return printed, seconds


# What is refused before anything is published


@pytest.mark.parametrize(
    ("text", "parse_mode", "words"),
    [
        ("x" * 4097, None, "message is too long: 4097 characters of 4096"),
        ("😀" * 4097, "none", "message is too long"),
        (" \n\t", "HTML", "text must be non-empty"),
        ("é" * 16_385, "HTML", "text is too long: 32770 bytes of 32768"),
    ],
)
def test_what_telegram_surely_refuses_is_not_published(text: str, parse_mode: str | None, words: str) -> None:
    with pytest.raises(EnvelopeError, match=words) as refused:
        fits(envelope(text=text, parse_mode=parse_mode))
    assert refused.value.field == "text"


@pytest.mark.parametrize(
    ("text", "parse_mode"),
    [
        ("😀" * 4096, None),
        (" " * 10 + "x" * 4096 + "\r\n", None),
        ("x" * 4095 + "\r\n" * 10 + "\u200e" * 9, None),
        ("<b>" * 2000, "HTML"),  # how long that is, only its parser knows
    ],
)
def test_what_telegram_may_take_is_let_through(text: str, parse_mode: str | None) -> None:
    fits(envelope(text=text, parse_mode=parse_mode))


@pytest.mark.parametrize(
    ("text", "parse_mode", "description", "byte_offset", "said"),
    [
        (
            "é<b>x</i>",
            "HTML",
            "Bad Request: can't parse entities: Unmatched end tag at byte offset 6, "
            'expected "</b>", found "</i>"',
            6,
            'text: can\'t parse entities: Unmatched end tag at byte offset 6, expected "</b>", found "</i>"',
        ),
        (
            "é v1.2",
            "MarkdownV2",
            "Bad Request: can't parse entities: Character '.' is reserved and must be escaped with the "
            "preceding '\\'",
            5,
            "text: can't parse entities: Character '.' is reserved and must be escaped with the preceding "
            "'\\' (at byte offset 5)",
        ),
        (
            "*bold",
            "markdown",
            "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 0",
            0,
            "text: can't parse entities: Can't find end of the entity starting at byte offset 0",
        ),
        ("x", "BBCode", "Bad Request: unsupported parse_mode", None, "text: unsupported parse_mode"),
        ("<b></b>", "HTML", "Bad Request: text must be non-empty", None, "text: text must be non-empty"),
        (
            "<b>" + "x" * 4097 + "</b>",
            "HTML",
            "Bad Request: message is too long",
            None,
            "text: message is too long",
        ),
        (
            "x" * 4097,
            None,
            "Bad Request: message is too long",
            None,
            "text: message is too long: 4097 characters of 4096",
        ),
    ],
)
def test_what_telegram_would_refuse_is_refused_in_its_words_with_the_place(
    text: str, parse_mode: str | None, description: str, byte_offset: int | None, said: str
) -> None:
    with Publisher(unreachable()) as publisher, pytest.raises(TextRefused) as refused:
        publisher.publish(envelope(text=text, parse_mode=parse_mode))
    for error in (refused.value, pickle.loads(pickle.dumps(refused.value))):
        assert (error.description, error.byte_offset, str(error)) == (description, byte_offset, said)
        assert error.field == "text"


def test_a_refusal_quotes_no_more_than_a_line_of_the_text() -> None:
    with pytest.raises(TextRefused) as refused:
        reads_well(envelope(text="<" + "x" * 30_000, parse_mode="HTML"))
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("text", "parse_mode"),
    [
        ("<b>" + "x" * 4096 + "</b>", "HTML"),
        ("v1\\.2 *b*", "MarkdownV2"),
        ("1 < 2", None),
        ("_i_", "Markdown"),
    ],
)
def test_what_telegram_takes_reads_well(text: str, parse_mode: str | None) -> None:
    reads_well(envelope(text=text, parse_mode=parse_mode))


def test_an_envelopes_error_survives_being_pickled() -> None:
    error = pickle.loads(pickle.dumps(EnvelopeError("chat", "neither")))
    assert (error.field, error.reason, str(error)) == ("chat", "neither", "chat: neither")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (envelope(msg_id=""), "msg_id: empty"),
        (envelope(msg_id="a\r\nX: y"), "msg_id: control characters"),
        (envelope(msg_id=" a"), "msg_id: .*white space"),
        (envelope(chat="nobody"), "chat: neither"),
        (envelope(text="half \ud800"), "surrogate"),
    ],
)
def test_a_bad_envelope_needs_no_server_to_be_refused(bad: TelegramOutbound, words: str) -> None:
    with Publisher(unreachable()) as publisher, pytest.raises(EnvelopeError, match=words):
        publisher.publish(bad)


@pytest.mark.parametrize(
    ("headers", "timeout", "words"),
    [
        ({"Nats-Msg-Id": "other"}, 1, "Nats-Msg-Id.*one of NATS's own"),
        ({"nats-rollup": "all"}, 1, "one of NATS's own"),
        ({"a b": "x"}, 1, "no header's name"),
        ({"a": "x\r\nNats-Rollup: all"}, 1, "control characters"),
        ({}, 0, "timeout_seconds"),
        ({}, 101, "timeout_seconds"),
        ({}, float("nan"), "timeout_seconds"),
    ],
)
def test_impossible_arguments_are_named(headers: dict[str, str], timeout: float, words: str) -> None:
    with Publisher(unreachable()) as publisher, pytest.raises(ValueError, match=words):
        publisher.publish(envelope(), timeout, headers=headers)


def test_settings_that_cannot_publish_are_named() -> None:
    with pytest.raises(SettingsError, match="NATS_URL is not set"):
        Publisher(Settings())
    with pytest.raises(SettingsError, match="TG_SUBJECT has a wildcard"):
        Publisher(unreachable(subject="telegram.outbound.>"))


def test_the_failure_survives_being_pickled() -> None:
    failure = pickle.loads(pickle.dumps(PublishFailed("a", "no answer", True)))
    assert (failure.msg_id, failure.reason, failure.maybe_stored) == ("a", "no answer", True)


# Publishing


@pytest.mark.integration
def test_a_receipt_says_where_it_is_and_whether_it_was_there(nats_server: NatsServer) -> None:
    with publisher(nats_server) as out:
        assert out.publish(envelope("a"), headers={"traceparent": "00-1-2-3"}) == PublishAck(1, False)
        assert out.publish(envelope("a")) == PublishAck(1, True)
        assert out.publish(envelope("b")) == PublishAck(2, False)
    with nats_server.client() as client:
        message = client.api("STREAM.MSG.GET.TELEGRAM_OUTBOUND", {"seq": 1})["message"]
    headers = base64.b64decode(message["hdrs"])
    assert b"traceparent: 00-1-2-3" in headers
    assert b"Nats-Msg-Id: a" in headers


@pytest.mark.integration
def test_many_are_checked_first_then_published_in_order(nats_server: NatsServer) -> None:
    seen: list[tuple[str, int]] = []
    with publisher(nats_server) as out:
        with pytest.raises(EnvelopeError):
            out.publish_many([envelope("a"), envelope("b", text=" ")])
        assert stored(nats_server) == []
        acks = out.publish_many(
            (envelope(f"m{n}") for n in range(50)), progress=lambda e, ack: seen.append((e.msg_id, ack.seq))
        )
    assert [ack.seq for ack in acks] == list(range(1, 51))
    assert seen == [(f"m{n}", n + 1) for n in range(50)]
    assert stored(nats_server) == [f"m{n}" for n in range(50)]


@pytest.mark.integration
def test_a_check_of_ones_own(nats_server: NatsServer) -> None:
    def check(envelope: TelegramOutbound) -> None:
        raise EnvelopeError("text", f"not today, {envelope.msg_id}")

    with publisher(nats_server, check=check) as out, pytest.raises(EnvelopeError, match="not today, a"):
        out.publish(envelope())
    assert stored(nats_server) == []


@pytest.mark.integration
def test_without_the_check_or_with_less_of_it_markup_is_the_publishers_affair(
    nats_server: NatsServer,
) -> None:
    for number, check in enumerate((False, fits), 1):
        with publisher(nats_server, check=check) as out:
            assert out.publish(envelope(f"m{number}", text="<b>", parse_mode="HTML")).seq == number
    with publisher(nats_server, check=True) as out, pytest.raises(TextRefused):
        out.publish(envelope("m3", text="<b>", parse_mode="HTML"))
    assert stored(nats_server) == ["m1", "m2"]


@pytest.mark.integration
def test_many_threads_share_one_connection(nats_server: NatsServer) -> None:
    with publisher(nats_server) as out, ThreadPoolExecutor(16) as threads:
        acks = list(threads.map(lambda n: out.publish(envelope(f"m{n}")), range(300)))
    assert sorted(ack.seq for ack in acks) == list(range(1, 301))
    assert nats_server.log.count("telegram_connector publisher") <= 1
    assert "nats-publisher" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.integration
def test_within_a_running_asyncio_program(nats_server: NatsServer) -> None:
    import asyncio

    async def main() -> list[PublishAck]:
        with publisher(nats_server) as out:
            first = out.publish(envelope("a"))  # blocks this loop, and still works
            return [first, await asyncio.to_thread(out.publish, envelope("b"))]

    assert asyncio.run(main()) == [PublishAck(1, False), PublishAck(2, False)]


@pytest.mark.integration
def test_more_than_the_server_takes_is_refused_before() -> None:
    with running_server("max_payload: 1024") as server:
        server.provision()
        with publisher(server) as out:
            with pytest.raises(EnvelopeError, match=r"\d+ bytes with its headers; the server takes 1024"):
                out.publish(envelope(text="x" * 980))
            assert out.publish(envelope("b")).seq == 1  # the same connection goes on


# Servers that are away, and errors that name what to look at


@pytest.mark.integration
def test_wrong_credentials_are_named_at_once(nats_server: NatsServer) -> None:
    with Publisher(nats_server.settings(make_user()[0])) as out:
        started = time.monotonic()
        with pytest.raises(PublishFailed, match="NATS_TELEGRAM_NKEY_SEED") as failed:
            out.publish(envelope(), 50)
        assert time.monotonic() - started < 25
        assert not failed.value.maybe_stored


@pytest.mark.integration
def test_missing_permission_is_named_at_once(nats_server: NatsServer) -> None:
    with Publisher(nats_server.settings()) as out:  # the worker's user, who publishes no envelopes
        started = time.monotonic()
        with pytest.raises(PublishFailed, match=r"(?i)permissions violation.*telegram\.outbound") as failed:
            out.publish(envelope(), 50)
        assert time.monotonic() - started < 25
        assert not failed.value.maybe_stored


@pytest.mark.integration
def test_a_missing_stream_is_named() -> None:
    with running_server() as server, publisher(server) as out:
        with pytest.raises(PublishFailed, match=r"no stream takes it .*TG_SUBJECT.*provision") as failed:
            out.publish(envelope(), 3)
        assert not failed.value.maybe_stored


@pytest.mark.integration
def test_what_the_stream_refuses_is_said_in_its_words(nats_server: NatsServer) -> None:
    with nats_server.client() as client:
        config = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["config"]
        client.api("STREAM.UPDATE.TELEGRAM_OUTBOUND", {**config, "max_msg_size": 100})
    with publisher(nats_server) as out:
        with pytest.raises(PublishFailed, match="message size exceeds") as failed:
            out.publish(envelope(text="x" * 200), 50)
        assert not failed.value.maybe_stored


def test_a_broker_that_is_down_is_an_error_within_the_timeout() -> None:
    with Publisher(unreachable()) as out:
        started = time.monotonic()
        with pytest.raises(
            PublishFailed, match=r"is not stored: 127.0.0.1:\d+: Connection refused \(NATS_URL\)"
        ) as failed:
            out.publish(envelope(), 0.5)
        assert 0.5 <= time.monotonic() - started < 0.5 + 5
    assert not failed.value.maybe_stored


@pytest.mark.integration
def test_a_broker_that_comes_up_within_the_timeout_gets_it(nats_server: NatsServer) -> None:
    nats_server.kill()
    with publisher(nats_server) as out, ThreadPoolExecutor(1) as thread:
        acked = thread.submit(out.publish, envelope(), 60)
        with pytest.raises(PublishFailed):
            out.publish(envelope("b"), 0.3)
        nats_server.start()
        assert acked.result(PATIENCE_SECONDS) == PublishAck(1, False)
    assert stored(nats_server) == ["a"]


@pytest.mark.integration
def test_a_broker_killed_and_started_again_in_between(nats_server: NatsServer) -> None:
    with publisher(nats_server) as out:
        assert out.publish(envelope("a")).seq == 1
        nats_server.kill()
        with pytest.raises(PublishFailed) as failed:
            out.publish(envelope("b"), 0.3)
        nats_server.start()
        # The id is the same: whatever became of the first try, it is stored once.
        assert out.publish(envelope("b"), 60).seq == 2
        assert out.publish(envelope("a"), 60) == PublishAck(1, True)
    assert isinstance(failed.value.maybe_stored, bool)
    assert stored(nats_server) == ["a", "b"]


@pytest.mark.integration
def test_a_lost_answer_is_asked_for_again_under_the_same_id(nats_server: NatsServer) -> None:
    """The broker is frozen with the message in its socket, and stores it once it is thawed."""
    with publisher(nats_server) as out, ThreadPoolExecutor(1) as thread:
        out.publish(envelope("a"))
        freeze(nats_server)
        with pytest.raises(PublishFailed, match="may be stored or not") as failed:
            out.publish(envelope("b"), 1.0)
        assert failed.value.maybe_stored
        waiting = thread.submit(out.publish, envelope("b"), 60)
        nats_server.signal(signal.SIGCONT)
        assert waiting.result(PATIENCE_SECONDS).seq == 2
    assert stored(nats_server) == ["a", "b"]


@pytest.mark.integration
def test_closing_ends_the_waits_of_other_threads_and_is_final(nats_server: NatsServer) -> None:
    out = publisher(nats_server)
    out.publish(envelope("a"))
    freeze(nats_server)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(out.publish, envelope("b"), 100)
        link = out._outlet()._link
        assert link is not None
        while not link._asked:  # until the request is on its way
            threading.Event().wait(0.01)
        out.close(1.0)
        with pytest.raises(PublishFailed) as failed:
            waiting.result(PATIENCE_SECONDS)
        assert failed.value.maybe_stored
    out.close()
    with pytest.raises(PublishFailed, match="the publisher is closed"):
        out.publish(envelope("c"))
    nats_server.signal(signal.SIGCONT)


def test_closing_what_was_never_used() -> None:
    out = Publisher(unreachable())
    out.close()
    out.close()


@pytest.mark.integration
def test_what_was_interrupted_is_not_published_behind_the_callers_back(nats_server: NatsServer) -> None:
    """As by Ctrl-C, or the soft time limit of a task queue."""
    nats_server.kill()
    code = """
        import asyncio, signal
        class Late(Exception): pass
        def late(*_):
            raise Late
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            publisher.publish(envelope("a"), 90)
        except Late:
            print("ready", flush=True)
        input()
        publisher.publish(envelope("b"), 60)
        tasks = asyncio.all_tasks(publisher._outlet()._loop._loop)
        assert not [task for task in tasks if "_publish" in repr(task)], tasks
    """
    run(code, nats_server.url, nats_server.publisher_seed, nats_server.start)
    assert stored(nats_server) == ["b"]


# Forks


@pytest.mark.integration
def test_a_forked_child_publishes_over_its_own_connection(nats_server: NatsServer) -> None:
    printed, _ = run(
        """
        publisher.publish(envelope("parent-1"))
        children = []
        for n in range(3):
            child = os.fork()
            if child == 0:
                publisher.publish(envelope(f"child-{n}"))
                grandchild = os.fork()
                if grandchild == 0:
                    publisher.publish(envelope(f"grandchild-{n}"))
                    publisher.close()
                    os._exit(0)
                assert os.waitpid(grandchild, 0)[1] == 0
                publisher.publish(envelope(f"child-{n}-again"))
                if n == 0:
                    publisher.close()
                os._exit(0)
            children.append(child)
        publisher.publish(envelope("parent-2"))  # while they run
        codes = [os.waitpid(child, 0)[1] for child in children]
        publisher.publish(envelope("parent-3"))
        print(codes)
        """,
        nats_server.url,
        nats_server.publisher_seed,
    )
    assert printed == "[0, 0, 0]\n"
    children = [f"{who}-{n}" for n in range(3) for who in ("child", "grandchild")]
    again = [f"child-{n}-again" for n in range(3)]
    assert sorted(stored(nats_server)) == sorted(["parent-1", "parent-2", "parent-3", *children, *again])


@pytest.mark.integration
def test_a_fork_while_other_threads_publish(nats_server: NatsServer) -> None:
    """Their locks are held at the fork by nobody that exists in the child."""
    printed, _ = run(
        """
        def work(name):
            for n in range(100):
                publisher.publish(envelope(f"{name}-{n}"))
        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        children = []
        for n in range(10):
            child = os.fork()
            if child == 0:
                publisher.publish(envelope(f"child-{n}"))
                os._exit(0)
            children.append(child)
        codes = {os.waitpid(child, 0)[1] for child in children}
        for thread in threads:
            thread.join()
        publisher.close()
        print(codes)
        """,
        nats_server.url,
        nats_server.publisher_seed,
    )
    assert printed == "{0}\n"
    assert len(stored(nats_server)) == 410


@pytest.mark.integration
def test_multiprocessing_with_fork(nats_server: NatsServer) -> None:
    printed, _ = run(
        """
        import multiprocessing
        publisher.publish(envelope("parent"))
        def work(n):
            return publisher.publish(envelope(f"child-{n}")).duplicate
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(work, range(20)))
            pool.close()
            pool.join()
        """,
        nats_server.url,
        nats_server.publisher_seed,
    )
    assert printed == f"{[False] * 20}\n"
    assert sorted(stored(nats_server)) == sorted(["parent", *(f"child-{n}" for n in range(20))])


@pytest.mark.integration
def test_a_child_does_not_keep_the_parents_connection_open(tmp_path: Path) -> None:
    with running_server('http: "127.0.0.1:-1"\nports_file_dir: "' + str(tmp_path) + '"') as server:
        server.provision()
        [ports] = tmp_path.glob("*.ports")
        [monitor] = json.loads(ports.read_text())["monitoring"]

        def names() -> list[str]:
            with urllib.request.urlopen(f"{monitor}/connz") as answer:
                return [c.get("name", "") for c in json.load(answer)["connections"]]

        out = publisher(server, name="the parent's")
        out.publish(envelope("a"))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # lives on without publishing, until the parent closes its end
            os._exit(0)
        try:
            assert "the parent's" in names()
            out.publish(envelope("b"))  # the child let go of it, and it goes on here
            out.close()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while "the parent's" in names():
                assert time.monotonic() < deadline
                threading.Event().wait(0.02)
        finally:
            os.close(write)
            os.close(read)
            assert os.waitpid(child, 0)[1] == 0


# Exits


@pytest.mark.integration
def test_a_program_that_does_not_close_exits_at_once(nats_server: NatsServer) -> None:
    _, seconds = run('publisher.publish(envelope("a"))', nats_server.url, nats_server.publisher_seed)
    assert seconds < 5
    assert stored(nats_server) == ["a"]


def test_a_program_exits_at_once_with_the_broker_down() -> None:
    code = """
        def work():
            try:
                publisher.publish(envelope("a"), 90)
            except PublishFailed:
                pass
        threading.Thread(target=work, daemon=True).start()
        try:
            publisher.publish(envelope("b"), 0.3)
        except PublishFailed as error:
            print(error.maybe_stored)
    """
    printed, seconds = run(code, f"nats://127.0.0.1:{dead_port()}", make_user()[0])
    assert printed == "False\n"
    assert seconds < 5


@pytest.mark.integration
def test_a_program_exits_in_time_with_the_broker_frozen(nats_server: NatsServer) -> None:
    code = """
        with publisher:
            publisher.publish(envelope("a"))
            print("ready", flush=True)
            input()
            try:
                publisher.publish(envelope("b"), 0.5)
            except PublishFailed as error:
                print(error.maybe_stored)
    """
    printed, seconds = run(code, nats_server.url, nats_server.publisher_seed, lambda: freeze(nats_server))
    assert printed == "True\n"
    assert seconds < 5
