"""The seeds' tests of the provider ledger and the adapter, and its failure matrix, each by its sentence.

The sentences about what may leave at all are the projection's and are tested there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.alerts import Alerts
from telegram_connector.clock import LeaseClock
from telegram_connector.disposition import (
    Ambiguous,
    Concluded,
    Disposition,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound, request_body
from telegram_connector.ledger import KvLedger, Outgoing
from telegram_connector.links import NOT_AVAILABLE, LinkNotFound, Links
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    RATE_LIMITED,
    RETRYABLE,
    SENT,
    TERMINAL,
    Record,
    decode,
    encode,
    key_of,
    timestamp,
)
from telegram_connector.settlement import Policy
from telegram_connector.state import State
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET
from telegram_connector.worker import Rules, Worker
from tests.fake_records import REFUSED, Asked, FakeRecords
from tests.fakes import FakeApi, FakeSource, FakeStore, HandClock, make_delivery

BOT = "123"
TIMEOUT = Ambiguous("no answer in time")


class Rig:
    """The real worker with the real ledger, and fakes of JetStream, its buckets and the Bot API around it."""

    def __init__(self, records: FakeRecords | None = None) -> None:
        self.records = records or FakeRecords()
        self.records.on_write = self._note
        self.history: list[str] = []  # of statuses, as they were written
        self.clock = HandClock()
        self.source = FakeSource()
        self.api = FakeApi(self.source)
        self.events: list[events.Event] = []
        self.alerts = Alerts("tg_outbound", tell_chat=False)
        self.deaths: list[tuple[str, BaseException]] = []
        self.links = Links(self.records, BOT)
        self.worker = Worker(
            self.source,
            [self.api],
            State(FakeStore(), self.observe),
            Policy(ack_wait_seconds=60.0, max_attempts=3, backoff_seconds=30.0),
            Rules("1", 1000),
            self.alerts,
            observe=self.observe,
            on_death=lambda name, error: self.deaths.append((name, error)),
            random=lambda: 0.5,
            lease_clock=LeaseClock(self.clock, self.clock),
            ledger=KvLedger(
                self.records, BOT, parks=True, observe=self.observe, clock=self.clock, wall=self.wall
            ),
            clock=self.clock,
            wall=self.wall,
        )

    def wall(self) -> float:
        return time.time() + self.clock.ahead

    def observe(self, event: events.Event) -> None:
        self.events.append(event)
        self.alerts.observe(event)
        self.source.note()

    def _note(self, bucket: str, key: str, before: bytes | None, after: bytes) -> None:
        if bucket == LEDGER_BUCKET:
            self.history.append(decode(after).status)
        self.source.note()

    def stop(self) -> None:
        self.worker.stop(self.clock() + 10)
        assert not self.deaths

    def deliver(self, sequence: int = 1, told: str = "ack", **fields: Any) -> None:
        """Hand a message over, and wait until JetStream is told what becomes of it."""
        hand_over = fields.pop("hand_over", 1)
        envelope = TelegramOutbound(**{"msg_id": "m1", "chat": "7", "text": "hello", **fields})
        before = len(self.source.told)
        self.source.put(make_delivery(sequence, envelope=envelope, hand_over=hand_over))
        self.source.wait_until(lambda: any(t[0] == told for t in self.source.told[before:]))

    def record(self) -> Record:
        return self.records.record()

    def until_record(self, **fields: Any) -> Record:
        """Wait until the one record has these values: some of it is written by a thread of its own."""
        self.source.wait_until(
            lambda: (
                len(self.records.keys(LEDGER_BUCKET)) == 1
                and all(getattr(self.record(), name) == value for name, value in fields.items())
            )
        )
        return self.record()

    def dispositions(self) -> list[Disposition]:
        return [e.disposition for e in self.events if isinstance(e, events.Attempted)]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.worker.start()
    yield rig
    rig.stop()


def restarted(rig: Rig) -> Rig:
    """Another process on the same buckets."""
    other = Rig(rig.records)
    other.worker.start()
    return other


# "Provider ledger tests"


def test_ledger_sent_creates_the_link(rig: Rig) -> None:
    """pending -> send_in_flight -> sent creates provider link."""
    rig.api.script["hello"] = [Sent(42, None, 7)]
    rig.deliver(from_member="alice")
    assert rig.history == [IN_FLIGHT, SENT]
    link = rig.links.resolve("7", 42)
    assert (link.msg_id, link.from_member) == ("m1", "alice")


def test_ledger_before_the_send(rig: Rig) -> None:
    """pre-send validation failure is retryable."""
    rig.api.script["hello"] = [Unavailable("no time was left to send it")] * 3
    rig.deliver(told="nak")
    assert rig.record().status == RETRYABLE
    assert not [t for t in rig.source.told if t[0] == "term"]
    rig.clock.ahead += 100
    rig.deliver(hand_over=2)
    assert rig.record().status == SENT


def test_ledger_429(rig: Rig) -> None:
    """429 response stores retry_after and schedules retry."""
    rig.api.script["hello"] = [Transient(429, "Too Many Requests: retry after 35", 35.0)]
    before = rig.wall()
    rig.deliver(told="nak")
    record = rig.record()
    assert record.status == RATE_LIMITED
    assert record.next_attempt_at is not None
    assert timestamp(before + 35) <= record.next_attempt_at <= timestamp(rig.wall() + 35)
    assert ("nak", 1, 35.0) in rig.source.told


def test_ledger_timeout(rig: Rig) -> None:
    """HTTP timeout after request started becomes send_ambiguous."""
    rig.api.script["hello"] = [TIMEOUT]
    rig.deliver(told="term")
    assert rig.history == [IN_FLIGHT, AMBIGUOUS]
    assert rig.record().ambiguous_since
    assert rig.records.keys(LINKS_BUCKET) == []


def test_ledger_restart(rig: Rig) -> None:
    """restart with send_in_flight becomes send_ambiguous."""
    rig.api.script["hello"] = [Sent(42)]
    rig.deliver()
    record = rig.record()
    in_flight = decode(encode(record).replace(b'"sent"', b'"send_in_flight"'))
    rig.records.put(LEDGER_BUCKET, record.key, encode(in_flight))
    for key in rig.records.keys(LINKS_BUCKET):
        rig.records.put(LINKS_BUCKET, key, b"")
    other = restarted(rig)
    other.deliver(hand_over=2, told="term")
    assert rig.record().status == AMBIGUOUS
    assert other.api.tried == []
    other.stop()


@pytest.mark.parametrize(("answer", "told", "state"), [(Sent(42), "ack", SENT), (TIMEOUT, "term", AMBIGUOUS)])
def test_ledger_duplicate(rig: Rig, answer: Disposition, told: str, state: str) -> None:
    """duplicate local event returns existing sent/ambiguous state."""
    rig.api.script["hello"] = [answer]
    rig.deliver(1, told)
    rig.deliver(2, told)
    assert len(rig.api.tried) == 1
    assert rig.record().status == state
    again = rig.dispositions()[1]
    assert again == (Concluded(SENT) if state == SENT else Terminal(0, TIMEOUT.description, "ambiguous"))


def test_ledger_link_failure(rig: Rig) -> None:
    """success with provider link write failure does not retry provider send."""
    rig.records.fate = lambda asked: REFUSED if asked.bucket == LINKS_BUCKET else "done"
    rig.api.script["hello"] = [Sent(42, None, 7)]
    rig.deliver()
    rig.until_record(status=SENT, link_missing=True)
    assert ("nak", 1) not in [t[:2] for t in rig.source.told]
    rig.records.fate = lambda asked: "done"
    rig.until_record(status=SENT, link_missing=False)
    assert rig.links.resolve("7", 42).msg_id == "m1"
    assert len(rig.api.tried) == 1


# "Adapter tests"


def test_adapter_thread() -> None:
    """Telegram send uses `message_thread_id`."""
    body = json.loads(request_body(TelegramOutbound(msg_id="m", text="t", message_thread_id=9), "-100"))
    assert body["message_thread_id"] == 9


def test_adapter_reply_parameters(rig: Rig) -> None:
    """Telegram send uses `reply_parameters` when inbound provider message id is known."""
    body = json.loads(request_body(TelegramOutbound(msg_id="m", text="t", reply_to_message_id=5), "7"))
    assert body["reply_parameters"] == {"message_id": 5}
    sent: list[int | None] = []
    send = rig.api.send

    def noting(envelope: TelegramOutbound, *arguments: Any, **more: Any) -> Disposition:
        sent.append(envelope.reply_to_message_id)
        return send(envelope, *arguments, **more)

    rig.api.send = noting  # type: ignore[method-assign]
    rig.deliver(1)
    rig.deliver(2, msg_id="m2", reply_to="m1")
    assert sent == [None, 1]


def test_adapter_result(rig: Rig) -> None:
    """Telegram send does not use webhook inline response for routable replies."""
    rig.api.script["hello"] = [Sent(42, None, 7)]
    rig.deliver()
    assert rig.record().message_id == 42, "the id comes with the answer to the call itself"


def test_adapter_long_text(rig: Rig) -> None:
    """long text is rejected or handled by explicit split policy."""
    rig.api.script["x" * 5000] = [Terminal(400, "Bad Request: message is too long")]
    rig.deliver(told="term", text="x" * 5000)
    assert rig.api.tried == [("7", "x" * 5000)], "not cut, not split"
    assert (rig.record().status, rig.record().reason) == (TERMINAL, "refused")


def test_adapter_parse_mode() -> None:
    """parse mode is omitted in MVP."""
    assert "parse_mode" not in json.loads(request_body(TelegramOutbound(msg_id="m", text="t"), "7"))


# "Failure matrix"


def test_matrix_route_disabled(rig: Rig) -> None:
    """Provider route disabled after local reply was generated. - Mark terminal or cancelled, do not send."""
    rig.api.script["hello"] = [TIMEOUT]
    rig.deliver(told="term")
    cancelled = rig.record().to(CANCELLED, "then", resolved_by="op", resolved_at="then", resolution="cancel")
    rig.records.put(LEDGER_BUCKET, cancelled.key, encode(cancelled))
    rig.deliver(2)
    assert rig.dispositions()[-1] == Concluded(CANCELLED)
    assert len(rig.api.tried) == 1


def test_matrix_topic(rig: Rig) -> None:
    """Topic route repair-required. - Do not fallback to general chat."""
    rig.api.script["hello"] = [Terminal(400, "Bad Request: message thread not found")]
    rig.deliver(told="term", message_thread_id=9)
    assert len(rig.api.tried) == 1
    assert (rig.record().status, rig.record().message_thread_id) == (TERMINAL, 9)
    assert rig.source.dead[0].headers["Tg-Dead-Reason"] == "refused"


def test_matrix_429(rig: Rig) -> None:
    """Telegram returns 429 with retry_after. - Mark rate_limited, schedule retry after given time."""
    rig.api.script["hello"] = [Transient(429, "Too Many Requests: retry after 30", 30.0)]
    rig.deliver(told="nak")
    assert rig.record().status == RATE_LIMITED
    rig.source.put(
        make_delivery(1, envelope=TelegramOutbound(msg_id="m1", chat="7", text="hello"), hand_over=2)
    )
    rig.deliver(2, chat="8", msg_id="other", text="another chat")
    assert [text for _, text in rig.api.tried] == ["hello", "another chat"]
    rig.clock.ahead += 35
    rig.source.wake()
    rig.source.wait_until(lambda: ("ack", 1) in rig.source.told)
    assert [r.status for r in rig.records.records()] == [SENT, SENT]


def test_matrix_timeout_after(rig: Rig) -> None:
    """HTTP timeout after request sent. - Mark send_ambiguous, do not auto-retry."""
    rig.api.script["hello"] = [TIMEOUT]
    rig.deliver(told="term")
    assert rig.record().status == AMBIGUOUS
    assert rig.source.dead[0].headers["Tg-Dead-Reason"] == "ambiguous"
    rig.clock.ahead += 3600
    rig.deliver(3, msg_id="m3", text="later")
    assert [text for _, text in rig.api.tried] == ["hello", "later"]


def test_matrix_timeout_before(rig: Rig) -> None:
    """HTTP timeout before request body leaves process. - If adapter can prove no send, mark
    failed_retryable_before_send."""
    rig.api.script["hello"] = [Unavailable("connecting timed out")] * 3
    rig.deliver(told="nak")
    assert rig.record().status == RETRYABLE
    assert rig.source.dead == []


def test_matrix_link_failure(rig: Rig) -> None:
    """Telegram returns success but local link write fails. - Do not retry provider send, repair link."""
    failing = True

    def fate(asked: Asked) -> str:
        return REFUSED if failing and asked.bucket == LINKS_BUCKET and asked.is_write else "done"

    rig.records.fate = fate
    rig.api.script["hello"] = [Sent(42, None, 7)]
    rig.deliver()
    rig.until_record(link_missing=True)
    failing = False
    rig.until_record(link_missing=False)
    assert rig.links.resolve("7", 42).msg_id == "m1"
    assert len(rig.api.tried) == 1


def test_matrix_duplicate(rig: Rig) -> None:
    """Duplicate local message event. - Ledger idempotency key returns existing provider status."""
    rig.deliver(1)
    other = restarted(rig)
    other.deliver(2)
    assert other.dispositions() == [Concluded(SENT)]
    assert other.api.tried == []
    other.stop()


def test_matrix_conflict(rig: Rig) -> None:
    """Same idempotency key with different text. - Payload conflict, terminal."""
    rig.deliver(1)
    rig.deliver(2, "term", text="something else")
    assert rig.source.dead[0].headers["Tg-Dead-Reason"] == "conflict"
    assert [text for _, text in rig.api.tried] == ["hello"]
    assert rig.record().status == SENT


def test_matrix_restart(rig: Rig) -> None:
    """App restarts with `send_in_flight`. - Convert to send_ambiguous unless adapter has proof."""
    first = KvLedger(rig.records, BOT, parks=True, observe=rig.observe)
    envelope = TelegramOutbound(msg_id="m1", chat="7", text="hello")
    first.open(Outgoing(make_delivery(1, envelope=envelope), envelope, "7"), None)
    rig.deliver(hand_over=2, told="term")
    assert rig.record().status == AMBIGUOUS
    assert rig.api.tried == []
    assert rig.record().key == key_of(BOT, envelope)


def test_matrix_restart_with_proof(rig: Rig) -> None:
    """App restarts with `send_in_flight`. - ... unless adapter has proof."""
    rig.api.script["hello"] = [Sent(42, None, 7)]
    rig.deliver()
    rig.source.wait_until(lambda: bool(rig.records.keys(LINKS_BUCKET)))
    # The link was stored, and the process ended before the record was.
    in_flight = decode(encode(rig.record()).replace(b'"sent"', b'"send_in_flight"'))
    rig.records.put(LEDGER_BUCKET, in_flight.key, encode(in_flight))
    other = restarted(rig)
    other.deliver(hand_over=2)
    assert other.dispositions() == [Concluded(SENT)]
    assert other.until_record(status=SENT).message_id == 42
    other.stop()


def test_matrix_link_pruned(rig: Rig) -> None:
    """Provider message link pruned. - Future reply falls back to lead with stale target metadata."""
    with pytest.raises(LinkNotFound, match=NOT_AVAILABLE):
        rig.links.resolve("7", 42)
    rig.deliver(1, "term", reply_to="pruned")
    rig.until_record(status=TERMINAL, last_error=NOT_AVAILABLE)
    rig.deliver(2, msg_id="m2", reply_to="pruned", allow_sending_without_reply=True)
    assert [text for _, text in rig.api.tried] == ["hello"]


# What the matrix implies of what comes again


def test_a_sent_message_that_comes_again_after_it_expired_is_no_failure(rig: Rig) -> None:
    rig.deliver(expires_at="2999-01-01T00:00:00Z")
    other = restarted(rig)
    other.deliver(2, expires_at="2020-01-01T00:00:00Z")
    assert other.dispositions() == [Concluded(SENT)]
    assert other.source.dead == []
    other.stop()


def test_what_is_in_doubt_and_expired_is_parked_and_not_merely_expired(rig: Rig) -> None:
    rig.api.script["hello"] = [TIMEOUT]
    rig.deliver(told="term")
    other = restarted(rig)
    other.deliver(2, "term", expires_at="2020-01-01T00:00:00Z")
    assert other.source.dead[0].headers["Tg-Dead-Reason"] == "ambiguous"
    assert rig.record().status == AMBIGUOUS
    other.stop()


def test_a_sent_reply_that_comes_again_after_its_target_is_gone_is_no_failure(rig: Rig) -> None:
    rig.deliver(1, msg_id="target", text="target")
    rig.deliver(2, reply_to="target")
    for key in rig.records.keys(LINKS_BUCKET):
        rig.records.put(LINKS_BUCKET, key, b"")  # pruned
    other = restarted(rig)
    other.deliver(2, hand_over=2, reply_to="target")
    assert other.dispositions() == [Concluded(SENT)]
    assert other.source.dead == []
    other.stop()
