"""Each event's level and attributes, the size of a line, storms, and colour for people."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import pty
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.cli import logs
from telegram_connector.cli.logs import MAX_LINE_BYTES, JsonLines, Repeats, Scrubber, TextLines
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Deferred,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.events import Attempted, Event, Subject
from telegram_connector.telemetry import GATHER_SECONDS, MOST_STORMS, EventLog, describe

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
SUBJECT = Subject("m1", "7", "alert", 5)
OF_MESSAGE = {"nats_msg_id", "chat", "kind", "stream_seq"}
OF_ATTEMPT = OF_MESSAGE | {"attempt", "duration_ms"}
REFUSED = OF_ATTEMPT | {"status_code", "error_msg", "retry_after", "settled"}
BUG = ValueError("a bug")


def attempted(disposition: Any, seq: int = 5) -> Attempted:
    subject = dataclasses.replace(SUBJECT, stream_seq=seq, nats_msg_id=f"m{seq}")
    return Attempted(subject, disposition, 1, 12.345, "nak", 30.0, True)


# The seeds: ERROR terminal drops, WARNING 429 and 5xx, INFO transitions, DEBUG per message.
TABLE: list[tuple[Event, int, set[str]]] = [
    (attempted(Sent(9)), DEBUG, OF_ATTEMPT | {"status_code", "message_id"}),
    (attempted(Transient(429, "Too Many Requests", 7.0)), WARNING, REFUSED),
    (attempted(Transient(502, "Bad Gateway")), WARNING, REFUSED),
    (attempted(Unavailable("refused")), WARNING, REFUSED),
    (attempted(Ambiguous("no answer in time")), WARNING, REFUSED),
    (attempted(BotFault(401, "Unauthorized")), WARNING, REFUSED),
    (attempted(Terminal(403, "blocked")), ERROR, OF_ATTEMPT | {"status_code", "error_msg"}),
    (attempted(Migrated("-100")), INFO, OF_ATTEMPT | {"error_msg"}),
    (attempted(Concluded("sent")), INFO, OF_ATTEMPT | {"settled"}),
    (attempted(Deferred("ledger away")), DEBUG, OF_ATTEMPT | {"error_msg", "retry_after", "settled"}),
    (events.Received(SUBJECT, 1), DEBUG, OF_MESSAGE | {"hand_over"}),
    (events.Dormant(("NATS_URL",)), WARNING, set()),
    (events.Started("https://api.telegram.org", True, ("h",), "d"), INFO, {"servers", "durable", "api"}),
    (events.Started("http://127.0.0.1:1", False, ("h",), "d"), WARNING, {"servers", "durable", "api"}),
    (events.Stopping("SIGTERM"), INFO, set()),
    (events.Stopped(1.0, 3), INFO, {"given_back", "duration_ms"}),
    (events.Connected("h:4222", "2.11.0"), INFO, set()),
    (events.ConnectionLost("closed"), WARNING, set()),
    (events.ConnectFailed("no server answers", "NATS_URL", False), WARNING, {"error_msg"}),
    (events.ConnectFailed("bad credentials", "NATS_CREDS", True), ERROR, {"error_msg"}),
    (events.Bound("S", "d", False, 1, 2, None), INFO, {"pending", "outstanding"}),
    (events.Bound("S", "d", True, 1, 2, None), WARNING, {"pending", "outstanding"}),
    (events.BindFailed("no stream", "TG_STREAM", True), ERROR, {"error_msg"}),
    (events.BindFailed("no leader", "NATS_URL", False), WARNING, {"error_msg"}),
    (events.ConsumerDiffers(("ack_wait",), None), WARNING, set()),
    (events.ConsumerDiffers(("max_deliver",), 5), ERROR, set()),
    (events.ConsumerUpdated(("ack_wait",)), INFO, set()),
    (events.ConsumerGone("deleted"), WARNING, set()),
    (events.BecameActive(0), INFO, {"awaited"}),
    (events.BecameStandby(2), INFO, {"given_back"}),
    (events.StandbyUnsupported("2.10.0"), INFO, set()),
    (events.StateUnavailable("no bucket"), WARNING, {"error_msg"}),
    (events.LedgerUnavailable("no bucket", True), WARNING, {"error_msg"}),
    (events.LedgerBack(3), INFO, {"unrecorded"}),
    (events.TopicIgnored(SUBJECT, 4, None), WARNING, OF_MESSAGE | {"message_thread_id"}),
    (events.SentPlain(SUBJECT, "can't parse", 3), WARNING, OF_MESSAGE | {"error_msg", "plain_count"}),
    (events.Delayed(SUBJECT, 5.0), INFO, OF_MESSAGE),
    (events.MsgIdDiffers(SUBJECT, "other"), WARNING, OF_MESSAGE | {"header_msg_id"}),
    (events.AttemptCrashed(SUBJECT, BUG), ERROR, OF_MESSAGE),
    (events.AlreadySent(SUBJECT), INFO, OF_MESSAGE),
    (events.ChatHeld("7", 3.0, "Too Many Requests"), INFO, {"chat", "retry_after"}),
    (events.ChatReleased("7"), INFO, {"chat"}),
    (events.BotHeld("no route", 1.0, False), WARNING, {"error_msg", "retry_after"}),
    (events.BotHeld("Unauthorized", 1.0, True), ERROR, {"error_msg", "retry_after"}),
    (events.BotReleased("no route", 9.0), INFO, set()),
    (events.Paused("7", 60.0, "maintenance"), WARNING, {"chat"}),
    (events.Resumed("7", 60.0, False), INFO, {"chat"}),
    (events.PausesUnreadable("not JSON"), WARNING, {"error_msg"}),
    (events.StatusUnanswered("NATS permission missing"), WARNING, {"error_msg"}),
    (events.ChatMigrated("-1", "-100"), WARNING, {"chat", "new_chat"}),
    (events.LeaseLapsed(2, 5), WARNING, {"stream_seq"}),
    (events.NotComingBack(5, "7", "settled"), INFO, {"stream_seq", "chat"}),
    (events.NotComingBack(5, "7", "no longer in the stream"), WARNING, {"stream_seq", "chat"}),
    (events.Saturated(8, 10, ("7",)), WARNING, set()),
    (events.BacklogOld(80.0, 100.0), WARNING, set()),
    (events.RemovedUnseen(1, 9), ERROR, {"stream_seq"}),
    (events.DeadStreamMissing("TELEGRAM_DEAD"), WARNING, set()),
    (events.DeadLetterDelayed(5, "no leader"), WARNING, {"stream_seq", "error_msg"}),
    (events.AlertFailed("blocked"), WARNING, {"error_msg"}),
    (events.MetricsUnserved("in use"), ERROR, {"error_msg"}),
    (events.HeartbeatUnheard("NATS permission missing"), WARNING, {"error_msg"}),
    (events.DoubtsUncounted("NATS permission missing"), WARNING, {"error_msg"}),
    (
        events.FiguresTold(60.0, 1, 2, 3, 4, 5, 6.0, 7, "active", ""),
        INFO,
        {"sent", "retried", "dropped", "outstanding", "backlog", "oldest_seconds", "held"},
    ),
    (events.ThreadDied("reader", BUG), logging.CRITICAL, set()),
]


def one_id(value: Any) -> str | None:
    return type(value).__name__ if dataclasses.is_dataclass(value) else None


def test_every_event_and_every_disposition_is_in_the_table():
    assert {type(event) for event, _, _ in TABLE} == set(typing.get_args(Event))
    tried = {type(event.disposition) for event, _, _ in TABLE if isinstance(event, Attempted)}
    assert tried == {
        *(Sent, Transient, Unavailable, Ambiguous, Terminal, Migrated, BotFault, Concluded, Deferred)
    }


@pytest.mark.parametrize(("event", "level", "attributes"), TABLE, ids=one_id)
def test_level_and_attributes(event: Event, level: int, attributes: set[str]):
    found, words, extra = describe(event)
    assert (found, set(extra)) == (level, attributes)
    assert words
    assert "\n" not in words
    # None of them is one of logging's own, which would raise.
    assert not set(extra) & set(vars(logging.makeLogRecord({})))
    json.dumps(extra)


def test_a_seeds_attributes_have_the_values_of_the_answer():
    _, _, extra = describe(attempted(Transient(429, "Too Many Requests", 7.0)))
    assert extra == {
        "nats_msg_id": "m5",
        "chat": "7",
        "kind": "alert",
        "stream_seq": 5,
        "attempt": 1,
        "duration_ms": 12.3,
        "status_code": 429,
        "retry_after": 7.0,
        "error_msg": "Too Many Requests",
        "settled": "nak",
    }


def test_what_publishers_choose_is_short():
    """Also for who takes records elsewhere than to a line that is cut."""
    _, _, extra = describe(events.Received(Subject("m" * 9000, "7", "k" * 9000, 5), 1))
    assert (extra["nats_msg_id"], extra["kind"]) == ("m" * 200, "k" * 200)


# Storms


class Desk:
    """An event log, its clock, and the lines it has written."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = EventLog(lambda: self.now)
        self.handler = logging.Handler()
        self.lines: list[logging.LogRecord] = []
        self.handler.emit = self.lines.append  # type: ignore[method-assign]

    def told(self) -> list[tuple[str, int]]:
        """Words and count of each line since the last call."""
        told = [(r.getMessage(), getattr(r, "repeated", 0)) for r in self.lines]
        self.lines.clear()
        return told


