"""What the operator is told, and how often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from telegram_connector import events
from telegram_connector.alerts import Alert, Alerts
from telegram_connector.disposition import Sent, Terminal

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "alerts.schema.json").read_text())


def drop(number: int, chat: str = "5", reason: str = "refused", stored: bool = True) -> events.Attempted:
    subject = events.Subject(f"m{number}", chat, "alert", number)
    terminal = Terminal(403, "Forbidden: bot was blocked by the user", reason)
    return events.Attempted(subject, terminal, 0, 1.0, "term", None, stored)


def read(alert: Alert) -> dict[str, Any]:
    event = json.loads(alert.event)
    assert set(SCHEMA["required"]) <= event.keys() <= SCHEMA["properties"].keys()
    assert event["type"] in SCHEMA["properties"]["type"]["enum"]
    return event


def alerts(tell_chat: bool = True) -> Alerts:
    return Alerts("tg_outbound", tell_chat)


def test_the_first_drop_is_told_at_once_in_the_seeds_words():
    told = alerts()
    told.observe(drop(1))
    (alert,) = told.due(now=0, wall=1_700_000_000)
    assert alert.to_telegram
    assert alert.text.startswith(
        "dropped msg_id=m1 error_code=403 desc=Forbidden: bot was blocked by the user"
    )
    event = read(alert)
    assert (event["v"], event["type"], event["count"]) == (1, "dropped", 1)
    assert event["first"]["stream_seq"] == 1
    assert told.due(now=0, wall=0) == []


def test_a_storm_is_a_handful_of_summaries():
    told = alerts()
    texts = []
    for second in range(60):
        for n in range(167):
            number = second * 167 + n
            told.observe(drop(number, chat=str(number % 30), reason="unreadable" if n % 3 else "refused"))
        texts += [a.text for a in told.due(now=second, wall=0)]
    texts += [a.text for a in told.due(now=61, wall=0)]
    assert len(texts) == 2
    assert "dropped 9853 messages" in texts[1]
    assert "for 30 chats" in texts[1]
    assert "and 20 more" in texts[1]
    assert "unreadable" in texts[1]
    assert len(texts[1]) < 1000


def test_what_is_not_kept_is_said_with_its_sequence():
    told = alerts()
    told.observe(drop(9, stored=False))
    (alert,) = told.due(0, 0)
    assert "NOT STORED as a dead letter, stream sequence 9" in alert.text
    assert read(alert)["not_stored"] == 1


def test_success_and_refusals_for_now_are_no_alert():
    told = alerts()
    told.observe(events.Attempted(events.Subject("m", "5", None, 1), Sent(1), 0, 1.0, "ack", None))
    assert told.due(0, 0) == []


def test_without_meta_alerts_there_are_events_only():
    told = alerts(tell_chat=False)
    told.observe(drop(1))
    (alert,) = told.due(0, 0)
    assert not alert.to_telegram
    assert read(alert)["count"] == 1


def test_a_refused_bot_is_told_to_nats_once_and_its_return_too():
    told = alerts()
    for wait in (1.0, 2.0):
        told.observe(events.BotHeld("Unauthorized", wait, fault=True))
    told.observe(events.BotReleased("Unauthorized", 12.0))
    told.observe(events.BotReleased("flood", 1.0))
    due = told.due(0, 0)
    assert [read(a)["type"] for a in due] == ["bot_paused", "bot_resumed"]
    assert not any(a.to_telegram for a in due)


def test_every_notice_follows_the_schema_and_is_said_once():
    told = alerts()
    for _ in range(2):
        told.observe(events.Saturated(8000, 10000, ("5", "6")))
        told.observe(events.BacklogOld(70000, 86400))
        told.observe(events.RemovedUnseen(11, 20))
        told.observe(events.ChatMigrated("-5", "-1005"))
    due = told.due(0, 0)
    assert [read(a)["type"] for a in due] == ["saturated", "backlog_old", "removed_unseen", "chat_migrated"]
    assert "up to 10 messages were removed" in due[2].text
