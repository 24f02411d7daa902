"""One nats-server that fails in every way it can, under a relay that lives on.

What `tests/test_integration.py` shows already is not repeated here.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from nats.aio.client import Client

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound
from tests.faults.conftest import FIRST_CHAT, PATIENCE_SECONDS, FaultFleet
from tests.faults.proxy import Connection, Proxy
from tests.test_bridge import forbid, make_stream_anew

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SEND_SECONDS = 0.01
HELD_CHAT = str(FIRST_CHAT + 3)
NS = 1_000_000_000
# What the server hands to a connection that is dead without its knowing comes back after ack_wait.
VOID_ACK_WAIT_SECONDS = 15.0


def warm(fleet: FaultFleet, **changes: Any) -> None:
    """A relay that has sent something, and waits for more."""
    fleet.relay(**changes)
    fleet.load(5)
    fleet.arrived(5)
    fleet.assert_nothing_left()


def busy(fleet: FaultFleet, count: int = 60, after: int = 15, **changes: Any) -> None:
    """A relay in the middle of a burst, with a chat held and its messages in hand."""
    fleet.pace(SEND_SECONDS)
    fleet.sandbox.set_fault("flood", chat=int(HELD_CHAT), times=1, retry_after=2)
    fleet.relay(**changes)
    fleet.load(count)
    fleet.arrived(after)


def restart(fleet: FaultFleet) -> float:
    """Start the server again; returns when it was up."""
    fleet.server.start()
    return time.monotonic()


# Killed


def test_killed_while_idle(fleet: FaultFleet) -> None:
    warm(fleet)
    fleet.server.kill()
    fleet.until_event(events.ConnectionLost)
    fleet.resumed(restart(fleet), "server up again")
    fleet.assert_all_once_in_order()


def test_killed_during_a_pull(fleet: FaultFleet) -> None:
    fleet.pace(SEND_SECONDS)
    fleet.load(60)
    fleet.at_next(events.Received, lambda: fleet.server.signal(signal.SIGKILL))
    fleet.relay()
    fleet.until_event(events.ConnectionLost)
    fleet.server.kill()
    up = restart(fleet)
    fleet.resumed(up, "server up again")
    fleet.backlog_done(up)
    fleet.assert_all_once_in_order()


def test_killed_right_after_confirmed_acks(fleet: FaultFleet) -> None:
    busy(fleet, 90)
    for count in (20, 40, 60):
        fleet.arrived(count)
        fleet.server.kill()
        up = restart(fleet)
    fleet.resumed(up, "server up again")
    fleet.backlog_done(up)
    fleet.assert_all_once_in_order()


def test_killed_with_settlements_waiting(fleet: FaultFleet) -> None:
    busy(fleet)
    fleet.server.signal(signal.SIGSTOP)
    attempted = len(fleet.of(events.Attempted))
    fleet.until_event(events.Attempted, attempted + 1)  # nobody confirms its ack
    fleet.server.kill()
    up = restart(fleet)
    fleet.resumed(up, "server up again")
    fleet.backlog_done(up)
    fleet.assert_all_once_in_order()


# Frozen, and sent away


def test_frozen_for_moments(fleet: FaultFleet) -> None:
    busy(fleet)
    for _ in range(3):
        fleet.server.signal(signal.SIGSTOP)
        attempted = len(fleet.of(events.Attempted))
        fleet.until_event(events.Attempted, attempted + 1)
        fleet.server.signal(signal.SIGCONT)
        thawed = time.monotonic()
        fleet.until_event(events.Attempted, attempted + 4)
    fleet.resumed(thawed, "SIGCONT")
    fleet.backlog_done(thawed)
    fleet.assert_all_once_in_order()


def test_frozen_until_the_connection_is_given_up(fleet: FaultFleet) -> None:
    busy(fleet, ack_wait_seconds=VOID_ACK_WAIT_SECONDS)
    fleet.server.signal(signal.SIGSTOP)
    fleet.until_event(events.ConnectionLost)
    fleet.server.signal(signal.SIGCONT)
    thawed = time.monotonic()
    fleet.resumed(thawed, "SIGCONT")
    fleet.backlog_done(thawed)
    fleet.assert_all_once_in_order()


def test_lame_duck(fleet: FaultFleet) -> None:
    fleet.server.kill()
    fleet.server.extra += '\nlame_duck_duration: "30s"\nlame_duck_grace_period: "100ms"\n'
    fleet.server.start()
    busy(fleet)
    fleet.server.signal(signal.SIGUSR2)
    assert fleet.server.process is not None
    fleet.server.process.wait(PATIENCE_SECONDS)
    fleet.until_event(events.ConnectionLost)
    up = restart(fleet)
    fleet.resumed(up, "server up again")
    fleet.backlog_done(up)
    fleet.assert_all_once_in_order()


# Things that vanish


def test_durable_deleted_under_load(fleet: FaultFleet) -> None:
    first = fleet.relay()
    fleet.load(20)
    fleet.arrived(20)
    fleet.assert_nothing_left()
    first.stop(10)  # its memory of what was sent goes with it
    busy(fleet, after=35)
    with fleet.server.client() as client:
        client.api("CONSUMER.DELETE.TELEGRAM_OUTBOUND.tg_outbound")
    deleted = time.monotonic()
    fleet.resumed(deleted, "deletion")
    fleet.backlog_done(deleted)
    fleet.assert_all_once_in_order()
    made = [b for b in fleet.of(events.Bound) if b.created]
    assert len(made) == 2
    assert made[-1].start_sequence > 20


def test_stream_made_anew_under_load(fleet: FaultFleet) -> None:
    busy(fleet)
    old = fleet.published
    fleet.published = []
    make_stream_anew(fleet.server)
    made = time.monotonic()
    fleet.load(40)
    fleet.resumed(made, "stream made")
    fleet.sandbox.wait(text="marker 0", timeout_seconds=PATIENCE_SECONDS)
    new = fleet.published
    for chat in {e.chat for e in new}:
        expected = [e.text for e in new if e.chat == chat]
        fleet.sandbox.wait(text=expected[-1], timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    for chat in {e.chat for e in new}:
        expected = [e.text for e in new if e.chat == chat]
        sent = fleet.texts(int(chat))
        before = sent[: -len(expected)]
        assert sent[-len(expected) :] == expected
        # What the old stream took with it is lost by whoever deleted it; the rest was sent once, in order.
        assert before == [e.text for e in old if e.chat == chat and e.text in before]


@pytest.mark.parametrize("update", ["allowed", "forbidden"])
def test_durable_found_with_other_settings(fleet: FaultFleet, update: str) -> None:
    config = {
        "durable_name": "tg_outbound",
        "name": "tg_outbound",
        "ack_policy": "explicit",
        "ack_wait": 5 * NS,
        "max_deliver": 5,
    }
    with fleet.server.client() as client:
        body = {"stream_name": "TELEGRAM_OUTBOUND", "config": config, "action": "create"}
        client.api("CONSUMER.CREATE.TELEGRAM_OUTBOUND.tg_outbound", body)
    if update == "forbidden":
        forbid(fleet.server, "CONSUMER.CREATE")
    # More failures than the found durable has hand-overs.
    fleet.sandbox.set_fault("srv_restart", chat=FIRST_CHAT, times=6)
    started = time.monotonic()
    fleet.relay(max_deliver=8, nak_backoff_seconds=0.02)
    fleet.load(20)
    fleet.resumed(started, "relay started")
    fleet.backlog_done(started)
    fleet.assert_all_once_in_order()
    if update == "allowed":
        assert {d.split(" ")[0] for d in fleet.of(events.ConsumerUpdated)[0].differences} >= {
            "ack_wait",
            "max_deliver",
            "filter_subject",
        }
        assert fleet.server.consumer()["config"]["max_deliver"] == -1
    else:
        assert fleet.of(events.ConsumerDiffers)[0].finite_max_deliver == 5


# Rights


def test_authorization_removed_under_load_and_restored(fleet: FaultFleet) -> None:
    busy(fleet)
    fleet.server.worker_allowed = False
    fleet.server.reload()
    assert fleet.until_event(events.ConnectFailed).operator_fault
    fleet.server.worker_allowed = True
    fleet.server.reload()
    restored = time.monotonic()
    fleet.resumed(restored, "user restored")
    fleet.backlog_done(restored)
    fleet.assert_all_once_in_order()


@pytest.mark.parametrize("right", ["$JS.ACK", "MSG.NEXT", "CONSUMER.INFO"])
def test_right_removed_under_load_and_restored(fleet: FaultFleet, right: str) -> None:
    busy(fleet)
    forbid(fleet.server, right)
    assert fleet.until_event(events.BindFailed).operator_fault
    fleet.server.worker_permissions = "$TELEGRAM_CONNECTOR"
    fleet.server.reload()
    restored = time.monotonic()
    fleet.resumed(restored, "right restored")
    fleet.backlog_done(restored)
    fleet.assert_all_once_in_order()


# The connection


@pytest.mark.parametrize("words", ["Unknown Protocol Operation", "Slow Consumer"])
def test_an_error_that_closes_the_client(fleet: FaultFleet, proxy: Proxy, words: str) -> None:
    warm(fleet)
    proxy.inject(f"-ERR '{words}'\r\n".encode())
    said = time.monotonic()
    fleet.resumed(said, "-ERR")
    fleet.until_event(events.ConnectionLost)
    fleet.assert_all_once_in_order()


def test_connection_reset_under_load(fleet: FaultFleet, proxy: Proxy) -> None:
    busy(fleet)
    for count in (20, 30, 40):
        fleet.arrived(count)
        proxy.cut()
        cut = time.monotonic()
        fleet.until_event(events.Bound, 1 + len(fleet.of(events.ConnectionLost)))
    fleet.resumed(cut, "reset")
    fleet.backlog_done(cut)
    fleet.assert_all_once_in_order()


def test_a_connection_that_hangs_in_closing(fleet: FaultFleet, proxy: Proxy) -> None:
    """Dead letters larger than all buffers are on their way when the other side stops reading."""
    stalled: list[float] = []

    def stall(connection: Connection, data: bytes) -> bool:
        if not stalled and b" telegram.dead " in data:
            stalled.append(time.monotonic())
            connection.stall()
        return True

    proxy.tap = stall
    warm(fleet, meta_alert_on_drop=False)
    # Held for a moment, so that all are in hand when the first is refused for its length.
    fleet.sandbox.set_fault("flood", chat=800, times=1, retry_after=2)
    fleet.publish(*(TelegramOutbound(msg_id=f"big{n}", chat="800", text="x" * 1_000_000) for n in range(16)))
    large = fleet.published[-16:]
    del fleet.published[-16:]
    fleet.until(lambda: stalled)
    fleet.resumed(stalled[0], "reading stopped")
    fleet.until_event(events.ConnectionLost)
    fleet.assert_all_once_in_order()
    with fleet.server.client() as client:
        assert client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"] == len(large)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """Every nats-py client that connects."""
    seen: list[Client] = []
    connect = Client.connect

    async def noting(self: Client, *args: Any, **kwargs: Any) -> None:
        seen.append(self)
        await connect(self, *args, **kwargs)

    monkeypatch.setattr(Client, "connect", noting)
    return seen


def test_a_wedged_read_loop(fleet: FaultFleet, clients: list[Client]) -> None:
    warm(fleet, ack_wait_seconds=VOID_ACK_WAIT_SECONDS)
    (client,) = (c for c in clients if str(c.options["name"]).startswith("telegram_connector"))
    reading = client._reading_task
    reading.get_loop().call_soon_threadsafe(reading.cancel)
    wedged = time.monotonic()
    fleet.load(20)
    fleet.resumed(wedged, "read loop ended")
    fleet.backlog_done(wedged)
    fleet.assert_all_once_in_order()


@pytest.mark.parametrize("count", [3, 20], ids=["less than a pull", "more than a pull"])
def test_a_black_hole_both_ways(fleet: FaultFleet, proxy: Proxy, count: int) -> None:
    """Neither side hears of it: the server goes on serving the old connection's pull for a while."""
    warm(fleet, ack_wait_seconds=VOID_ACK_WAIT_SECONDS)
    proxy.silence()
    silent = time.monotonic()
    fleet.load(count)
    fleet.resumed(silent, "silence")
    fleet.backlog_done(silent)
    fleet.assert_all_once_in_order()


def test_everything_comes_300_ms_late(fleet: FaultFleet, proxy: Proxy) -> None:
    proxy.delay_seconds = 0.3
    fleet.relay()
    fleet.until_event(events.Bound)
    published = time.monotonic()
    fleet.load(10)
    fleet.resumed(published, "publishing")
    fleet.backlog_done(published)
    assert not fleet.of(events.ConnectionLost)
    fleet.assert_all_once_in_order()


@pytest.mark.parametrize("ack", ["heard", "lost"])
def test_connection_cut_between_an_ack_and_its_answer(fleet: FaultFleet, proxy: Proxy, ack: str) -> None:
    cuts: list[float] = []

    def cut(connection: Connection, data: bytes) -> bool:
        if b"+ACK" not in data or len(cuts) >= 3:
            return True
        cuts.append(time.monotonic())
        if ack == "heard":
            connection.cut_at_answer = True
            return True
        connection.cut()
        return False

    proxy.tap = cut
    busy(fleet)
    fleet.until(lambda: len(cuts) == 3)
    fleet.resumed(cuts[-1], "cut")
    fleet.backlog_done(cuts[-1])
    fleet.until_event(events.ConnectionLost, 3)
    fleet.assert_all_once_in_order()
