"""The relay inside other programs: threads, forks, exits, several at once, again and again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import RelayFailed
from telegram_connector.relay import Relay
from telegram_connector.settings import Settings
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered
from tests.process import Process

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.integration


def environment(fleet: Fleet) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "TELEGRAM_CHAT_ID": "1",
        "NATS_URL": fleet.server.url,
        "NATS_TELEGRAM_NKEY_SEED": fleet.server.worker_seed,
        "TELEGRAM_API_BASE_URL": fleet.sandbox.url,
    }


def run(code: str, fleet: Fleet) -> subprocess.CompletedProcess[str]:
    """A host program of a few lines, with `relay` made from its environment."""
    prelude = """
        import os, sys, threading
        from telegram_connector.relay import Relay
        from telegram_connector.settings import Settings
        relay = Relay(Settings.from_env(os.environ))
    """
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
        env=environment(fleet),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def our_threads() -> set[str]:
    names = {thread.name for thread in threading.enumerate()}
    return {
        n
        for n in names
        if n in {"nats", "reader", "reporter", "metrics", "relay-stop"} or n.startswith("sender-")
    }


def test_started_and_stopped_again_and_again(fleet: Fleet) -> None:
    relay = Relay(fleet.settings(), fleet.observe)
    for round_ in range(10):
        assert relay.start()
        with pytest.raises(RuntimeError):
            relay.start()
        fleet.publish(*numbered(3, 1, start=round_ * 3))
        fleet.sandbox.wait(count=round_ * 3 + 3, timeout_seconds=PATIENCE_SECONDS)
        relay.stop()
        relay.stop()
        assert relay.wait(0)
        assert not our_threads()
    assert fleet.texts() == [e.text for e in numbered(30, 1)]


def test_stop_before_start_and_without_a_start() -> None:
    Relay(Settings()).stop()


def test_a_dormant_relay_reports_it_and_starts_nothing() -> None:
    seen: list[events.Event] = []
    relay = Relay(Settings(bot_token=TOKEN), seen.append)
    assert relay.start() is False
    assert seen == [events.Dormant(("NATS_URL",))]
    assert not our_threads()
    relay.stop()


def test_several_relays_in_one_process(fleet: Fleet) -> None:
    from telegram_connector.topology import outbound_stream

    other = {"stream": "OTHER", "subject": "other.outbound", "durable": "other"}
    settings = fleet.server.settings(fleet.server.root_seed, **other)
    with fleet.server.client() as client:
        client.api("STREAM.CREATE.OTHER", outbound_stream(settings))
        for n in range(5):
            client.publish("other.outbound", b'{"msg_id":"o%d","chat":"9","text":"other %d"}' % (n, n))
    fleet.publish(*numbered(5, 1))
    fleet.relay()
    fleet.relay(**other, nats_nkey_seed=fleet.server.root_seed)
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)
    assert fleet.texts(9) == [f"other {n}" for n in range(5)]


def test_the_hosts_signals_and_logging_are_left_alone(fleet: Fleet) -> None:
    before = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), list(logging.root.handlers))
    fleet.relay().stop()
    after = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), list(logging.root.handlers))
    assert before == after


def test_a_dead_thread_stops_the_relay_and_the_host_sees_why(fleet: Fleet) -> None:
    relay = Relay(fleet.settings(), fleet.observe)
    ended = threading.Event()
    relay.on_end(ended.set)
    relay.start()
    fleet.until_event(events.Bound)
    running = relay._running
    assert running is not None

    def die(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError("a bug")

    running.worker._upkeep.tick = die  # type: ignore[method-assign]
    assert ended.wait(PATIENCE_SECONDS)
    with pytest.raises(RelayFailed, match="reader died: ZeroDivisionError: a bug"):
        relay.wait(PATIENCE_SECONDS)
    assert not relay.running
    assert not our_threads()
    fleet.publish(*numbered(2, 1))
    assert relay.start()  # a new try is a clean one
    fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    relay.stop()


def test_an_observer_that_raises_does_not_take_messages_with_it(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(event: events.Event) -> None:
        fleet.observe(event)
        raise ValueError("the host's bug")

    fleet.publish(*numbered(3, 1))
    with Relay(fleet.settings(), observe):
        fleet.sandbox.wait(count=3, timeout_seconds=PATIENCE_SECONDS)
    assert len([r for r in caplog.records if "the observer raised" in r.message]) == 1


def test_a_forgotten_stop_does_not_hang_the_exit_and_gives_back(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("flood", chat=100, retry_after=900)
    fleet.publish(*numbered(10, 2))
    done = run(
        """
        import urllib.request
        relay.start()
        base = os.environ["TELEGRAM_API_BASE_URL"]
        urllib.request.urlopen(base + "/_sandbox/wait?count=5&chat=101&timeout=30").read()
        print("exiting")
        """,
        fleet,
    )
    assert (done.returncode, done.stdout) == (0, "exiting\n"), done.stderr
    fleet.sandbox.clear_faults()
    # A connector becomes active by a delivery, and what was given back comes after a while only.
    fleet.publish(TelegramOutbound(msg_id="new", chat="102", text="a chat with nothing out"))
    fleet.relay(max_deliver=9)
    held = fleet.until_event(events.ChatHeld)  # which the next process honours
    assert held.seconds > 800
    assert len(fleet.texts(101)) == 5


def test_a_host_that_dies_of_an_exception_does_not_hang(fleet: Fleet) -> None:
    done = run("relay.start(); raise SystemExit(3)", fleet)
    assert done.returncode == 3
    done = run("relay.start(); 1 / 0", fleet)
    assert done.returncode == 1
    assert TOKEN not in done.stderr


def test_a_forked_child_neither_sends_nor_settles(fleet: Fleet) -> None:
    fleet.sandbox.set_fault({"delay_seconds": 0.05})
    fleet.publish(*numbered(40, 4))
    done = run(
        """
        import urllib.request, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the host's choice
        relay.start()
        base = os.environ["TELEGRAM_API_BASE_URL"]
        urllib.request.urlopen(base + "/_sandbox/wait?count=3&timeout=30").read()
        children = []
        for how in ("exit", "_exit", "stop"):
            child = os.fork()
            if child == 0:
                assert not relay.running
                if how == "_exit":
                    os._exit(0)
                if how == "stop":
                    relay.stop()
                sys.exit(0)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
        urllib.request.urlopen(base + "/_sandbox/wait?count=40&timeout=30").read()
        relay.stop()
        print(codes)
        """,
        fleet,
    )
    assert (done.returncode, done.stdout) == (0, "[0, 0, 0]\n"), done.stderr
    fleet.assert_nothing_left()
    assert sorted(fleet.texts()) == sorted(e.text for e in numbered(40, 4))


# A child is forked in the middle of what its parent's relay does; it must neither wait for threads that it
# has not got, nor speak for the parent.
IN_THE_MIDDLE = """
    import os, signal, sys, threading, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the host's choice
    begun, over = threading.Event(), threading.Event()

    def in_a_child(ask):
        begun.wait(30)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            ask()
            os._exit(0)
        code = os.waitpid(child, 0)[1]
        over.set()
        print(code)
