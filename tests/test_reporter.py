"""The figures in the log and the heartbeats: when they come, and what they hold."""

from __future__ import annotations

import dataclasses
import json
import queue
import threading
import time
from typing import Any

import msgspec
import pytest

from telegram_connector import events
from telegram_connector.events import FiguresTold, HeartbeatUnheard
from telegram_connector.reporter import HEARTBEAT_SECONDS, Heartbeat, Reporter
from telegram_connector.status import BotHold, PausedNow, Tally
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered
from tests.test_instruments import NO_RATES, status

IDLE = {"outstanding": 0, "waiting": 0, "in_flight": 0, "awaited": 0, "holds": [], "holds_in_all": 0}


class Desk:
    """A reporter that a test steps, and what it reports."""

    def __init__(self, figures_seconds: float = 60.0) -> None:
        self.now = 0.0
        self.connected = True
        self.backlog: int | None = 0
        self.status = status(**IDLE)
        self.told: list[events.Event] = []
        self.beats: list[dict[str, Any]] = []
        self.reporter = Reporter(
            lambda: self.status,
            lambda: self.backlog,
            self.beat,
            self.told.append,
            figures_seconds,
            lambda: self.now,
            lambda: 1_700_000_000.0 + self.now,
        )

    def beat(self, heartbeat: bytes) -> bool:
        if self.connected:
            self.beats.append(json.loads(heartbeat))
        return self.connected

    def tally(self, sent: int, retried: int = 0, **dropped: int) -> None:
        tally = Tally(sent=sent, retried=retried, dropped=dropped, last_sent_at=None, rates=NO_RATES)
        self.status = msgspec.structs.replace(self.status, tally=tally)

    def at(self, now: float) -> list[events.Event]:
        """Step, and what was told by it."""
        self.now, before = now, len(self.told)
        self.reporter.step()
        return self.told[before:]


# Figures


def test_figures_are_of_the_last_while_and_come_only_with_something_to_say():
    desk = Desk()
    desk.tally(0)
    assert [desk.at(second) for second in (1, 30, 59.9, 60, 61, 120)] == [[]] * 6
    desk.tally(10, 2, refused=1, expired=1)
    assert desk.at(150) == []
    (told,) = desk.at(180)
    assert told == FiguresTold(60.0, 10, 2, 2, 0, 0, 9.5, 0, "active", "")
    desk.tally(15, 2, refused=1, expired=1)
    (told,) = desk.at(245)
    assert isinstance(told, FiguresTold)
    assert (told.seconds, told.sent, told.retried, told.dropped) == (65.0, 5, 0, 0)
    assert desk.at(305) == []


@pytest.mark.parametrize(
    ("changes", "backlog", "says"),
    [
        ({}, 0, False),
        ({}, None, False),
        ({}, 3, True),
        ({"role": "standby"}, 3, False),  # the active one says it
        ({**IDLE, "outstanding": 2}, 0, True),
        ({"bot": BotHold("Unauthorized", True, 1.0, 1.0)}, 0, True),
        ({"pauses": [PausedNow(None, "", None, "", 0)], "pauses_in_all": 1}, 0, True),
        ({"pauses": [PausedNow("5", "", None, "", 0)], "pauses_in_all": 1}, 0, False),
    ],
)
def test_what_there_is_to_say(changes: dict[str, Any], backlog: int | None, says: bool):
    desk = Desk()
    desk.status = status(**{**IDLE, **changes})
    desk.tally(0)
    desk.backlog = backlog
    assert bool(desk.at(60)) == says


def test_figures_off():
    desk = Desk(figures_seconds=0)
    desk.tally(99)
    desk.at(1)
    assert desk.at(9999) == []
    assert len(desk.beats) == 2


def test_why_the_bot_waits_is_told():
    desk = Desk()
    desk.status = status(bot=BotHold("Unauthorized", True, 1.0, 1.0))
    (told,) = desk.at(60)
    assert isinstance(told, FiguresTold)
    assert told.bot == "Unauthorized"
    desk.status = status(pauses=[PausedNow(None, "", None, "", 0)], pauses_in_all=1)
    (told,) = desk.at(120)
    assert isinstance(told, FiguresTold)
    assert told.bot == "paused by an operator"


