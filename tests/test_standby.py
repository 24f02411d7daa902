"""Two connectors on one durable: one sends, the other waits and takes over."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered, worker_env
from tests.process import Process

pytestmark = pytest.mark.integration

TAKEOVER = "2"


def in_order(fleet: Fleet, count: int, chats: int) -> bool:
    wanted = numbered(count, chats)
    return all(
        fleet.texts(100 + n) == [e.text for e in wanted if e.chat == str(100 + n)] for n in range(chats)
    )


def worker(fleet: Fleet, **more: str) -> Process:
    env = worker_env(
        fleet, TG_STANDBY_TAKEOVER_SECS=TAKEOVER, TG_ACK_WAIT_SECS="4", LOG_LEVEL="DEBUG", **more
    )
    return Process("run", env=env)


def test_only_one_of_two_sends(fleet: Fleet) -> None:
    with worker(fleet) as first:
        fleet.publish(*numbered(20, 4))
        fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
        with worker(fleet) as second:
            second.until("bound to TELEGRAM_OUTBOUND")
            fleet.publish(*numbered(40, 4, start=20))
            fleet.sandbox.wait(count=60, timeout_seconds=PATIENCE_SECONDS)
            fleet.assert_nothing_left()
            assert "active: this connector sends" in first.output
            assert '"sent"' not in second.output
    assert in_order(fleet, 60, 4)


def test_a_clean_stop_hands_over_at_once_in_order(fleet: Fleet) -> None:
    fleet.sandbox.set_fault({"delay_seconds": 0.02})
    with worker(fleet) as first:
        fleet.publish(*numbered(5, 5))
        fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
        with worker(fleet) as second:
            second.until("bound to TELEGRAM_OUTBOUND")
            fleet.publish(*numbered(145, 5, start=5))
            fleet.sandbox.wait(count=50, timeout_seconds=PATIENCE_SECONDS)
            first.signal(signal.SIGTERM)
            assert first.wait() == 0
            fleet.sandbox.wait(count=150, timeout_seconds=PATIENCE_SECONDS)
            fleet.assert_nothing_left()
            assert "active: this connector sends" in second.output
    assert in_order(fleet, 150, 5)


def hang_at(fleet: Fleet, send: int, seconds: float = 600.0) -> None:
    """That send is carried out and not answered so soon: a worker that waits for it has no ack on its way."""
    fleet.sandbox.set_fault({"method": "sendMessage", "delay_seconds": seconds}, nth=send)


def until_acked(fleet: Fleet, count: int) -> None:
    """Wait until so many are acked, and the next is with the Bot API."""
    fleet.sandbox.wait(count=count + 1, timeout_seconds=PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (floor := fleet.server.consumer()["ack_floor"]["stream_seq"]) < count:
        assert time.monotonic() < deadline, floor
        threading.Event().wait(0.01)


def doubled(fleet: Fleet) -> list[str]:
    return [group[0].raw_text for group in fleet.sandbox.duplicates()]


def test_after_kill_9_the_other_takes_over_and_keeps_the_order(fleet: Fleet) -> None:
    hang_at(fleet, 60)
    with worker(fleet) as first:
        fleet.publish(*numbered(5, 5))
        fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
        with worker(fleet) as second:
            second.until("bound to TELEGRAM_OUTBOUND")
            fleet.publish(*numbered(195, 5, start=5))
            until_acked(fleet, 59)
            first.signal(signal.SIGKILL)
            first.wait()
            second.until("active: this connector sends")
            fleet.sandbox.wait(count=200, timeout_seconds=PATIENCE_SECONDS)
            fleet.assert_nothing_left()
    assert doubled(fleet) == ["text 59"]  # the send whose answer was lost with the process
    for chat in range(100, 105):
        seen = list(dict.fromkeys(fleet.texts(chat)))
        assert seen == [e.text for e in numbered(200, 5) if e.chat == str(chat)]


def test_a_killed_worker_that_comes_back_alone_keeps_the_order_too(fleet: Fleet) -> None:
    hang_at(fleet, 60)
    fleet.publish(*numbered(200, 5))
    with worker(fleet) as first:
        until_acked(fleet, 59)
        first.signal(signal.SIGKILL)
        first.wait()
    with worker(fleet):
        fleet.sandbox.wait(count=200, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
    assert doubled(fleet) == ["text 59"]
    for chat in range(100, 105):
        seen = list(dict.fromkeys(fleet.texts(chat)))
        assert seen == [e.text for e in numbered(200, 5) if e.chat == str(chat)]


def test_a_paused_process_that_wakes_up_sends_nothing_that_the_other_has(fleet: Fleet) -> None:
    hang_at(fleet, 20, seconds=1.0)
    with worker(fleet) as first:
        fleet.publish(*numbered(5, 5))
        fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
        with worker(fleet) as second:
            second.until("bound to TELEGRAM_OUTBOUND")
            fleet.publish(*numbered(95, 5, start=5))
            until_acked(fleet, 19)
            first.signal(signal.SIGSTOP)
            second.until("active: this connector sends")
            fleet.sandbox.wait(count=90, timeout_seconds=PATIENCE_SECONDS)
            first.signal(signal.SIGCONT)
            first.until("standby: another connector sends")
            fleet.publish(*numbered(20, 5, start=100))
            fleet.sandbox.wait(count=120, timeout_seconds=PATIENCE_SECONDS)
            fleet.assert_nothing_left()
    # The one send that was out while the process slept may have been seen by both.
    assert len(fleet.sandbox.duplicates()) <= 1
    for chat in range(100, 105):
        seen = list(dict.fromkeys(fleet.texts(chat)))
        assert seen == [e.text for e in numbered(120, 5) if e.chat == str(chat)]


def test_an_active_connector_keeps_its_pin_while_it_takes_nothing(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("flood", chat=100, times=1, retry_after=7)
    fleet.publish(*numbered(1, 1))
    first = fleet.relay(takeover_seconds=2.0)
    fleet.until_event(events.ChatHeld)
    other = Fleet(fleet.server, fleet.sandbox)
    second = other.relay(takeover_seconds=2.0)
    other.until_event(events.Bound)
    fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    fleet.until(lambda: any(e.settled == "ack" for e in fleet.of(events.Attempted)))
    assert not other.of(events.Received)
    assert not fleet.of(events.BecameStandby)
    second.stop(5)
    first.stop(5)


def test_a_standby_that_is_stopped_disturbs_nobody(fleet: Fleet) -> None:
    fleet.relay(takeover_seconds=2.0)
    fleet.publish(*numbered(5, 5))
    fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
    for _ in range(3):
        other = Fleet(fleet.server, fleet.sandbox)
        second = other.relay(takeover_seconds=2.0)
        other.until_event(events.Bound)
        second.stop(5)
    fleet.publish(*numbered(5, 5, start=5))
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)
    assert not fleet.of(events.BecameStandby)


def test_holds_and_attempts_go_along(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("flood", chat=100, times=1, retry_after=900)
    fleet.publish(*numbered(4, 2))
    first = fleet.relay(takeover_seconds=2.0)
    fleet.until_event(events.ChatHeld)
    other = Fleet(fleet.server, fleet.sandbox)
    other.relay(takeover_seconds=2.0)
    other.until_event(events.Bound)
    first.stop(10)
    fleet.publish(TelegramOutbound(msg_id="new", chat="102", text="a chat with nothing out"))
    held = other.until_event(events.ChatHeld)
    assert (held.chat, held.seconds > 800) == ("100", True)
    fleet.sandbox.wait(count=1, chat=102, timeout_seconds=PATIENCE_SECONDS)
    assert fleet.texts(100) == []
    other.stop()