@pytest.fixture
def desk() -> Iterator[Desk]:
    logger = logging.getLogger("telegram_connector")
    desk = Desk()
    level = logger.level
    logger.addHandler(desk.handler)
    logger.setLevel(logging.INFO)
    yield desk
    logger.removeHandler(desk.handler)
    logger.setLevel(level)


def test_a_storm_of_one_fault_is_one_line_and_then_its_count(desk: Desk):
    for n in range(1000):
        desk.now = n / 100
        # Every chat has a wait of its own; it is one fault for all that.
        desk.log(attempted(Transient(429, f"Too Many Requests: retry after {n}", n), n))
    assert desk.told() == [("refused for now: Too Many Requests: retry after 0", 0)]
    desk.now = GATHER_SECONDS
    desk.log(attempted(Transient(429, "Too Many Requests: retry after 3", 3.0), 1000))
    words = "999 more like this within 60 s: refused for now: Too Many Requests: retry after 999"
    assert desk.told() == [(words, 999)]
    desk.now = 2 * GATHER_SECONDS
    desk.log(attempted(Sent(1)))  # not said itself, and yet the moment to tell of the last one
    words = "1 more like this within 60 s: refused for now: Too Many Requests: retry after 3"
    assert desk.told() == [(words, 1)]
    desk.now = 4 * GATHER_SECONDS
    desk.log(attempted(Transient(429, "Too Many Requests: retry after 5", 5.0)))
    assert desk.told() == [("refused for now: Too Many Requests: retry after 5", 0)]


