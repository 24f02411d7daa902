"""The ledger on key-value buckets: what may begin, what is recorded, and what happens when that fails."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any

import msgspec
import pytest

from telegram_connector import events
from telegram_connector import ledger as ledger_module
from telegram_connector.attempt import Surroundings, attempt
from telegram_connector.disposition import (
    Ambiguous,
    Concluded,
    Deferred,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Tried,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import Unanswered
from telegram_connector.ledger import (
    AVOID_SECONDS,
    UNCONFIRMED,
    Entry,
    KvLedger,
    NullLedger,
    Opened,
    Outgoing,
)
from telegram_connector.links import NOT_AVAILABLE, by_message, by_msg_id, decode, wait
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    INTERRUPTED,
    PENDING,
    RATE_LIMITED,
    RETRYABLE,
    SENT,
    TERMINAL,
    Record,
    encode,
    key_of,
    timestamp,
)
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET
from tests.fake_records import DISCONNECTED, DONE, LATE, LOST, REFUSED, SILENT, UNHEARD, FakeRecords
from tests.fakes import PATIENCE_SECONDS, make_delivery

BOT = "123"
SLOW_DOWN = Transient(429, "Too Many Requests: retry after 5", 5.0)
NO_ANSWER = Ambiguous("no answer in time")


def outgoing(sequence: int = 1, hand_over: int = 1, **fields: Any) -> Outgoing:
    envelope = TelegramOutbound(**{"msg_id": "m1", "chat": "7", "text": "hello", **fields})
    delivery = make_delivery(sequence, envelope=envelope, hand_over=hand_over)
    return Outgoing(delivery, envelope, envelope.chat or "1")


class Desk:
    """A ledger, its buckets, and what it said."""

    def __init__(self, parks: bool = True, records: FakeRecords | None = None) -> None:
        self.records = records or FakeRecords()
        self.events: list[events.Event] = []
        self.now = 1000.0
        self.ledger = KvLedger(
            self.records,
            BOT,
            parks=parks,
            observe=self.events.append,
            clock=lambda: self.now,
            wall=lambda: 1_700_000_000.0 + self.now,
        )

    def another(self, parks: bool = True) -> Desk:
        """Another process on the same buckets, or the same one started again."""
        desk = Desk(parks, self.records)
        desk.now = self.now
        return desk

    def open(self, message: Outgoing | None = None, *fates: str) -> Opened:
        self.records.script += fates
        opened = self.ledger.open(message or outgoing(), None)
        assert not self.records.script
        self.now += 1
        return opened

    def entry(self, message: Outgoing | None = None, *fates: str) -> Entry:
        opened = self.open(message, *fates)
        assert isinstance(opened, Entry), opened
        return opened

    def close(self, entry: Entry, disposition: Tried, *fates: str, message: Outgoing | None = None) -> None:
        self.records.script += fates
        self.ledger.close(entry, message or outgoing(), disposition)
        assert not self.records.script
        self.now += 1

    def send(self, disposition: Tried, message: Outgoing | None = None) -> None:
        """One delivery without a fault."""
        message = message or outgoing()
        self.close(self.entry(message), disposition, message=message)

    def pay(self) -> None:
        """Write all that is owed."""
        while self.ledger.owes:
            assert self.ledger.pay()

    def status(self) -> str:
        return self.records.record().status

    def operator_says(self, status: str, **changes: Any) -> None:
        record = self.records.record().to(status, "then", resolved_at="then", nonce="operator", **changes)
        self.records.put(LEDGER_BUCKET, record.key, encode(record))

    def said(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


# What is written


def test_the_record_is_there_before_the_send_and_says_how_it_ended(desk: Desk) -> None:
    message = outgoing(message_thread_id=9, route_id="r", from_member="alice")
    entry = desk.ledger.open(message, 55)
    record = desk.records.record()
    assert entry == Entry(record, 1, True)
    assert (record.status, record.attempts, record.stream_seq, record.reply_to) == (IN_FLIGHT, 1, 1, 55)
    assert (record.message_thread_id, record.route_id, record.from_member) == (9, "r", "alice")
    assert record.key == key_of(BOT, message.envelope)
    assert isinstance(entry, Entry)
    desk.close(entry, Sent(42, 9, -100), message=message)
    record = desk.records.record()
    assert (record.status, record.message_id, record.sent_at) == (SENT, 42, timestamp(1_700_001_000.0))
    assert not desk.ledger.owes


def test_a_first_hand_over_costs_one_write_before_and_one_after(desk: Desk) -> None:
    desk.close(desk.entry(), SLOW_DOWN)
    assert [(a.is_write, a.revision) for a in desk.records.asked] == [(True, 0), (True, 1)]


def test_a_redelivery_is_looked_up_first(desk: Desk) -> None:
    desk.entry(outgoing(hand_over=2))
    assert [a.is_write for a in desk.records.asked] == [False, True]


def test_the_publisher_s_decision_is_on_record(desk: Desk) -> None:
    message = outgoing()
    envelope = msgspec.structs.replace(message.envelope, visibility_decision_id="d-7")
    desk.ledger.open(Outgoing(message.delivery, envelope, "7"), None)
    assert desk.records.record().visibility_decision_id == "d-7"


@pytest.mark.parametrize(
    ("disposition", "status"),
    [
        (SLOW_DOWN, RATE_LIMITED),
        (NO_ANSWER, AMBIGUOUS),
        (Terminal(403, "Forbidden"), TERMINAL),
        (Unavailable("no connection"), RETRYABLE),
        (Migrated("-100"), PENDING),
    ],
)
def test_each_end_has_its_state(desk: Desk, disposition: Tried, status: str) -> None:
    desk.send(disposition)
    assert desk.status() == status
    assert desk.records.keys(LINKS_BUCKET) == []


# What may begin


@pytest.mark.parametrize("parks", [True, False])
@pytest.mark.parametrize("hand_over", [1, 2])
def test_what_was_sent_is_never_sent_again(parks: bool, hand_over: int) -> None:
    desk = Desk(parks)
    desk.send(Sent(42))
    assert desk.open(outgoing(2, hand_over)) == Concluded(SENT)
    assert desk.another(parks).open(outgoing(3, hand_over)) == Concluded(SENT)


def test_the_same_key_with_another_text_is_a_conflict(desk: Desk) -> None:
    desk.send(Sent(42))
    opened = desk.open(outgoing(2, text="another"))
    assert isinstance(opened, Terminal)
    assert opened.reason == "conflict"


def test_what_is_in_flight_at_a_restart_is_in_doubt(desk: Desk) -> None:
    desk.entry()
    assert desk.another().open(outgoing(hand_over=2)) == Ambiguous(INTERRUPTED, parked=True)
    assert desk.status() == AMBIGUOUS


def test_a_lost_answer_is_parked_for_good(desk: Desk) -> None:
    desk.send(NO_ANSWER)
    for again in (desk, desk.another()):
        assert again.open(outgoing(hand_over=2)) == Ambiguous("no answer in time", parked=True)


def test_under_retry_it_is_sent_again_and_counted() -> None:
    desk = Desk(parks=False)
    desk.send(NO_ANSWER)
    assert not desk.entry(outgoing(hand_over=2)).parks
    assert (desk.status(), desk.records.record().attempts) == (IN_FLIGHT, 2)


@pytest.mark.parametrize(("wish", "setting"), [("park", False), ("retry", True)])
def test_an_envelope_may_say_so_itself(wish: str, setting: bool) -> None:
    entry = Desk(parks=setting).entry(outgoing(on_ambiguous=wish))
    assert entry.parks == (wish == "park")


def test_what_an_operator_cancelled_is_not_sent(desk: Desk) -> None:
    desk.send(NO_ANSWER)
    desk.operator_says(CANCELLED)
    assert desk.open(outgoing(2)) == Concluded(CANCELLED)


def test_what_an_operator_sends_again_is_sent_once(desk: Desk) -> None:
    desk.send(NO_ANSWER)
    desk.operator_says(PENDING, resolution="send-again")
    desk.send(Sent(43), outgoing(2))
    assert desk.open(outgoing(3)) == Concluded(SENT)
    assert desk.records.record().resolution == "send-again"


def test_a_forgotten_record_is_as_good_as_none(desk: Desk) -> None:
    desk.send(Sent(42))
    desk.records.put(LEDGER_BUCKET, desk.records.record().key, b"")
    desk.entry(outgoing(2))
    assert (desk.status(), desk.records.record().attempts) == (IN_FLIGHT, 1)


# A link proves that it was sent


def test_a_process_that_ended_after_the_link_was_stored_has_sent_it(desk: Desk) -> None:
    entry = desk.entry()
    desk.records.script += [DONE, DONE, LOST, LOST]  # the links; the record, and the look at it
    desk.ledger.close(entry, outgoing(), Sent(42))
    restarted = desk.another()
    assert restarted.open(outgoing(hand_over=2)) == Concluded(SENT)
    restarted.pay()
    assert (desk.status(), desk.records.record().message_id) == (SENT, 42)
    assert restarted.ledger._known == {}


def test_the_link_of_an_earlier_send_proves_nothing(desk: Desk) -> None:
    desk.send(Sent(42))
    desk.now += 10
    desk.records.put(LEDGER_BUCKET, desk.records.record().key, b"")  # forgotten by hand
    desk.entry(outgoing(2))
    assert desk.another().open(outgoing(2, 2)) == Ambiguous(INTERRUPTED, parked=True)


def test_the_link_of_the_same_msg_id_in_another_topic_proves_nothing(desk: Desk) -> None:
    here, there = outgoing(1, message_thread_id=5), outgoing(2, message_thread_id=6)
    desk.entry(here)
    restarted = desk.another()
    restarted.send(Sent(42), there)
    again = restarted.open(outgoing(1, 2, message_thread_id=5))
    assert again == Ambiguous(INTERRUPTED, parked=True), "never sent, and taken for sent"


# The ledger cannot be written before a send


@pytest.mark.parametrize(
    "fates", [(DISCONNECTED,), (REFUSED,), (LOST, LOST), (LOST, DISCONNECTED), (LOST, DONE), (UNHEARD, LOST)]
)
def test_under_park_nothing_is_sent_that_is_not_surely_on_record(desk: Desk, fates: tuple[str, ...]) -> None:
    opened = desk.open(None, *fates)
    assert isinstance(opened, Deferred)
    (said,) = desk.said(events.LedgerUnavailable)
    assert said.waits
    assert isinstance(desk.open(outgoing(hand_over=2)), Entry)
    assert len(desk.said(events.LedgerBack)) == 1
    assert (desk.status(), len(desk.records.keys(LEDGER_BUCKET))) == (IN_FLIGHT, 1)


def test_a_write_that_nobody_confirmed_is_looked_up(desk: Desk) -> None:
    assert desk.entry(None, UNHEARD, DONE).revision == 1
    assert desk.said(events.LedgerUnavailable) == []


def test_a_begin_whose_send_did_not_begin_is_no_doubt_of_this_process(desk: Desk) -> None:
    desk.open(None, UNHEARD, LOST)
    assert desk.status() == IN_FLIGHT
    assert desk.entry(outgoing(hand_over=2)).record == desk.records.record()
    assert desk.another().open(outgoing(hand_over=3)) == Ambiguous(INTERRUPTED, parked=True)


def test_of_several_begins_on_their_way_any_may_arrive(desk: Desk) -> None:
    # A server that stands still for a while carries them out in order: the first wins.
    desk.open(None, LATE, LOST)
    desk.open(outgoing(hand_over=2), DONE, LATE, LOST)
    desk.records.land()
    assert isinstance(desk.open(outgoing(hand_over=3)), Entry)
    assert desk.records.record().attempts == 2
    assert desk.ledger._unsent == {}


def test_a_begin_that_arrives_too_late_changes_nothing(desk: Desk) -> None:
    desk.open(None, LATE, LOST)
    desk.send(Sent(42), outgoing(hand_over=2))
    desk.records.land()
    assert desk.status() == SENT


def test_another_was_first(desk: Desk) -> None:
    desk.another().send(Sent(42))
    assert desk.open() == Concluded(SENT)


def test_a_bucket_that_is_gone_does_not_look_like_an_empty_one(desk: Desk) -> None:
    desk.send(Sent(42))
    desk.records.delete(LEDGER_BUCKET)
    for hand_over in (1, 2):
        assert isinstance(desk.open(outgoing(2, hand_over)), Deferred)
    desk.records.provision(LEDGER_BUCKET)
    assert isinstance(desk.open(outgoing(3)), Entry)
    assert len(desk.said(events.LedgerBack)) == 1


def test_a_record_that_cannot_be_read_is_nobody_s_permission(desk: Desk) -> None:
    key = key_of(BOT, outgoing().envelope)
    desk.records.put(LEDGER_BUCKET, key, b"garbage")
    assert isinstance(desk.open(), Deferred)
    retrying = desk.another(parks=False)
    assert retrying.open() == Entry()
    assert desk.records.get(LEDGER_BUCKET, key) == b"garbage"


@pytest.mark.parametrize("fate", [DISCONNECTED, REFUSED])
def test_under_retry_it_goes_on_unrecorded_and_counts(fate: str) -> None:
    desk = Desk(parks=False)
    for n in (1, 2):
        assert desk.open(outgoing(msg_id=f"m{n}"), fate) == Entry()
    (said,) = desk.said(events.LedgerUnavailable)
    assert not said.waits
    desk.entry(outgoing(msg_id="m3"))
    assert desk.said(events.LedgerBack) == [events.LedgerBack(2)]


def test_under_retry_a_silent_ledger_is_left_alone_for_a_while() -> None:
    desk = Desk(parks=False)
    assert desk.entry(None, LOST, LOST).revision == UNCONFIRMED
    asked = len(desk.records.asked)
    assert desk.open(outgoing(msg_id="m2")) == Entry()
    assert len(desk.records.asked) == asked
    desk.now += AVOID_SECONDS
    assert isinstance(desk.entry(outgoing(msg_id="m3")).record, Record)


@pytest.mark.parametrize("fates", [(LOST, LOST), (UNHEARD, LOST), (LATE, DISCONNECTED)])
def test_under_retry_a_begin_in_doubt_is_on_record_with_its_end(fates: tuple[str, ...]) -> None:
    desk = Desk(parks=False)
    entry = desk.entry(None, *fates)
    desk.close(entry, Sent(42))
    assert desk.open(outgoing(2)) == Concluded(SENT), "while it is owed"
    desk.records.land()
    desk.now += AVOID_SECONDS
    desk.pay()
    assert (desk.status(), desk.records.record().message_id) == (SENT, 42)
    assert desk.another(parks=False).open(outgoing(3)) == Concluded(SENT)


def test_what_was_sent_unrecorded_is_in_doubt_when_it_has_to_be_parked() -> None:
    desk = Desk(parks=False)
    desk.open(None, UNHEARD, LOST)  # and it is sent all the same, and the process does not hear how it ended
    assert desk.status() == IN_FLIGHT
    parked = desk.open(outgoing(2, on_ambiguous="park"))
    assert parked == Ambiguous(INTERRUPTED, parked=True), "it would have been sent twice"


def test_what_was_sent_unrecorded_has_its_link_all_the_same() -> None:
    desk = Desk(parks=False)
    desk.close(desk.entry(None, REFUSED), Sent(42))
    desk.pay()
    assert decode(desk.records.get(LINKS_BUCKET, by_message(BOT, "7", 42)) or b"").msg_id == "m1"
    assert desk.records.records() == []


def test_a_silent_server_costs_seconds_at_most(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "ASK_SECONDS", 0.01)
    assert isinstance(desk.open(None, SILENT, SILENT), Deferred)
    desk.close(desk.entry(), Sent(42), SILENT, SILENT, SILENT, SILENT)
    desk.pay()
    assert (desk.status(), desk.records.record().link_missing) == (SENT, False)


def test_a_bridge_that_ends_while_it_is_asked_is_a_bridge_error() -> None:
    records = FakeRecords()
    records.script.append(SILENT)
    future = records.read(LEDGER_BUCKET, "k")
    future.cancel()
    with pytest.raises(CancelledError):
        future.result(0)
    with pytest.raises(Unanswered, match="closed"):
        wait(future, 0.0)


# The ledger cannot be written after a send


@pytest.mark.parametrize(
    "fates", [(DISCONNECTED,), (REFUSED,), (LOST, LOST), (LATE, LOST), (UNHEARD, LOST), (LOST, DISCONNECTED)]
)
@pytest.mark.parametrize("disposition", [SLOW_DOWN, NO_ANSWER, Terminal(403, "Forbidden"), Unavailable("x")])
def test_what_came_of_it_is_written_later_and_known_meanwhile(
    desk: Desk, disposition: Tried, fates: tuple[str, ...]
) -> None:
    clean = Desk()
    clean.send(disposition)
    desk.close(desk.entry(), disposition, *fates)
    assert desk.ledger.owes
    desk.records.land()
    desk.pay()
    assert desk.status() == clean.status()
    assert desk.ledger._known == {}


@pytest.mark.parametrize("fates", [(DISCONNECTED,), (LOST, LOST), (UNHEARD, LOST), (LATE, LOST)])
def test_a_success_whose_record_is_owed_is_a_success(desk: Desk, fates: tuple[str, ...]) -> None:
    desk.close(desk.entry(), Sent(42), DONE, DONE, *fates)
    assert desk.open(outgoing(2)) == Concluded(SENT)
    assert desk.open(outgoing(1, 2)) == Concluded(SENT)
    desk.records.land()
    desk.pay()
    assert desk.status() == SENT


def test_garbage_under_the_key_does_not_make_a_success_a_failure(desk: Desk) -> None:
    entry = desk.entry()
    assert entry.record is not None
    desk.records.put(LEDGER_BUCKET, entry.record.key, b"garbage")
    desk.close(entry, Sent(42))  # it raised, and the worker sent it again
    desk.pay()
    assert desk.records.get(LEDGER_BUCKET, entry.record.key) == b"garbage"


def test_an_owed_failure_does_not_undo_the_success_after_it(desk: Desk) -> None:
    desk.close(desk.entry(), SLOW_DOWN, DISCONNECTED)
    desk.send(Sent(42), outgoing(hand_over=2))
    # The write that is owed has not come round to it yet.
    assert desk.open(outgoing(2)) == Concluded(SENT), "it would have been sent twice"
    desk.pay()
    assert desk.status() == SENT


def test_an_owed_failure_does_not_overwrite_the_send_after_it(desk: Desk) -> None:
    desk.close(desk.entry(), SLOW_DOWN, DISCONNECTED)
    desk.entry(outgoing(hand_over=2))
    desk.pay()
    assert desk.status() == IN_FLIGHT
    assert desk.another().open(outgoing(hand_over=3)) == Ambiguous(INTERRUPTED, parked=True)


def test_an_owed_failure_does_not_count_against_what_another_has_sent(desk: Desk) -> None:
    desk.close(desk.entry(), SLOW_DOWN, DISCONNECTED)
    other = desk.another(parks=False)
    other.send(Sent(42), outgoing(hand_over=2))
    assert desk.open(outgoing(hand_over=3)) == Concluded(SENT), "it would have been sent twice"


def test_an_owed_failure_does_not_undo_a_cancellation(desk: Desk) -> None:
    desk.close(desk.entry(), Migrated("-100"), DISCONNECTED)
    assert isinstance(desk.another().open(outgoing(hand_over=2)), Ambiguous)
    desk.operator_says(CANCELLED)
    desk.pay()
    assert desk.status() == CANCELLED


def test_a_late_success_settles_the_doubt_of_who_took_over(desk: Desk) -> None:
    entry = desk.entry()
    successor = desk.another()
    assert isinstance(successor.open(outgoing(hand_over=2)), Ambiguous)
    desk.close(entry, Sent(42))
    desk.pay()
    assert (desk.status(), desk.records.record().ambiguous_since) == (SENT, None)
    assert successor.open(outgoing(2)) == Concluded(SENT)


def test_a_late_success_stops_an_operator_s_second_send(desk: Desk) -> None:
    entry = desk.entry()
    desk.another().open(outgoing(hand_over=2))
    desk.operator_says(PENDING, resolution="send-again")
    desk.close(entry, Sent(42))
    desk.pay()
    assert desk.another().open(outgoing(2)) == Concluded(SENT)


def test_a_late_refusal_leaves_the_doubt_to_the_operator(desk: Desk) -> None:
    entry = desk.entry()
    desk.another().open(outgoing(hand_over=2))
    desk.close(entry, Terminal(403, "Forbidden"))
    desk.pay()
    assert desk.status() == AMBIGUOUS


def test_a_bucket_made_anew_under_a_send_gets_its_end(desk: Desk) -> None:
    entry = desk.entry()
    desk.records.delete(LEDGER_BUCKET)
    desk.records.provision(LEDGER_BUCKET)
    desk.close(entry, Sent(42))
    desk.pay()
    assert desk.status() == SENT


def test_a_client_that_breaks_leaves_a_doubt_on_record_and_nothing_in_flight(desk: Desk) -> None:
    class Broken:
        def send(self, *_: Any, **__: Any) -> Tried:
            raise RuntimeError("a bug")

        get_me = abort = close = send

    around = Surroundings(99.0, lambda seconds: False, lambda: False)
    with pytest.raises(RuntimeError, match="a bug"):
        attempt(outgoing(), Broken(), desk.ledger, around, 1)  # type: ignore[arg-type]
    assert (desk.status(), desk.records.record().last_error) == (AMBIGUOUS, "internal error: RuntimeError")


# Links


def test_a_success_is_linked_by_both_ids(desk: Desk) -> None:
    message = outgoing(chat="@channel", route_id="r", from_member="alice")
    desk.send(Sent(42, None, -100), message)
    for key in (by_message(BOT, "-100", 42), by_msg_id(BOT, "@channel", "m1")):
        link = decode(desk.records.get(LINKS_BUCKET, key) or b"")
        assert (link.message_id, link.msg_id, link.route_id, link.from_member) == (42, "m1", "r", "alice")


@pytest.mark.parametrize("fates", [(DISCONNECTED, DONE), (DONE, LOST), (REFUSED, REFUSED)])
def test_a_success_without_its_link_says_so_until_it_is_repaired(desk: Desk, fates: tuple[str, ...]) -> None:
    desk.close(desk.entry(), Sent(42), *fates)
    assert desk.ledger.pay()
    assert (desk.status(), desk.records.record().link_missing) == (SENT, True)
    desk.pay()
    assert (desk.status(), desk.records.record().link_missing) == (SENT, False)
    assert len(desk.records.keys(LINKS_BUCKET)) == 2
    assert desk.open(outgoing(2)) == Concluded(SENT)


def test_links_that_cannot_be_stored_keep_no_record_waiting(desk: Desk) -> None:
    desk.records.delete(LINKS_BUCKET)
    desk.send(Sent(42))
    assert desk.ledger.pay()  # that it is missing
    assert not desk.ledger.pay()
    message = outgoing(2, msg_id="m2")
    desk.close(desk.entry(message), NO_ANSWER, DISCONNECTED, message=message)
    assert desk.ledger.pay()
    assert sorted(r.status for r in desk.records.records()) == [AMBIGUOUS, SENT]
    desk.records.provision(LINKS_BUCKET)
    desk.pay()
    assert len(desk.records.keys(LINKS_BUCKET)) == 2


def test_a_links_bucket_that_is_gone_is_said_once(desk: Desk) -> None:
    desk.records.delete(LINKS_BUCKET)
    for n in range(5):
        desk.send(Sent(40 + n), outgoing(n, msg_id=f"m{n}"))
    (said,) = desk.said(events.LedgerUnavailable)
    assert "telegram-connector provision" in said.reason
    assert desk.said(events.LedgerBack) == []
    desk.records.provision(LINKS_BUCKET)
    desk.pay()
    desk.send(Sent(50), outgoing(9, msg_id="m9"))
    assert len(desk.said(events.LedgerBack)) == 1


def test_what_goes_on_failing_is_said_once(desk: Desk) -> None:
    desk.records.delete(LEDGER_BUCKET)
    for n in range(5):  # a write and a read fail in their own words
        desk.open(outgoing(n, 1 + n % 2, msg_id=f"m{n}"))
    assert len(desk.said(events.LedgerUnavailable)) == 1


def test_that_messages_wait_is_news_though_the_reason_is_not(desk: Desk) -> None:
    desk.records.delete(LINKS_BUCKET)
    desk.send(Sent(42))
    desk.records.delete(LEDGER_BUCKET)
    desk.open(outgoing(2, msg_id="m2"))
    desk.ledger.pay()
    assert [e.waits for e in desk.said(events.LedgerUnavailable)] == [False, True]


@pytest.mark.parametrize(
    "words", ["no answer to $KV.telegram_ledger.{} within 2 s", 'violation for "$KV.telegram_ledger.{}"']
)
def test_whose_record_it_is_makes_no_news(words: str) -> None:
    desk = Desk()
    for key in ("a1", "b2"):
        desk.ledger._cannot(Unanswered(words.format(key)))
    (said,) = desk.said(events.LedgerUnavailable)
    assert said.reason == words.format("").replace("telegram_ledger.", "telegram_ledger")


def test_links_that_are_owed_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LINKS_OWED", 2)
    desk.records.delete(LINKS_BUCKET)
    for n in range(5):
        desk.send(Sent(40 + n), outgoing(n, msg_id=f"m{n}"))
    desk.records.provision(LINKS_BUCKET)
    desk.pay()
    assert [r.link_missing for r in desk.records.records()] == [False, False, True, True, True]


# Replies


def reply(**fields: Any) -> Outgoing:
    return outgoing(2, **{"msg_id": "m2", "reply_to": "m1", **fields})


def test_a_reply_finds_its_target_by_msg_id(desk: Desk) -> None:
    desk.send(Sent(42))
    assert desk.ledger.reply_target(reply()) == 42
    assert desk.ledger.reply_target(reply(reply_to_message_id=5)) == 5
    assert desk.ledger.reply_target(outgoing()) is None


@pytest.mark.parametrize("ledger", [Desk().ledger, NullLedger()])
def test_a_target_that_is_not_known_is_no_reply_only_where_the_envelope_allows_it(ledger: Any) -> None:
    assert ledger.reply_target(reply(allow_sending_without_reply=True)) is None
    for allow in (None, False):
        assert isinstance(ledger.reply_target(reply(allow_sending_without_reply=allow)), Terminal)


def test_what_cannot_be_looked_up_waits(desk: Desk) -> None:
    desk.records.script.append(DISCONNECTED)
    assert isinstance(desk.ledger.reply_target(reply(allow_sending_without_reply=True)), Deferred)
    desk.records.put(LINKS_BUCKET, by_msg_id(BOT, "7", "m1"), b"garbage")
    assert isinstance(desk.ledger.reply_target(reply()), Deferred)


def test_a_target_whose_link_is_owed_is_waited_for(desk: Desk) -> None:
    desk.close(desk.entry(), Sent(42), LOST, LOST)
    assert isinstance(desk.ledger.reply_target(reply()), Deferred)
    desk.pay()
    assert desk.ledger.reply_target(reply()) == 42


def test_a_target_that_telegram_says_is_gone_is_stale_for_the_next_reply(desk: Desk) -> None:
    desk.send(Sent(42))
    entry = desk.ledger.open(reply(), 42)
    assert isinstance(entry, Entry)
    desk.close(entry, Terminal(400, "Bad Request: message to be replied not found"), message=reply())
    desk.pay()
    assert decode(desk.records.get(LINKS_BUCKET, by_message(BOT, "7", 42)) or b"").stale_at
    told = desk.ledger.reply_target(reply(msg_id="m3"))
    assert told == Terminal(0, NOT_AVAILABLE)


def test_another_refusal_leaves_the_link_alone(desk: Desk) -> None:
    desk.send(Sent(42))
    entry = desk.ledger.open(reply(), 42)
    assert isinstance(entry, Entry)
    desk.close(entry, Terminal(400, "Bad Request: message is too long"), message=reply())
    desk.pay()
    assert desk.ledger.reply_target(reply(msg_id="m3")) == 42


# What a record says of a message that must not be sent now


def test_settled_says_what_is_on_record_and_begins_nothing(desk: Desk) -> None:
    assert desk.ledger.settled(outgoing()) is None
    assert desk.records.records() == []
    desk.send(SLOW_DOWN)
    assert desk.ledger.settled(outgoing()) is None
    assert desk.status() == RATE_LIMITED
    desk.send(Sent(42), outgoing(hand_over=2))
    assert desk.ledger.settled(outgoing()) == Concluded(SENT)


def test_settled_finds_what_is_in_doubt(desk: Desk) -> None:
    desk.entry()
    assert desk.another().ledger.settled(outgoing()) == Ambiguous(INTERRUPTED, parked=True)
    assert desk.status() == AMBIGUOUS


@pytest.mark.parametrize("parks", [True, False])
def test_settled_waits_under_park_alone(parks: bool) -> None:
    desk = Desk(parks)
    desk.records.script.append(DISCONNECTED)
    assert isinstance(desk.ledger.settled(outgoing()), Deferred) == parks


# What will not be sent any more


EXPIRED = Terminal(0, "expired before it could be sent", "expired")
GAVE_UP = Terminal(502, "Bad Gateway", "gave_up")


@pytest.mark.parametrize("dropped", [EXPIRED, GAVE_UP, Terminal(0, NOT_AVAILABLE)])
def test_what_is_dropped_is_on_record_with_its_reason(desk: Desk, dropped: Terminal) -> None:
    desk.ledger.drop(outgoing(), dropped)
    desk.pay()
    record = desk.records.record()
    assert (record.status, record.reason, record.last_error) == (
        TERMINAL,
        dropped.reason,
        dropped.description,
    )
    assert desk.open(outgoing(2)) == dropped


@pytest.mark.parametrize("reason", ["conflict", "ambiguous", "unreadable"])
def test_these_are_on_record_already_or_are_another_s(desk: Desk, reason: str) -> None:
    desk.send(NO_ANSWER)
    desk.ledger.drop(outgoing(), Terminal(0, "x", reason))
    desk.pay()
    assert desk.status() == AMBIGUOUS


def test_another_text_under_the_key_does_not_close_its_record(desk: Desk) -> None:
    desk.send(SLOW_DOWN)
    desk.ledger.drop(outgoing(text="another"), EXPIRED)
    desk.pay()
    assert desk.status() == RATE_LIMITED


@pytest.mark.parametrize("parks", [True, False])
def test_what_was_in_flight_when_its_process_ended_stays_in_doubt_though_it_expired(parks: bool) -> None:
    first = Desk(parks)
    first.entry()
    desk = first.another(parks)
    desk.ledger.drop(outgoing(), EXPIRED)
    desk.pay()
    record = desk.records.record()
    assert (record.status, record.last_error) == (AMBIGUOUS, INTERRUPTED)
    assert record.ambiguous_since


def test_what_is_in_doubt_stays_so_though_it_expired(desk: Desk) -> None:
    desk.send(NO_ANSWER)
    desk.ledger.drop(outgoing(), EXPIRED)
    desk.pay()
    assert desk.status() == AMBIGUOUS


def test_under_retry_giving_up_settles_the_doubt() -> None:
    desk = Desk(parks=False)
    desk.send(NO_ANSWER)
    desk.ledger.drop(outgoing(), GAVE_UP)
    desk.pay()
    assert (desk.status(), desk.records.record().reason) == (TERMINAL, "gave_up")


def test_what_was_sent_stays_so_though_it_expired(desk: Desk) -> None:
    desk.send(Sent(42))
    desk.ledger.drop(outgoing(), EXPIRED)
    desk.pay()
    assert desk.status() == SENT


def test_a_drop_heeds_what_is_owed_before_it() -> None:
    desk = Desk(parks=False)
    desk.close(desk.entry(), Transient(502, "Bad Gateway"), DISCONNECTED)
    desk.ledger.drop(outgoing(), GAVE_UP)
    desk.pay()
    assert (desk.status(), desk.records.record().reason) == (TERMINAL, "gave_up")


# The thread that writes what is owed


def test_the_writer_writes_what_is_owed_and_ends_when_told(desk: Desk) -> None:
    written = threading.Event()
    writer = threading.Thread(target=desk.ledger.work)
    writer.start()
    desk.records.on_write = lambda bucket, key, before, after: b'"sent"' in after and written.set()
    desk.close(desk.entry(), Sent(42), DONE, DONE, DISCONNECTED)
    assert written.wait(PATIENCE_SECONDS)
    desk.ledger.stop(desk.now + PATIENCE_SECONDS)
    writer.join(PATIENCE_SECONDS)
    assert not writer.is_alive()
    assert desk.status() == SENT


def test_the_writer_ends_at_the_deadline_though_something_is_owed(desk: Desk) -> None:
    desk.close(desk.entry(), Sent(42), DONE, DONE, DISCONNECTED)
    desk.ledger.stop(desk.now)
    desk.ledger.work()
    assert desk.ledger.owes
    assert desk.another().open(outgoing(hand_over=2)) == Concluded(SENT)  # by its link


# Without a ledger


def test_without_a_ledger_everything_may_begin() -> None:
    ledger = NullLedger()
    assert ledger.open(outgoing(), None) == Entry()
    assert ledger.open(outgoing(on_ambiguous="park"), None) == Entry(parks=True)
    assert ledger.settled(outgoing()) is None


def test_what_pacing_delayed_is_on_record(desk: Desk) -> None:
    message = outgoing()
    desk.ledger.open(Outgoing(message.delivery, message.envelope, "7", delayed=True), None)
    assert desk.records.record().delayed
