"""Pausing and resuming: the document, the lanes, the worker, and the commands against a real server."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from typing import Any

import click
import pytest
from click.testing import CliRunner

from telegram_connector import events, pauses
from telegram_connector.ages import lasting
from telegram_connector.bridge import KeyValue
from telegram_connector.cli import main
from telegram_connector.cli.durations import duration
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.lanes import Item, Lanes
from telegram_connector.operating import Switch
from telegram_connector.pauses import Pause, Pauses
from telegram_connector.pausing import FIRST_SECONDS, READ_EVERY_SECONDS, Pausing
from telegram_connector.topology import STATE_BUCKET
from tests.fakes import make_delivery
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered, worker_env
from tests.process import Process
from tests.test_alerts import read as read_alert
from tests.test_status import operator_env, shown, until_answered
from tests.test_worker import Rig, in_seconds, rig

__all__ = ["rig"]

INFINITY = float("inf")
KEY = "pauses.TELEGRAM_OUTBOUND.tg_outbound"


# The document


def test_the_document_comes_back_as_it_was():
    written = Pauses(Pause(1.5, None, "why"), {"-5": Pause(2.0, 3.0)})
    assert pauses.read(pauses.write(written)) == written
    assert pauses.read(b"{}") == Pauses()


@pytest.mark.parametrize(
    "document",
    [b"", b"null", b"[]", b"no JSON", b'{"bot": 1}', b'{"chats": {"": {"since": 1}}}', b"[" * 9999, b"\xff"],
)
def test_what_is_no_document_is_refused_in_words(document: bytes):
    with pytest.raises(ValueError, match=r"\w"):
        pauses.read(document)


def test_what_is_over_is_left_out_and_what_is_resumed_too():
    known = Pauses(Pause(0.0, 10.0), {"5": Pause(0.0), "6": Pause(0.0, 20.0)})
    assert known.current(10.0) == Pauses(None, {"5": Pause(0.0), "6": Pause(0.0, 20.0)})
    assert known.current(99.0).without("5") == Pauses()
    assert known.without("") == Pauses(None, known.chats)
    assert known.without("7") == known
    assert known.having("5", Pause(1.0)).chats["5"] == Pause(1.0)


def test_only_so_many_chats_are_paused_one_by_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pauses, "MAX_CHATS", 2)
    known = Pauses().having("1", Pause(0.0)).having("2", Pause(0.0))
    assert known.having("2", Pause(1.0)).having("", Pause(1.0)).bot is not None
    with pytest.raises(ValueError, match="pause the bot"):
        known.having("3", Pause(0.0))


@pytest.mark.parametrize(
    ("words", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("365d", 31_536_000)]
)
def test_a_length_of_time(words: str, seconds: float):
    assert duration(words) == seconds


@pytest.mark.parametrize(
    "words", ["", "10", "m", "-1s", "1.5h", "10 m", "1y", "0s", "366d", "10mx", "9" * 400 + "s"]
)
def test_no_length_of_time(words: str):
    with pytest.raises(click.BadParameter, match=r"write 90s|within a second|century"):
        duration(words)


def test_lengths_of_time_in_words():
    assert [lasting(s) for s in (0, 59.6, 61, 3600, 90_061)] == ["0s", "1m", "1m1s", "1h", "1d1h"]


# The lanes


def item(sequence: int, chat: str) -> Item:
    return Item(make_delivery(sequence, payload=b""), chat, TelegramOutbound(msg_id="m", text="t"), INFINITY)


def taken(lanes: Lanes, now: float) -> list[int]:
    found = []
    while (taken := lanes.take(now, 0.0, 0.0)) is not None:
        found.append(taken.sequence)
        lanes.done(taken)
    return found


def test_a_paused_chat_waits_in_order_and_its_neighbour_goes_on():
    lanes = Lanes(100)
    lanes.add(item(1, "a"), 0.0)
    lanes.pause_only({"a": INFINITY})
    for sequence, chat in ((4, "a"), (2, "b"), (3, "a")):
        lanes.add(item(sequence, chat), 1.0)
    assert taken(lanes, 1_000_000.0) == [2]
    assert lanes.held(0.0) == {}
    lanes.pause_only({})
    assert taken(lanes, 1_000_000.0) == [1, 3, 4]


def test_a_chat_that_is_paused_before_its_first_message_waits_too():
    lanes = Lanes(100)
    lanes.pause_only({"a": 50.0})
    assert lanes.wanted(1.0) > 0
    lanes.add(item(1, "a"), 1.0)
    assert taken(lanes, 49.9) == []
    assert lanes.next_due(49.9) == 50.0
    assert taken(lanes, 50.0) == [1]
    lanes.add(item(2, "a"), 51.0)
    assert taken(lanes, 51.0) == [2]


def test_a_hold_outlasts_the_pause_over_it_and_the_pause_the_hold():
    lanes = Lanes(100)
    lanes.add(item(1, "a"), 0.0)
    lanes.hold("a", 30.0)
    lanes.pause_only({"a": INFINITY})
    assert not lanes.hold("a", 20.0)
    assert lanes.hold("a", 40.0)
    assert lanes.held(0.0) == {"a": 40.0}
    lanes.pause_only({})
    assert taken(lanes, 39.9) == []
    lanes.pause_only({"a": 60.0})
    assert taken(lanes, 59.9) == []
    assert taken(lanes, 60.0) == [1]
    assert lanes.released() == ["a"]


def test_given_back_is_what_waits_for_a_pause_at_once():
    lanes = Lanes(100)
    lanes.pause_only({"a": INFINITY})
    lanes.add(item(1, "a"), 0.0)
    free, behind = lanes.drain()
    assert ([i.sequence for i in free], behind) == ([1], [])
    assert lanes.due_in(free[0], 0.0) == 0.0


def test_a_pause_follows_a_group_that_migrates():
    lanes = Lanes(100)
    lanes.pause_only({"old": INFINITY})
    lanes.add(item(2, "new"), 0.0)
    lanes.add(item(1, "old"), 0.0)
    lanes.migrate("old", "new")
    assert taken(lanes, 5.0) == []
    lanes.pause_only({"old": INFINITY})  # as the document still has it
    assert taken(lanes, 5.0) == []
    lanes.pause_only({})
    assert taken(lanes, 5.0) == [1, 2]


def test_pausing_and_resuming_again_and_again_leaves_nothing_behind():
    lanes = Lanes(100)
    for n in range(1000):
        lanes.pause_only({str(n): INFINITY, "x": float(n)})
        lanes.wanted(float(n))
    lanes.pause_only({})
    lanes.wanted(1e9)
    assert (len(lanes._lanes), len(lanes._timed)) == (0, 0)


# Hearing of it


class Heard:
    """A `Pausing` and what it said."""

    def __init__(self) -> None:
        self.lanes = Lanes(100)
        self.said: list[events.Event] = []
        self.pausing = Pausing(self.lanes, self.said.append)

    def adopt(
        self, document: Pauses | bytes | None, now: float = 0.0, wall: float = 1000.0
    ) -> list[events.Event]:
        self.said.clear()
        raw = pauses.write(document) if isinstance(document, Pauses) else document
        self.pausing.adopt(raw, 0, now, wall)
        return list(self.said)


def test_what_changes_is_said_once():
    heard = Heard()
    paused = Pauses(None, {"5": Pause(900.0, 1060.0, "why")})
    assert heard.adopt(paused) == [events.Paused("5", 60.0, "why")]
    assert heard.adopt(paused) == []
    assert heard.adopt(paused.having("", Pause(1000.0))) == [events.Paused("", None, "")]
    assert heard.pausing.bot_until == INFINITY
    assert heard.adopt(Pauses()) == [
        events.Resumed("", 0.0, by_itself=False),
        events.Resumed("5", 100.0, by_itself=False),
    ]
    assert heard.pausing.bot_until == -INFINITY


def test_garbage_is_said_once_and_what_was_known_goes_on():
    heard = Heard()
    heard.adopt(Pauses(Pause(0.0)))
    (said,) = heard.adopt(b'{"bot": "of course"}')
    assert isinstance(said, events.PausesUnreadable)
    assert "Expected `object" in said.reason
    assert "of course" not in said.reason
    assert heard.adopt(b'{"bot": "of course"}') == []
    assert heard.adopt(None) == []
    assert heard.pausing.bot_until == INFINITY
    assert isinstance(heard.adopt(Pauses())[0], events.Resumed)


def test_its_end_is_told_by_the_one_that_sends():
    heard = Heard()
    heard.adopt(Pauses(Pause(1000.0, 1010.0)), now=5.0)
    assert heard.pausing.bot_until == 15.0
    heard.said.clear()
    heard.pausing.attend(1009.9, active=True)
    assert heard.said == []
    heard.pausing.attend(1010.0, active=True)
    heard.pausing.attend(1011.0, active=True)
    assert heard.said == [events.Resumed("", 10.0, by_itself=True, alert=True)]
    assert heard.pausing.pauses == Pauses()


def test_what_was_over_when_it_was_read_is_no_news():
    assert Heard().adopt(Pauses(Pause(1.0, 2.0))) == []


def test_it_is_read_now_and_then_and_when_asked_for():
    pausing = Heard().pausing
    number = pausing.due(0.0, at_once=False)
    assert number is not None  # at first
    pausing.adopt(b"{}", number, 0.0, 0.0)
    assert pausing.due(READ_EVERY_SECONDS - 0.1, at_once=False) is None
    assert pausing.due(0.1, at_once=True) is not None
    assert pausing.due(READ_EVERY_SECONDS, at_once=False) is not None
    asked = pausing.ask()
    before = pausing.due(0.1, at_once=False)
    assert before is not None
    later = pausing.ask()  # while it is being read: that reading may have come too early
    pausing.adopt(b"{}", before, 0.1, 0.0)
    assert (pausing.heard(asked), pausing.heard(later)) == (True, False)
    assert pausing.due(0.2, at_once=False) is not None


# The worker


def set_pauses(rig: Rig, document: Pauses) -> None:
    rig.store.documents["pauses"] = pauses.write(document)
    assert rig.worker.read_pauses(PATIENCE_SECONDS)


def wall(rig: Rig, ahead: float = 0.0) -> float:
    return time.time() + rig.clock.ahead + ahead


def test_a_paused_chat_keeps_its_leases_and_goes_on_in_order(rig: Rig) -> None:
    set_pauses(rig, Pauses(None, {"7": Pause(wall(rig))}))
    rig.source.put(make_delivery(1, "one"), make_delivery(2, "two"), make_delivery(3, "other", "8"))
    rig.until_sent("other")
    rig.source.put(make_delivery(4, "three", leased_until=rig.clock() + 38.0))
    rig.until(("extend", 4))
    set_pauses(rig, Pauses())
    rig.until_sent("other", "one", "two", "three")
    assert [type(e) for e in rig.of(events.Paused) + rig.of(events.Resumed)] == [
        events.Paused,
        events.Resumed,
    ]


def test_a_paused_bot_sends_nothing_not_even_alerts_and_asks_nothing(rig: Rig) -> None:
    rig.api.script["bad"] = [Terminal(403, "Forbidden: blocked")]
    set_pauses(rig, Pauses(Pause(wall(rig))))
    rig.source.put(
        make_delivery(1, "hello"),
        make_delivery(
            2, "old", envelope=TelegramOutbound(msg_id="m2", chat="8", text="old", expires_at=in_seconds(-1))
        ),
    )
    rig.until(("term", 2, "expired"))  # expiry goes on, and begets an alert
    rig.source.wait_until(lambda: bool(rig.source.announced))
    assert (rig.api.tried, rig.api.knocks, rig.worker.may_send) == ([], 0, False)
    set_pauses(rig, Pauses())
    rig.source.wait_until(lambda: len(rig.api.sent) == 2)
    texts = {text.partition(" ")[0] for _, text in rig.api.sent}
    assert texts == {"hello", "dropped"}


def test_a_pause_for_some_time_ends_by_itself(rig: Rig) -> None:
    set_pauses(rig, Pauses(Pause(wall(rig), wall(rig, 600.0)), {"8": Pause(wall(rig), wall(rig, 1200.0))}))
    rig.source.put(make_delivery(1, "one"), make_delivery(2, "other", "8"))
    rig.source.wait_until(lambda: rig.worker.work().waiting == 2)
    assert rig.worker.work().pauses_in_all == 2
    rig.advance(601)
    rig.until_sent("one")
    rig.advance(600)
    rig.until_sent("one", "other")
    rig.source.wait_until(lambda: [e["type"] for e in rig.source.announced] == ["resumed", "resumed"])
    assert [e["chat"] for e in rig.source.announced] == [None, "8"]
    assert not any("resumed" in text or "pause" in text for _, text in rig.api.sent)


def test_what_is_paused_is_known_before_the_first_send() -> None:
    rig = Rig()
    rig.store.documents["pauses"] = pauses.write(Pauses(None, {"7": Pause(0.0, None, "since long")}))
    rig.source.put(make_delivery(1, "no"), make_delivery(2, "yes", "8"))
    rig.worker.start()
    rig.until_sent("yes")
    rig.worker.stop(rig.clock() + 10)
    assert ("nak", 1, 0.0) in rig.source.told
    assert rig.of(events.Paused) == [events.Paused("7", None, "since long")]


def test_the_first_send_waits_until_what_is_paused_could_be_read() -> None:
    rig = Rig()
    rig.store.fails = True
    rig.store.documents["pauses"] = pauses.write(Pauses(None, {"7": Pause(0.0, None, "since long")}))
    rig.source.put(make_delivery(1, "no"), make_delivery(2, "yes", "8"))
    rig.worker.start()
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 2)
    assert rig.worker.read_pauses(PATIENCE_SECONDS)  # in vain
    assert not rig.worker.may_send
    rig.store.fails = False
    assert rig.worker.read_pauses(PATIENCE_SECONDS)
    rig.until_sent("yes")
    rig.worker.stop(rig.clock() + 10)
    assert [text for _, text in rig.api.sent] == ["yes"]
    assert rig.of(events.PausesUnreadable) == []


def test_a_store_that_never_answers_does_not_silence_the_bot() -> None:
    rig = Rig()
    rig.store.fails = True
    rig.source.sendable = False
    rig.worker.start()
    rig.source.put(make_delivery(1, "yes"))
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 1)
    rig.advance(FIRST_SECONDS + 1)  # that count from when it might send
    rig.source.allow(True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while rig.worker._pausing.bot_until == INFINITY:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    rig.advance(FIRST_SECONDS)
    rig.until_sent("yes")
    rig.worker.stop(rig.clock() + 10)
    assert rig.of(events.PausesUnreadable) == [events.PausesUnreadable("no answer within 10 s")]


def test_a_stop_ends_the_wait_for_a_reading() -> None:
    rig = Rig()
    rig.worker.start()
    rig.worker.stop(rig.clock() + 10)
    assert not rig.worker.read_pauses(PATIENCE_SECONDS * 100)


def test_it_is_read_anew_before_the_first_send_however_lately_it_was_read() -> None:
    rig = Rig()
    rig.source.sendable = False
    rig.worker.start()
    set_pauses(rig, Pauses())  # from now on it is not due for long
    rig.store.documents["pauses"] = pauses.write(Pauses(None, {"7": Pause(0.0)}))
    rig.source.put(make_delivery(1, "no"), make_delivery(2, "yes", "8"))
    rig.source.allow(True)
    rig.until_sent("yes")
    rig.worker.stop(rig.clock() + 10)
    assert rig.of(events.Paused) == [events.Paused("7", None, "")]


# The commands


def command(fleet: Fleet, *arguments: str, seed: str = "") -> str:
    result = CliRunner().invoke(main, arguments, env=operator_env(fleet, seed))
    assert result.exit_code == 0, result.output
    return result.output


def stored(fleet: Fleet) -> Pauses:
    with fleet.server.client(fleet.server.operator_seed) as client:
        settings = fleet.server.settings()
        entry = KeyValue(client, STATE_BUCKET).get(pauses.key(settings.stream, settings.durable))
        return pauses.read(entry.value if entry else b"")


@pytest.mark.integration
def test_a_paused_chat_waits_while_others_go_on_and_then_in_order(fleet: Fleet) -> None:
    heard = fleet.server.listen("telegram.alerts")
    fleet.relay()
    until_answered(fleet, 1)
    said = command(fleet, "pause", "--chat", "100", "--reason", "too  noisy")
    assert said.startswith("chat 100 is paused until resumed; heard by 1 connector, ")
    assert fleet.of(events.Paused) == [events.Paused("100", None, "too noisy")]
    fleet.publish(*numbered(30, 3))
    for chat in (101, 102):
        fleet.sandbox.wait(count=10, chat=chat, timeout_seconds=PATIENCE_SECONDS)
    found = shown(fleet)
    assert [(p["chat"], p["reason"]) for p in found["pauses"]] == [("100", "too noisy")]
    (listed,) = found["connectors"][0]["work"]["pauses"]
    assert (listed["chat"], listed["waiting"], found["outstanding"]["count"]) == ("100", 10, 10)
    assert fleet.texts(100) == []
    assert command(fleet, "resume", "--chat", "100").startswith(
        "resumed: chat 100; heard by 1 connector, 1 active"
    )
    fleet.sandbox.wait(count=10, chat=100, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert fleet.texts(100) == [e.text for e in numbered(30, 3) if e.chat == "100"]
    alerts = [json.loads(heard.get(timeout=PATIENCE_SECONDS)) for _ in range(2)]
    assert [(a["type"], a["chat"]) for a in alerts] == [("paused", "100"), ("resumed", "100")]
    assert alerts[0]["reason"] == "too noisy"
    for alert in alerts:
        read_alert(events_alert(alert))
    with pytest.raises(queue.Empty):
        heard.get_nowait()  # by command: told by the command alone


def events_alert(event: dict[str, Any]) -> Any:
    from telegram_connector.alerts import Alert

    return Alert(event["text"], json.dumps(event).encode(), False)


@pytest.mark.integration
def test_a_paused_bot_survives_kill_9_and_is_heeded_by_the_next_connector(fleet: Fleet) -> None:
    with Process("run", env=worker_env(fleet, TG_STANDBY_TAKEOVER_SECS="1", TG_ACK_WAIT_SECS="4")) as worker:
        fleet.publish(*numbered(2, 2))
        fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
        until_answered(fleet, 1)
        assert "heard by 1 connector, 1 active" in command(fleet, "pause", "--reason", "maintenance")
        worker.until("the bot PAUSED by an operator until resumed: maintenance")
        fleet.publish(*numbered(10, 2, start=2))
        worker.signal(signal.SIGKILL)
        worker.wait()
    with Process(
        "run", env=worker_env(fleet, TG_STANDBY_TAKEOVER_SECS="1", TG_ACK_WAIT_SECS="4", LOG_LEVEL="DEBUG")
    ) as worker:
        worker.until("the bot PAUSED by an operator until resumed: maintenance")
        worker.until('"received"')
        until_answered(fleet, 1)
        assert (
            "THE BOT by an operator until resumed: maintenance"
            in CliRunner().invoke(main, ["status"], env=operator_env(fleet)).output
        )
        assert fleet.sandbox.count() == 2
        assert "resumed: the bot; heard by 1 connector" in command(fleet, "resume")
        fleet.sandbox.wait(count=12, timeout_seconds=PATIENCE_SECONDS)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    for chat in (100, 101):
        assert fleet.texts(chat) == [e.text for e in numbered(12, 2) if e.chat == str(chat)]


@pytest.mark.integration
def test_pausing_with_no_connector_is_read_at_the_start(fleet: Fleet) -> None:
    said = command(fleet, "pause", "--chat", "100", seed=fleet.server.worker_seed)
    assert "no connector has heard of it yet" in said
    fleet.publish(*numbered(10, 2))
    fleet.relay()
    fleet.sandbox.wait(count=5, chat=101, timeout_seconds=PATIENCE_SECONDS)
    assert "still paused: chat 100" in command(fleet, "resume")
    assert "resumed: chat 100" in command(fleet, "resume", "--all")
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)
    assert fleet.texts(100) == [e.text for e in numbered(10, 2) if e.chat == "100"]
    assert command(fleet, "resume") == "the bot was not paused\n"
    assert command(fleet, "resume", "--all") == "nothing was paused\n"


@pytest.mark.integration
def test_a_pause_for_a_time_ends_without_anybody(fleet: Fleet) -> None:
    fleet.relay()
    until_answered(fleet, 1)
    assert "is paused for 3s; heard by 1 connector" in command(fleet, "pause", "--chat", "100", "--for", "3s")
    fleet.publish(*numbered(4, 2))
    fleet.sandbox.wait(count=4, timeout_seconds=PATIENCE_SECONDS)
    ended = fleet.until_event(events.Resumed)
    assert (ended.chat, ended.by_itself, ended.alert) == ("100", True, True)
    assert ended.seconds >= 3
    until = stored(fleet).chats["100"].until
    assert until is not None
    assert all(m.date >= int(until) for m in fleet.sandbox.messages(chat=100))
    assert fleet.texts(100) == ["text 0", "text 2"]
    assert shown(fleet)["pauses"] == []


@pytest.mark.integration
def test_what_is_paused_stays_so_over_a_takeover(fleet: Fleet) -> None:
    first = fleet.relay()
    fleet.publish(*numbered(4, 2))
    fleet.sandbox.wait(count=4, timeout_seconds=PATIENCE_SECONDS)
    fleet.relay()
    until_answered(fleet, 2)
    assert "heard by 2 connectors, 1 active" in command(fleet, "pause", "--chat", "100")
    fleet.publish(*numbered(20, 2, start=4))
    fleet.sandbox.wait(count=12, chat=101, timeout_seconds=PATIENCE_SECONDS)
    first.stop(20)
    fleet.publish(*numbered(4, 2, start=24))
    fleet.sandbox.wait(count=14, chat=101, timeout_seconds=PATIENCE_SECONDS)
    assert len(fleet.texts(100)) == 2
    command(fleet, "resume", "--chat", "100")
    fleet.sandbox.wait(count=28, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    for chat in (100, 101):
        assert fleet.texts(chat) == [e.text for e in numbered(28, 2) if e.chat == str(chat)]


@pytest.mark.integration
def test_garbage_in_the_state_is_said_and_ignored_and_the_next_command_replaces_it(fleet: Fleet) -> None:
    with fleet.server.client() as client:
        client.publish(f"$KV.telegram_state.{KEY}", b'{"bot": {"since": "secret words"}}')
    fleet.relay()
    fleet.publish(*numbered(4, 2))
    fleet.sandbox.wait(count=4, timeout_seconds=PATIENCE_SECONDS)
    said = fleet.until_event(events.PausesUnreadable)
    assert "secret words" not in said.reason
    (unknown,) = shown(fleet)["unknown"]
    assert unknown.startswith("pauses: the document in bucket telegram_state cannot be read: ")
    result = CliRunner().invoke(main, ["pause", "--chat", "100"], env=operator_env(fleet))
    assert result.exit_code == 0
    assert "could not be read and was replaced" in result.output
    assert list(stored(fleet).chats) == ["100"]
    assert fleet.until_event(events.Paused).chat == "100"
    assert len(fleet.of(events.PausesUnreadable)) == 1


@pytest.mark.integration
def test_operators_at_once_undo_nothing_of_each_other(fleet: Fleet) -> None:
    failures: list[BaseException] = []

    def pause(chat: str) -> None:
        try:
            with fleet.server.client(fleet.server.operator_seed) as client:
                Switch(client, fleet.server.settings(), 0.1).pause(chat, 600.0, "")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pause, args=(str(200 + n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failures == []
    assert sorted(stored(fleet).chats) == [str(200 + n) for n in range(6)]


@pytest.mark.integration
def test_old_permissions_hear_of_a_pause_a_little_later(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telegram_connector.pausing.READ_EVERY_SECONDS", 0.5)
    fleet.server.worker_permissions = """{ publish: { allow: [
        "$JS.API.>", "$JS.ACK.>", "$KV.>", "telegram.dead", "telegram.alerts" ] },
      subscribe: { allow: ["_INBOX.tg_outbound.>"] } }"""
    fleet.server.reload()
    fleet.relay()
    fleet.until_event(events.StatusUnanswered)
    assert "no connector has heard of it yet" in command(fleet, "pause", "--chat", "100")
    assert fleet.until_event(events.Paused).chat == "100"


@pytest.mark.integration
def test_what_was_paused_unheard_is_read_on_the_next_connection(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telegram_connector.pausing.READ_EVERY_SECONDS", 1000.0)
    monkeypatch.setattr("telegram_connector.pausing.READ_AGAIN_SECONDS", 1000.0)
    fleet.relay()
    until_answered(fleet, 1)
    with fleet.server.client(fleet.server.operator_seed) as client:
        Switch(client, fleet.server.settings(), 0.1)._write(lambda known: known.having("5", Pause(0.0)))
    assert not fleet.of(events.Paused)
    fleet.server.kill()
    fleet.until_event(events.ConnectionLost)
    fleet.server.start()
    assert fleet.until_event(events.Paused).chat == "5"


@pytest.mark.integration
def test_refusals_name_what_is_wrong(fleet: Fleet) -> None:
    env = operator_env(fleet)
    for arguments, code, words in (
        (["pause", "--chat", "nobody"], 2, "must be a chat id"),
        (["pause", "--for", "soon"], 2, "write 90s"),
        (["pause", "--reason", "x" * 201], 2, "at most 200"),
        (["resume", "--chat", "1", "--all"], 2, "either"),
    ):
        result = CliRunner().invoke(main, arguments, env=env)
        assert (result.exit_code, words in result.output) == (code, True), result.output
    with fleet.server.client() as client:
        client.api("STREAM.DELETE.KV_telegram_state")
    result = CliRunner().invoke(main, ["pause"], env=env)
    assert result.exit_code == 1
    assert "bucket telegram_state does not exist" in result.output
    assert "provision" in result.output
    result = CliRunner().invoke(main, ["pause"], env=operator_env(fleet, fleet.server.publisher_seed))
    assert result.exit_code == 1
    assert "permissions violation" in result.output.lower()