"""


def test_a_forked_childs_metrics_do_not_speak_of_the_parents_relay() -> None:
    done = in_the_middle(
        """
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from telegram_connector.instruments import BACKLOG, Measure
        from telegram_connector.metering import Metering

        def read():
            begun.set()
            over.wait(30)
            return [Measure(BACKLOG, 5)]

        def backlogs():
            data = reader.get_metrics_data()
            return [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics
                    if m.name == BACKLOG.name and m.data.data_points]

        def ask():
            assert not backlogs()
            metering.show(lambda: [Measure(BACKLOG, 6)])  # a relay of the child's own
            assert backlogs()

        reader = InMemoryMetricReader()
        metering = Metering("d", MeterProvider([reader], shutdown_on_exit=False))
        metering.show(read)
        thread = threading.Thread(target=metering.readings)
        thread.start()
        in_a_child(ask)
        thread.join()
        print(len(backlogs()))
        """
    )
    assert (done.returncode, done.stdout) == (0, "0\n1\n"), done.stderr


def test_a_forked_child_can_log_events() -> None:
    done = in_the_middle(
        """
        from telegram_connector.events import AttemptCrashed, Subject
        from telegram_connector.telemetry import log_event

        class Slow(Exception):
            def __repr__(self):
                begun.set()
                over.wait(30)
                return "Slow()"

        subject = Subject("m", "7", None, 1)
        thread = threading.Thread(target=log_event, args=(AttemptCrashed(subject, Slow()),))
        thread.start()
        in_a_child(lambda: log_event(AttemptCrashed(subject, ValueError())))
        thread.join()
        """
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def in_the_middle(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IN_THE_MIDDLE) + textwrap.dedent(code)],
        env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_the_example_that_embeds_it_in_a_program_with_threads(fleet: Fleet) -> None:
    fleet.publish(*numbered(3, 1))
    env = {k: v for k, v in environment(fleet).items() if k != "PATH"}
    with Process(env=env, script=ROOT / "examples" / "embed_in_threads.py") as program:
        program.until("m2 ack")
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        assert "stopping: SIGTERM" in program.output
    with Process(env={"PYTHONPATH": str(ROOT)}, script=ROOT / "examples" / "embed_in_threads.py") as program:
        assert program.wait() == 0
        assert "dormant" in program.output
