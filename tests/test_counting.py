"""Messages in doubt, counted by the connector for its gauge and by `status`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.bridge import DeadLetters, NatsClient
from telegram_connector.bridge.census import NEWEST, Census
from telegram_connector.bridge.counting import AT_ONCE
from telegram_connector.bridge.deadletters import UNMARKED
from telegram_connector.deadletter import REASON
from telegram_connector.overview import Observatory
from telegram_connector.topology import dead_stream
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered
from tests.nats_server import NatsServer, free_port
from tests.test_page import scraped

pytestmark = pytest.mark.integration

GAUGE = ("telegram_connector_in_doubt_messages",)
MSG_GET = "$JS.API.STREAM.MSG.GET.TELEGRAM_DEAD"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telegram_connector.bridge.counting.COUNT_SECONDS", 0.05)
    monkeypatch.setattr("telegram_connector.bridge.counting.LOOK_SECONDS", 0.02)


def bury(server: NatsServer, *reasons: str) -> None:
    """Dead letters, one for each reason."""
    with server.client() as client:
        for reason in reasons:
            client.publish("telegram.dead", b"{}", {REASON: reason})


def put_aside(server: NatsServer, sequence: int) -> None:
    """What resolving a message does about its dead letter."""
    with server.client(server.operator_seed) as client:
        letters = DeadLetters(client, server.settings(), "me", lambda: "2024-01-01T00:00:00Z")
        letter = letters.letter(sequence)
        assert letter is not None
        assert letters.discard(letter, UNMARKED, "seen there")


def shown(server: NatsServer) -> int | None:
    """What `status` says."""
    with server.client(server.operator_seed) as client:
        return Observatory(client, server.settings(), 0.01).look().ambiguous


def until(condition: Callable[[], Any]) -> None:
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.05)


def counted(client: NatsClient, census: Census) -> tuple[dict[str, int], int]:
    """By reason, and how many are in doubt."""
    info = client.api("STREAM.INFO.TELEGRAM_DEAD")
    return dict(client.over(lambda link: census.reasons(link, info))), client.over(census.in_doubt)


# The gauge


def test_the_gauge_says_what_status_says_and_nothing_while_it_cannot_know(fleet: Fleet) -> None:
    ports = [free_port(), free_port()]
    for port in ports:  # who stands by counts, too: an alert must not end with a hand-over
        fleet.relay(metrics_port=port)

    def gauges() -> list[float | None]:
        return [scraped(port).get(GAUGE) for port in ports]

    until(lambda: gauges() == [0, 0])
    bury(fleet.server, "ambiguous", "refused", "ambiguous", "ambiguous")
    until(lambda: gauges() == [3, 3])
    assert shown(fleet.server) == 3
    put_aside(fleet.server, 3)
    until(lambda: gauges() == [2, 2])
    assert shown(fleet.server) == 2
    fleet.server.kill()
    until(lambda: gauges() == [None, None])
    fleet.server.start()
    until(lambda: gauges() == [2, 2])
    assert not fleet.of(events.DoubtsUncounted)


def test_without_the_right_it_is_said_once_asked_once_and_nothing_else_is_the_matter(fleet: Fleet) -> None:
    bury(fleet.server, *["ambiguous"] * 20)
    fleet.server.worker_permissions = f'{{ publish: {{ deny: ["{MSG_GET}"] }} }}'
    fleet.server.reload()
    port = free_port()
    fleet.relay(metrics_port=port)
    assert fleet.until_event(events.DoubtsUncounted).reason == f"NATS permission missing for {MSG_GET}"
    fleet.publish(*numbered(20, 2))
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.server.kill()
    fleet.server.start()
    fleet.until_event(events.Connected, 2)
    until(lambda: fleet.server.log.count(MSG_GET) == 2 * AT_ONCE)  # once over each connection
    fleet.publish(*numbered(20, 2, start=20))
    fleet.sandbox.wait(count=40, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert fleet.server.log.count(MSG_GET) == 2 * AT_ONCE
    assert len(fleet.of(events.DoubtsUncounted)) == 1
    assert GAUGE not in scraped(port)


def test_a_bug_over_the_figure_costs_the_figure_alone(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*_args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Census, "reasons", boom)
    port = free_port()
    relay = fleet.relay(metrics_port=port)
    assert fleet.until_event(events.DoubtsUncounted).reason == "internal error: ZeroDivisionError"
    fleet.publish(*numbered(5, 1))
    fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
    assert relay.running
    assert GAUGE not in scraped(port)
    assert len(fleet.of(events.DoubtsUncounted)) == 1


def test_without_a_stream_of_dead_letters_there_is_no_figure_and_no_word(fleet: Fleet) -> None:
    with fleet.server.client() as client:
        client.api("STREAM.DELETE.TELEGRAM_DEAD")
    port = free_port()
    fleet.relay(metrics_port=port)
    fleet.until_event(events.DeadStreamMissing)
    assert GAUGE not in scraped(port)
    with fleet.server.client() as client:
        client.api("STREAM.CREATE.TELEGRAM_DEAD", dead_stream(fleet.server.settings()))
    until(lambda: scraped(port).get(GAUGE) == 0)
    assert not fleet.of(events.DoubtsUncounted)


# The census


def test_each_letter_is_read_once_and_each_mark_until_it_settles(nats_server: NatsServer) -> None:
    bury(nats_server, "ambiguous", "ambiguous", "refused")
    census = Census("TELEGRAM_DEAD", 2)
    with nats_server.client(nats_server.worker_seed) as client:
        assert client._link is not None
        asked: list[str] = []
        api_each = client._link.api_each

        async def noting(subject: str, bodies: Any) -> Any:
            asked.extend([subject.rsplit(".", 1)[-1]] * len(bodies))
            return await api_each(subject, bodies)

        client._link.api_each = noting  # type: ignore[method-assign]
        assert counted(client, census) == ({"ambiguous": 2, "refused": 1}, 2)
        assert asked == ["TELEGRAM_DEAD"] * 3 + ["KV_telegram_state"] * 2
        put_aside(nats_server, 1)
        assert counted(client, census)[1] == 1
        bury(nats_server, "ambiguous")
        asked.clear()
        assert counted(client, census) == ({"ambiguous": 3, "refused": 1}, 2)
        assert asked == ["TELEGRAM_DEAD", *["KV_telegram_state"] * 2]


def test_a_stream_that_is_made_anew_or_purged_is_read_anew(nats_server: NatsServer) -> None:
    bury(nats_server, "ambiguous", "refused", "refused")
    put_aside(nats_server, 1)
    census = Census("TELEGRAM_DEAD", 64)
    with nats_server.client() as client:
        assert counted(client, census) == ({"ambiguous": 1, "refused": 2}, 0)
        client.api("STREAM.MSG.DELETE.TELEGRAM_DEAD", {"seq": 2})
        assert counted(client, census) == ({"ambiguous": 1, "refused": 1}, 0)
        client.api("STREAM.DELETE.TELEGRAM_DEAD")
        client.api("STREAM.CREATE.TELEGRAM_DEAD", dead_stream(nats_server.settings()))
        assert counted(client, census) == ({}, 0)
        bury(nats_server, "ambiguous", "expired", "expired")
        # The mark of the first letter is that of another one.
        assert counted(client, census) == ({"ambiguous": 1, "expired": 2}, 1)
        client.api("STREAM.DELETE.KV_telegram_state")
        assert counted(client, census)[1] == 1


def test_the_newest_are_counted(nats_server: NatsServer) -> None:
    bury(nats_server, "ambiguous", *["refused"] * NEWEST)
    with nats_server.client() as client:
        assert counted(client, Census("TELEGRAM_DEAD", 64)) == ({"refused": NEWEST}, 0)