# Heartbeats


def test_heartbeats_come_regularly_and_at_once_after_a_lost_connection():
    desk = Desk()
    for second in range(35):
        desk.at(float(second))
    assert [beat["at"] for beat in desk.beats] == [
        f"2023-11-14T22:13:{second}.000Z" for second in (20, 30, 40, 50)
    ]
    desk.connected = False
    for second in range(35, 60):
        desk.at(float(second))
    desk.connected = True
    desk.at(60.0)
    assert len(desk.beats) == 5


def test_a_heartbeat_holds_what_a_watcher_needs():
    desk = Desk()
    desk.status = status(bot=BotHold("Unauthorized", True, 1.0, 1.0))
    desk.backlog = None
    desk.at(0)
    assert desk.beats == [
        {
            "v": 1,
            "at": "2023-11-14T22:13:20.000Z",
            "every_seconds": HEARTBEAT_SECONDS,
            "id": "ab",
            "host": "h",
            "pid": 1,
            "version": "1.0",
            "stream": "S",
            "durable": "d",
            "role": "active",
            "sending": True,
            "up_seconds": 1.0,
            "sent": 1,
            "dropped": 3,
            "outstanding": 6,
            "backlog": None,
            "bot": "Unauthorized",
        }
    ]


# Against a real server


@pytest.mark.integration
def test_heartbeats_over_nats_with_the_workers_own_rights(fleet: Fleet) -> None:
    heard: queue.SimpleQueue[bytes] = fleet.server.listen("telegram.heartbeat.>")
    fleet.relay()
    fleet.publish(*numbered(1, 1))
    beat = heard.get(timeout=PATIENCE_SECONDS)
    found = msgspec.json.decode(beat, type=Heartbeat)
    assert (found.stream, found.durable, found.v) == ("TELEGRAM_OUTBOUND", "tg_outbound", 1)
    for secret in (b"text", TOKEN.encode(), fleet.server.worker_seed.encode()):
        assert secret not in beat
    assert not fleet.of(HeartbeatUnheard)


@pytest.mark.integration
def test_without_the_right_it_is_said_once_and_nothing_else_is_the_matter(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telegram_connector.reporter.HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr("telegram_connector.reporter.LOOK_SECONDS", 0.05)
    allowed = '"$JS.API.>", "$JS.ACK.>", "$KV.>", "telegram.dead", "telegram.alerts", "telegram.status.>"'
    heard = 'subscribe: { allow: ["_INBOX.>", "telegram.status.>"] }'
    fleet.server.worker_permissions = f"{{ publish: {{ allow: [ {allowed} ] }}, {heard} }}"
    fleet.server.reload()
    fleet.relay()
    unheard = fleet.until_event(HeartbeatUnheard)
    assert unheard.reason == "NATS permission missing for telegram.heartbeat.tg_outbound"
    fleet.publish(*numbered(20, 2))
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.server.kill()
    fleet.server.start()
    fleet.until_event(events.Connected, 2)
    fleet.publish(*numbered(20, 2, start=20))
    fleet.sandbox.wait(count=40, timeout_seconds=PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while fleet.server.log.count("telegram.heartbeat") < 2:  # before and after the restart
        assert time.monotonic() < deadline, fleet.server.log
        threading.Event().wait(0.05)
    assert len(fleet.of(HeartbeatUnheard)) == 1
    assert "permission" not in fleet.of(events.ConnectionLost)[0].reason


@pytest.mark.integration
def test_a_relay_tells_its_figures(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telegram_connector.reporter.LOOK_SECONDS", 0.02)
    fleet.relay(stats_log_seconds=0.1)
    fleet.publish(*numbered(20, 2))
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.until(lambda: sum(told.sent for told in fleet.of(FiguresTold)) == 20)
    assert {dataclasses.asdict(told)["dropped"] for told in fleet.of(FiguresTold)} == {0}