def test_another_fault_is_said_at_once(desk: Desk):
    for _ in range(3):
        desk.log(attempted(Transient(502, "Bad Gateway")))
        desk.log(attempted(Transient(503, "Service Unavailable")))
        desk.log(attempted(Unavailable("no route")))
    assert [words for words, _ in desk.told()] == [
        "refused for now: Bad Gateway",
        "refused for now: Service Unavailable",
        "not sent: no route",
    ]


@pytest.mark.parametrize("end", [events.Stopped(1.0, 0), events.BotReleased("no route", 9.0)], ids=one_id)
def test_what_was_counted_is_told_when_it_is_over(desk: Desk, end: Event):
    for _ in range(5):
        desk.log(attempted(Unavailable("no route")))
    desk.now = 9.0
    desk.log(end)
    (_, first), (counted, more), (_, last) = desk.told()
    assert (first, counted, more, last) == (0, "4 more like this within 9 s: not sent: no route", 4, 0)
    desk.log(attempted(Unavailable("no route")))
    assert desk.told() == [("not sent: no route", 0)]


def test_every_drop_is_said_since_each_is_another_message(desk: Desk):
    for n in range(50):
        desk.log(attempted(Terminal(403, "blocked"), n))
    assert len(desk.told()) == 50


@pytest.mark.parametrize(
    "event",
    [
        events.AttemptCrashed(SUBJECT, BUG),
        events.BotHeld("Unauthorized", 2.0, True),
        events.NotComingBack(5, "7", "no longer in the stream"),
        events.MsgIdDiffers(SUBJECT, "other"),
        events.TopicIgnored(SUBJECT, 4, None),
        events.SentPlain(SUBJECT, "can't parse", 3),
        events.Delayed(SUBJECT, 5.0),
        events.LeaseLapsed(2, 5),
        events.AlreadySent(SUBJECT),
        attempted(Concluded("sent")),
        events.ChatHeld("7", 59.0, "Too Many Requests: retry after 59"),
        events.ChatReleased("7"),
    ],
    ids=one_id,
)
def test_what_may_come_with_every_message_is_gathered_too(desk: Desk, event: Event):
    for _ in range(10):
        desk.log(event)
    assert len(desk.told()) == 1


