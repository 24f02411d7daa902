"""``TG_PARSE_FALLBACK=plain``: what Telegram cannot parse is sent once more, as its plain text."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from telegram_connector import events
from telegram_connector.attempt import Attempt, Surroundings, attempt
from telegram_connector.classify import classify, is_unparsable
from telegram_connector.delivery import Delivery, DeliveryId
from telegram_connector.disposition import Ambiguous, Deferred, Disposition, Sent, Terminal, Transient, Tried
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.ledger import Entry, NullLedger, Opened, Outgoing
from telegram_connector.record import AMBIGUOUS, SENT, TERMINAL
from telegram_connector.telemetry import log_event
from tests.fleet import Fleet
from tests.test_ledger_commands import Desk, until

CATALOGUE = json.loads((Path(__file__).parent / "data" / "telegram_errors.json").read_text())
REFUSED = Terminal(
    400, "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"b\""
)
BROKEN = TelegramOutbound(
    msg_id="m1", text="<b>Filled</b>: BUY <b>0.45", parse_mode="HTML", disable_notification=True
)
PLAIN = TelegramOutbound(msg_id="m1", text="Filled: BUY 0.45", disable_notification=True)


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row["id"])
def test_only_refusals_of_markup_are_unparsable(row: dict[str, object]) -> None:
    body = json.dumps(
        {"ok": False, **{name: row[name] for name in ("error_code", "description", "parameters")}}
    )
    answer = classify(int(str(row["http_status"] or 500)), {}, body.encode())
    unparsable = isinstance(answer, Terminal) and is_unparsable(answer)
    assert unparsable == str(row["id"]).startswith("parse_"), row["description"]


class Book(NullLedger):
    """A ledger that notes what is begun and what came of it."""

    def __init__(self, opened: Sequence[Opened] = ()) -> None:
        self._opened = list(opened)
        self.notes: list[object] = []

    def open(self, outgoing: Outgoing, reply_to: int | None) -> Opened:
        self.notes.append(("begun", outgoing.envelope.text))
        return self._opened.pop(0) if self._opened else super().open(outgoing, reply_to)

    def close(self, entry: Entry, outgoing: Outgoing, disposition: Tried) -> None:
        self.notes.append(disposition)


class Api:
    """A Bot API that answers from a script."""

    def __init__(self, *answers: Disposition) -> None:
        self._answers = list(answers)
        self.sent: list[TelegramOutbound] = []

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Disposition:
        self.sent.append(envelope)
        return self._answers.pop(0)

    def get_me(self, deadline: float, *, number: int | None = None) -> Disposition:
        return Sent(None)

    def abort(self, number: int | None = None) -> bool:
        raise AssertionError("nobody asked for that")

    def close(self) -> None:
        raise AssertionError("nobody asked for that")


def tried(
    api: Api, envelope: TelegramOutbound = BROKEN, book: Book | None = None, on: bool = True
) -> Attempt:
    around = Surroundings(99.0, lambda _seconds: False, lambda: False, falls_back=on)
    outgoing = Outgoing(Delivery(DeliveryId("S", 1, 1), b"", {}, "", 1, 99.0), envelope, "7")
    return attempt(outgoing, api, book or Book(), around, 5)


def test_it_is_sent_once_more_as_plain_text_and_that_is_an_attempt_of_its_own() -> None:
    api, book = Api(REFUSED, Sent(9)), Book()
    assert tried(api, book=book) == Attempt(Sent(9), plain_after=REFUSED.description)
    assert api.sent == [BROKEN, PLAIN]
    begun = ("begun", BROKEN.text)
    assert book.notes == [begun, Transient(400, REFUSED.description), begun, Sent(9)]


def test_off_it_is_dropped() -> None:
    api, book = Api(REFUSED), Book()
    assert tried(api, book=book, on=False) == Attempt(REFUSED)
    assert book.notes == [("begun", BROKEN.text), REFUSED]


@pytest.mark.parametrize(
    "answer",
    [
        Terminal(400, "Bad Request: message is too long"),
        Terminal(400, "Bad Request: unsupported parse_mode"),
        Terminal(400, "Bad Request: chat not found, can't parse entities"),
        Terminal(403, REFUSED.description),
        Transient(429, REFUSED.description, 3.0),
        Ambiguous(REFUSED.description),
    ],
)
def test_never_for_anything_else(answer: Disposition) -> None:
    api = Api(answer)
    assert tried(api).disposition == answer
    assert api.sent == [BROKEN]


@pytest.mark.parametrize(
    "envelope",
    [
        TelegramOutbound(msg_id="m1", text="<b>x"),  # it had no markup: whatever that answer was about
        TelegramOutbound(msg_id="m1", text="<b> <i>", parse_mode="HTML"),  # nothing is left to say
    ],
)
def test_not_where_there_is_no_plain_text(envelope: TelegramOutbound) -> None:
    assert tried(Api(REFUSED), envelope) == Attempt(REFUSED)


def test_refused_as_plain_text_too_it_is_dropped_with_both_reasons() -> None:
    api = Api(REFUSED, Terminal(400, "Bad Request: message is too long"))
    said = f"{REFUSED.description}; as plain text: Bad Request: message is too long"
    assert tried(api).disposition == Terminal(400, said)
    assert len(api.sent) == 2


@pytest.mark.parametrize("second", [Transient(429, "slow down", 3.0), Ambiguous("no answer in time")])
def test_what_the_second_send_comes_to_is_what_counts(second: Disposition) -> None:
    assert tried(Api(REFUSED, second)).disposition == second


def test_where_the_second_send_cannot_be_recorded_it_is_not_begun() -> None:
    api, away = Api(REFUSED), Deferred("the ledger cannot be used")
    assert tried(api, book=Book([Entry(), away])) == Attempt(away)
    assert api.sent == [BROKEN]


# With a relay, a ledger and a Bot API


def messages() -> list[TelegramOutbound]:
    return [
        TelegramOutbound(msg_id="html", chat="7", text="<b>a<br>b &lt; c", parse_mode="HTML"),
        TelegramOutbound(msg_id="v2", chat="7", text="*v1.2* is out", parse_mode="MarkdownV2"),
        TelegramOutbound(msg_id="well", chat="7", text="<b>well</b>", parse_mode="HTML"),
        TelegramOutbound(msg_id="long", chat="7", text="x" * 4097, parse_mode="HTML"),
    ]


@pytest.mark.integration
def test_with_a_relay_it_is_counted_logged_and_on_record(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.publish(*messages())
    fleet.relay(ledger="kv", parse_fallback="plain")
    desk = Desk(fleet.server)
    until(lambda: sorted(item["status"] for item in desk.listed()) == [TERMINAL, SENT, SENT, SENT])
    assert [(m.raw_text, m.params.get("parse_mode")) for m in fleet.sandbox.messages(chat=7)] == [
        ("a\nb < c", None),
        ("v1.2 is out", None),
        ("<b>well</b>", "HTML"),
    ]
    said = fleet.of(events.SentPlain)
    assert [(event.subject.nats_msg_id, event.count) for event in said] == [("html", 1), ("v2", 2)]
    with caplog.at_level(logging.WARNING):
        log_event(said[1])
    (line,) = caplog.messages
    assert line.startswith(
        "sent as plain text (2 so far), since its markup was refused: Bad Request: can't parse"
    )
    assert {item["msg_id"]: item["attempts"] for item in desk.listed()} == {
        "html": 2, "v2": 2, "well": 1, "long": 1,
    }  # fmt: skip


@pytest.mark.integration
def test_parked_the_lost_answer_of_the_second_send_is_in_doubt(fleet: Fleet) -> None:
    fleet.sandbox.set_fault({"reset": "after_accept", "method": "sendMessage"}, text="v1.2 is out", times=1)
    fleet.publish(messages()[1])
    fleet.relay(ledger="kv", on_ambiguous="park", parse_fallback="plain")
    desk = Desk(fleet.server)
    until(lambda: [item["status"] for item in desk.listed()] == [AMBIGUOUS])
    (record,) = desk.listed()
    assert record["attempts"] == 2
    assert fleet.texts(7) == ["v1.2 is out"]
    assert fleet.of(events.SentPlain) == []


@pytest.mark.integration
def test_it_is_off_by_default(fleet: Fleet) -> None:
    fleet.publish(messages()[0])
    fleet.relay()
    fleet.until_event(events.Attempted)
    assert fleet.texts(7) == []
    assert len(fleet.sandbox.requests(method="sendMessage", chat=7)) == 1