def test_transitions_are_said_each_time(desk: Desk):
    for _ in range(3):
        desk.log(events.ConnectionLost("closed"))
        desk.log(events.Connected("h", "2.11"))
    assert len(desk.told()) == 6


def test_holds_are_gathered_whichever_chats_they_are_of_and_long_ones_said(desk: Desk):
    for n in range(100):
        desk.log(events.ChatHeld(str(n), 1.0 + n / 10, f"Too Many Requests: retry after {n}"))
        desk.log(events.ChatReleased(str(n)))
    assert len(desk.told()) == 2
    for n in (1, 2):
        desk.log(events.ChatHeld(str(n), 3600.0, "Too Many Requests: retry after 3600"))
    assert len(desk.told()) == 2


def test_at_debug_nothing_is_left_out(desk: Desk):
    logging.getLogger("telegram_connector").setLevel(logging.DEBUG)
    for _ in range(3):
        desk.log(attempted(Transient(502, "Bad Gateway")))
    assert [record.levelno for record in desk.lines] == [WARNING, DEBUG, DEBUG]


def test_a_thousand_different_faults_take_no_more_than_their_room(desk: Desk):
    for n in range(1000):
        name = f"{n:b}".replace("0", "a").replace("1", "b")
        for _ in range(2):
            desk.log(attempted(Transient(400, f"fault {name}")))
    assert len(desk.log._storms) == MOST_STORMS
    counts = [count for _, count in desk.told()]
    assert (counts.count(0), counts.count(1)) == (1000, 1000 - MOST_STORMS)


def test_an_exporters_complaints_come_once_a_minute_with_their_count():
    now = [0.0]
    repeats = Repeats(lambda: now[0])

    def said(name: str, line: int) -> logging.LogRecord | None:
        record = logging.LogRecord(name, ERROR, "/f.py", line, "no collector", None, None)
        return record if repeats.filter(record) else None

    exporter = "opentelemetry.exporter.otlp"
    assert [bool(said(exporter, 1)) for _ in range(4)] == [True, False, False, False]
    assert said(exporter, 2)
    now[0] = logs.REPEAT_SECONDS
    again = said(exporter, 1)
    assert again is not None
    assert again.repeated == 3  # type: ignore[attr-defined]
    assert all(said("telegram_connector", 1) for _ in range(4))


# Lines


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("telegram_connector", ERROR, "f", 1, message, None, None)
    vars(made).update(extra)
    return made


@pytest.mark.parametrize(
    "made",
    [
        record("x" * 100_000),
        record("é😀" * 9000, error_msg="y" * 9000),
        record("words", servers=["s" * 50] * 500),
        record("words", facts={"a": ["b" * 9000]}),
        record("words", **{f"attribute_{n}": "v" for n in range(2000)}),
        record("words", **{f"attribute_{n}": "v" * 90 for n in range(200)}),
        record("words", exc_text="Traceback\n" + "line\n" * 5000 + "ValueError: at last"),
    ],
)
def test_a_line_is_at_most_8_kb_whatever_is_in_it(made: logging.LogRecord):
    line = JsonLines(Scrubber([])).format(made)
    assert len(line.encode()) <= MAX_LINE_BYTES <= 8192
    found = json.loads(line)
    assert (found["level"], found["logger"]) == ("ERROR", "telegram_connector")
    assert found["message"]
    assert "\n" not in line
    text = TextLines(Scrubber([])).format(made)
    assert len(text.encode()) <= MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("form", "expected"), [("json", '"kind": "naïve ☃ \\udc80"'), ("text", r"kind=na\xefve \u2603 \udc80")]
)
def test_no_line_is_lost_to_the_encoding_of_stdout(form: str, expected: str):
    """As with a locale of old, and for what no encoding has."""
    script = r"""
import logging, sys
from telegram_connector.cli import logs
logs.set_up("INFO", sys.argv[1], [])
logging.getLogger("telegram_connector").info("words", extra={"kind": "na\u00efve \u2603 \udc80"})
"""
    done = subprocess.run(
        [sys.executable, "-c", script, form],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    (line,) = done.stdout.decode().splitlines()
    assert expected in line
    if form == "json":
        assert json.loads(line)["kind"] == "naïve ☃ \udc80"


def test_what_is_cut_keeps_its_end():
    trace = "Traceback\n" + "line\n" * 5000 + "ValueError: at last"
    found = json.loads(JsonLines(Scrubber([])).format(record("words", exc_text=trace)))
    assert found["exc_info"].startswith("Traceback")
    assert found["exc_info"].endswith("ValueError: at last")


@pytest.mark.parametrize("lines", [JsonLines, TextLines])
def test_no_half_of_a_secret_is_left_where_a_line_is_cut(lines: type[JsonLines] | type[TextLines]):
    secret = "123456:" + "Ab-_" * 9
    for before in range(3900, 4100):
        line = lines(Scrubber([secret])).format(record("x" * before + secret + "y" * 9000))
        assert "123456:" not in line
        assert "Ab-_Ab" not in line


# For people


@pytest.mark.parametrize(
    ("level", "begins"),
    [(DEBUG, "\x1b[2m"), (INFO, "12"), (WARNING, "\x1b[33m"), (ERROR, "\x1b[31m"), (50, "\x1b[1;31m")],
)
def test_levels_have_colours(level: int, begins: str, monkeypatch: pytest.MonkeyPatch):
    made = logging.LogRecord("x", level, "f", 1, "words", None, None)
    monkeypatch.setattr(TextLines, "formatTime", lambda *_args: "12:00:00")
    line = TextLines(Scrubber([]), colour=True).format(made)
    assert line.startswith(begins)
    assert line.endswith("words\x1b[0m" if level != INFO else "words")
    assert "\x1b" not in TextLines(Scrubber([])).format(made)


@pytest.mark.parametrize("name", ["nats_msg_id", "kind"])
def test_what_publishers_choose_neither_forges_a_line_nor_commands_the_terminal(name: str):
    hostile = "m\n12:00:00 ERROR    forged\r\x1b[2J\x1b]0;title\x07\u2028\u202eé"
    line = TextLines(Scrubber([])).format(record("words", **{name: hostile}))
    assert line.isprintable()
    assert line.endswith(rf"words  {name}=m\n12:00:00 ERROR    forged\r\x1b[2J\x1b]0;title\x07\u2028\u202eé")


def test_a_traceback_follows_the_line_that_it_belongs_to():
    made = record("words", nats_msg_id="m1", exc_text="Traceback\nValueError: at last")
    head, *rest = TextLines(Scrubber([])).format(made).splitlines()
    assert head.endswith("words  nats_msg_id=m1")
    assert rest == ["Traceback", "ValueError: at last"]


def test_colour_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not logs._in_colour(io.StringIO())
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal:
        assert logs._in_colour(terminal)
        monkeypatch.setenv("TERM", "dumb")
        assert not logs._in_colour(terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")
        assert not logs._in_colour(terminal)
