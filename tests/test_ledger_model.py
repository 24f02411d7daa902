"""The ledger under every fault at once, against a Telegram that remembers what it accepted.

`World` is what is around a ledger, without threads: a stream that hands over again what was not settled, two
connectors with a ledger each on the same buckets, Telegram, and an operator. Hypothesis chooses what is
delivered, and what becomes of everything that is asked meanwhile. Then the faults end, and all must settle.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from telegram_connector.attempt import Surroundings, attempt
from telegram_connector.delivery import Ack, DeliveryId, Term
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Tried,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import BridgeError, LedgerError
from telegram_connector.events import ignore
from telegram_connector.ledger import KvLedger, Outgoing
from telegram_connector.links import by_message
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    PENDING,
    RATE_LIMITED,
    RETRYABLE,
    SENT,
    TERMINAL,
    TRANSITIONS,
    Record,
    decode,
    encode,
    key_of,
)
from telegram_connector.settlement import Policy, settle
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET
from tests.fake_records import DONE, FATES, Asked, FakeRecords
from tests.fakes import make_delivery

THOROUGH = os.environ.get("CI") == "true"
BOT = "123"
POLICY = Policy(ack_wait_seconds=60.0, max_attempts=4, backoff_seconds=30.0)
CHATS = ("1", "2")
CONNECTORS = ("first", "second")

# Besides the fates of what is asked of a bucket: the process ends before or after it, another connector has
# the same message meanwhile, or the operator decides.
CRASH_BEFORE, CRASH_AFTER, TAKEN_OVER, OPERATOR = "crash before", "crash after", "taken over", "operator"
RECORD_FATES = (*FATES, DONE, DONE, CRASH_BEFORE, CRASH_AFTER, TAKEN_OVER, OPERATOR)
ACCEPTED = ("sent", "lost accepted", "502 accepted", CRASH_AFTER)
SEND_FATES = (
    *ACCEPTED,
    "lost",
    "502",
    "429",
    "403",
    "down",
    "bot fault",
    "migrated",
    "broken",
    CRASH_BEFORE,
    TAKEN_OVER,
    OPERATOR,
)
DECISIONS = ("sent", "send-again", "cancel")


class Broken(RuntimeError):
    """Something unforeseen went wrong in the client before anything was sent."""


class Crash(BaseException):
    """The process ends here: nothing of ours may catch it."""


@dataclass(eq=False)
class Message:
    """A message in the stream."""

    sequence: int
    envelope: TelegramOutbound
    hand_overs: int = 0
    attempts: int = 0
    settled: str = ""


@dataclass
class Truth:
    """What Telegram and the operator know of one key."""

    accepted: list[str] = field(default_factory=list)  # the texts
    ids: list[int] = field(default_factory=list)
    again: int = 0  # how often an operator said to send it again
    said: list[str] = field(default_factory=list)
    in_doubt: bool = False  # an answer was lost, or a process ended while it sent
    forgotten: bool = False  # the bucket was deleted: nobody knows any more
    unlinked: bool = False  # the bucket of links was deleted


class World:
    """The surroundings of two ledgers. It is also the Telegram that they send to (`BotApi`)."""

    def __init__(self, parks: bool, seed: int = 0) -> None:
        self.parks = parks
        self.rng = random.Random(seed)
        self.records = FakeRecords()
        self.records.fate = self._fate_of
        self.records.on_write = self._check_write
        self.now = 1000.0
        self.stream: list[Message] = []
        self.truth: dict[str, Truth] = {}
        self.chats: dict[str, str] = {}  # where a chat has moved
        self.ledgers = {name: self._ledger() for name in CONNECTORS}
        self.record_fates: list[str] = []
        self.send_fates: list[str] = []
        self.decisions: list[str] = []
        self.busy: list[tuple[str, Message]] = []  # who delivers what, outermost first
        self.crashes = 0
        self.sends = 0
        self.ids = 0

    # What happens

    def publish(self, number: int, text: str = "text", on_ambiguous: str | None = None) -> None:
        envelope = TelegramOutbound(
            msg_id=f"m{number}", chat=CHATS[number % 2], text=f"{text} {number}", on_ambiguous=on_ambiguous
        )
        self.stream.append(Message(len(self.stream) + 1, envelope))
        self.truth.setdefault(key_of(BOT, envelope), Truth())

    def deliver(self, message: Message, name: str) -> None:
        """Hand a message over to a connector, and settle it as the relay does."""
        message.hand_overs += 1
        ledger = self.ledgers[name]
        delivery = make_delivery(
            message.sequence,
            envelope=message.envelope,
            id=DeliveryId("S", message.sequence, message.sequence),
            # The server may have forgotten that it was handed over before.
            hand_over=1 if self.rng.random() < 0.5 else message.hand_overs,
        )
        outgoing = Outgoing(delivery, message.envelope, self.chat_of(message.envelope))
        around = Surroundings(self.now + 30, lambda seconds: False, lambda: False)
        self.busy.append((name, message))
        try:
            disposition: Disposition = attempt(outgoing, self, ledger, around, 1).disposition
        except Broken:  # what the worker makes of it
            disposition = Transient(0, "internal error")
        except Crash:
            self._restart(name)
            return
        finally:
            self.busy.pop()
        self._settle(message, outgoing, ledger, disposition)

    def _settle(
        self, message: Message, outgoing: Outgoing, ledger: KvLedger, disposition: Disposition
    ) -> None:
        if isinstance(disposition, Migrated):
            self.chats[outgoing.chat] = disposition.new_chat
            return
        settlement = settle(
            disposition,
            attempts=message.attempts,
            policy=POLICY,
            bot_wait_seconds=1.0,
            last_hand_over=False,
            random=self.rng.random,
        )
        message.attempts += settlement.costs_attempt
        match settlement.command:
            case Ack():
                message.settled = "acked"
            case Term(reason):
                assert isinstance(settlement.disposition, Terminal)
                ledger.drop(outgoing, settlement.disposition)
                message.settled = reason

    def expire(self, message: Message, name: str) -> None:
        """Drop a message unsent, as a connector does whose turn came too late."""
        outgoing = Outgoing(
            make_delivery(message.sequence, envelope=message.envelope),
            message.envelope,
            self.chat_of(message.envelope),
        )
        self.ledgers[name].drop(outgoing, Terminal(0, "expired before it could be sent", "expired"))
        message.settled = "expired"

    def pay(self, name: str) -> None:
        """One step of the thread that writes what is owed."""
        self.busy.append((name, Message(0, TelegramOutbound(msg_id="none", text="none"))))
        try:
            self.ledgers[name].pay()
        except Crash:
            self._restart(name)
        finally:
            self.busy.pop()

    def resolve(self, key: str, decision: str) -> None:
        """What an operator does about a record that is in doubt."""
        value = self.records.get(LEDGER_BUCKET, key)
        if not value:
            return
        record = decode(value)
        at = record.updated_at
        if record.status == IN_FLIGHT:  # of a process that is taken for dead
            record = record.to(AMBIGUOUS, at, nonce="op")
            self.records.put(LEDGER_BUCKET, key, encode(record))
        if record.status != AMBIGUOUS:
            return
        status = {"sent": SENT, "send-again": PENDING, "cancel": CANCELLED}[decision]
        resolved = record.to(status, at, resolved_by="op", resolved_at=at, resolution=decision, nonce="op")
        self.records.put(LEDGER_BUCKET, key, encode(resolved))
        truth = self.truth[key]
        truth.said.append(decision)
        if decision == "send-again":
            truth.again += 1
            original = next(m for m in self.stream if key_of(BOT, m.envelope) == key)
            self.stream.append(Message(len(self.stream) + 1, original.envelope))

    def delete_bucket(self, bucket: str) -> None:
        self.records.delete(bucket)
        for truth in self.truth.values():
            truth.forgotten |= bucket == LEDGER_BUCKET
            truth.unlinked |= bool(truth.accepted)

    def chat_of(self, envelope: TelegramOutbound) -> str:
        chat = envelope.chat or ""
        while chat in self.chats:
            chat = self.chats[chat]
        return chat

    def _ledger(self) -> KvLedger:
        return KvLedger(
            self.records,
            BOT,
            parks=self.parks,
            observe=ignore,
            clock=lambda: self.now,
            wall=lambda: 1_700_000_000.0 + self.now,
        )

    def _restart(self, name: str) -> None:
        self.crashes += 1
        self.ledgers[name] = self._ledger()

    # What becomes of what is asked

    def _fate_of(self, asked: Asked) -> str:
        self.now += 0.01
        fate = self.record_fates.pop(0) if self.record_fates and self.busy else DONE
        if fate in (TAKEN_OVER, OPERATOR):
            self._interfere(fate)
            return DONE
        if fate == CRASH_BEFORE:
            raise Crash
        if fate == CRASH_AFTER:
            if asked.is_write:
                self.records.late.append(asked)
                self.records.land()
            raise Crash
        return fate

    def _interfere(self, fate: str) -> None:
        name, message = self.busy[-1]
        if fate == OPERATOR and self.decisions and message.sequence:
            self.resolve(key_of(BOT, message.envelope), self.decisions.pop(0))
        if fate == TAKEN_OVER and len(self.busy) == 1 and message.sequence:
            # It has its own faults, too: the plan goes on.
            self.deliver(message, CONNECTORS[1 - CONNECTORS.index(name)])

    def _check_write(self, bucket: str, key: str, before: bytes | None, after: bytes) -> None:
        if bucket == LEDGER_BUCKET and before:
            check_step(decode(before), decode(after), self.parks)

    # Telegram

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Tried:
        self.now += 0.01
        self.sends += 1
        key = key_of(BOT, envelope)
        if self.must_park(envelope):
            assert self.records.get(LEDGER_BUCKET, key), "sent without a record"
        fate = self.send_fates.pop(0) if self.send_fates else "sent"
        while fate in (TAKEN_OVER, OPERATOR):
            self._interfere(fate)
            fate = self.send_fates.pop(0) if self.send_fates else "sent"
        truth = self.truth[key]
        if fate in ACCEPTED:
            self._accept(envelope, truth)
        match fate:
            case "lost accepted" | "lost":
                truth.in_doubt = True
                return Ambiguous("no answer in time")
            case "502 accepted" | "502":
                truth.in_doubt = True
                return Transient(502, "Bad Gateway")
            case "429":
                return Transient(429, "Too Many Requests: retry after 5", 5.0)
            case "403":
                return Terminal(403, "Forbidden: bot was blocked by the user")
            case "down":
                return Unavailable("no connection")
            case "bot fault":
                return BotFault(401, "Unauthorized")
            case "migrated":
                return Migrated(f"{chat_id}0")
            case "broken":
                raise Broken
            case "crash before" | "crash after":
                truth.in_doubt = True
                raise Crash
        return Sent(self.ids, None, int(chat_id))

    def _accept(self, envelope: TelegramOutbound, truth: Truth) -> None:
        self.ids += 1
        truth.accepted.append(envelope.text)
        truth.ids.append(self.ids)
        if self.must_park(envelope) and not truth.forgotten:
            assert len(truth.accepted) <= 1 + truth.again, f"sent {len(truth.accepted)} times"

    def must_park(self, envelope: TelegramOutbound) -> bool:
        return self.parks if envelope.on_ambiguous is None else envelope.on_ambiguous == "park"

    def get_me(self, deadline: float, *, number: int | None = None) -> Tried:
        return Sent(None)

    def abort(self, number: int | None = None) -> bool:
        return False

    def close(self) -> None:
        pass

    # In the end

    def drain(self) -> None:
        """No more faults: everything settles, and what is on record is what happened."""
        self.record_fates, self.send_fates = [], []
        for bucket in (LEDGER_BUCKET, LINKS_BUCKET):
            self.records.provision(bucket)
        self.records.land()
        self._pay_all()
        for _ in range(20):
            self.now += 60
            for message in [m for m in self.stream if not m.settled]:
                self.deliver(message, self.rng.choice(CONNECTORS))
                self._pay_all()
            if all(m.settled for m in self.stream):
                break
        assert all(m.settled for m in self.stream), "it never ends"
        self._check_nothing_is_lost()
        self._check_records()

    def _pay_all(self) -> None:
        for name in CONNECTORS:
            for _ in range(1000):
                if not self.ledgers[name].owes:
                    break
                self.pay(name)
            assert not self.ledgers[name].owes, "it stays owed"

    def _check_nothing_is_lost(self) -> None:
        for message in self.stream:
            key = key_of(BOT, message.envelope)
            truth = self.truth[key]
            if message.settled == "acked":
                known = truth.accepted or {"sent", "cancel"} & set(truth.said)
                assert known, f"{message.envelope.msg_id} was acked and never sent"

    def _check_records(self) -> None:
        records = {r.key: r for r in self.records.records()}
        for key, truth in self.truth.items():
            record = records.get(key)
            if truth.forgotten:
                continue
            if self.parks and (truth.in_doubt or truth.accepted) and not truth.said:
                assert record is not None, "in doubt, and not on record"
                assert record.status in (SENT, AMBIGUOUS, IN_FLIGHT), f"in doubt, and {record.status}"
            if record is not None and not (self.crashes or truth.said):
                assert record.status != IN_FLIGHT, "nobody sends it, and it is on record as in flight"
            if record is not None and record.status == SENT and "sent" not in truth.said:
                assert record.message_id in truth.ids, "on record as sent, and never was"
                if not (truth.unlinked or self.crashes or self.chats):
                    self._check_link(record)

    def _check_link(self, record: Record) -> None:
        assert record.message_id is not None
        number = int(record.msg_id.removeprefix("m"))
        found = self.records.get(LINKS_BUCKET, by_message(BOT, CHATS[number % 2], record.message_id))
        assert found or record.link_missing, "no link, and nobody says so"
        assert not (found and record.link_missing), "a link, and it is on record as missing"


def check_step(old: Record, new: Record, parks: bool) -> None:
    """One write moves a record along the transitions; a begin may take several at once."""
    if new.status in TRANSITIONS[old.status]:
        return
    if new.status == IN_FLIGHT and old.status in (IN_FLIGHT, AMBIGUOUS, RATE_LIMITED, RETRYABLE, CANCELLED):
        # By way of pending: a retry, or a begin of which is known that its send did not begin.
        assert new.attempts > old.attempts
        return
    if new.status == SENT and old.status in (PENDING, RATE_LIMITED, RETRYABLE):
        return  # the late answer to an earlier send
    assert old.status == new.status == SENT, f"{old.status} became {new.status}"
    assert old.message_id == new.message_id


INDEX = st.integers(0, 30)
WHO = st.sampled_from(CONNECTORS)


class LedgerUnderFaults(RuleBasedStateMachine):
    world: World

    @initialize(parks=st.booleans(), seed=st.integers(0, 2**16))
    def begin(self, parks: bool, seed: int) -> None:
        self.world = World(parks, seed)
        self.world.publish(0)

    @rule(number=st.integers(0, 3), text=st.sampled_from(("text", "text", "text", "other")))
    def publish(self, number: int, text: str) -> None:
        self.world.publish(number, text)

    @precondition(lambda self: any(not m.settled for m in self.world.stream))
    @rule(
        index=INDEX,
        who=WHO,
        records=st.lists(st.sampled_from(RECORD_FATES), max_size=7),
        sends=st.lists(st.sampled_from(SEND_FATES), max_size=3),
        decisions=st.lists(st.sampled_from(DECISIONS), max_size=1),
    )
    def deliver(
        self, index: int, who: str, records: list[str], sends: list[str], decisions: list[str]
    ) -> None:
        world = self.world
        world.record_fates, world.send_fates, world.decisions = records, sends, decisions
        open_ones = [m for m in world.stream if not m.settled]
        world.deliver(open_ones[index % len(open_ones)], who)
        world.record_fates, world.send_fates = [], []

    @rule(who=WHO, records=st.lists(st.sampled_from(RECORD_FATES), max_size=4))
    def pay(self, who: str, records: list[str]) -> None:
        self.world.record_fates = records
        self.world.pay(who)
        self.world.record_fates = []

    @rule(index=INDEX)
    def forget_an_ack(self, index: int) -> None:
        """A server that was killed hands over again what it had settled."""
        self.world.stream[index % len(self.world.stream)].settled = ""

    @rule(index=INDEX, who=WHO)
    def expire(self, index: int, who: str) -> None:
        self.world.expire(self.world.stream[index % len(self.world.stream)], who)

    @rule(index=INDEX, decision=st.sampled_from(DECISIONS))
    def resolve(self, index: int, decision: str) -> None:
        keys = self.world.records.keys(LEDGER_BUCKET)
        if keys:
            self.world.resolve(keys[index % len(keys)], decision)

    @rule(who=WHO)
    def restart(self, who: str) -> None:
        self.world._restart(who)

    @rule()
    def land(self) -> None:
        self.world.records.land()

    @rule(bucket=st.sampled_from((LEDGER_BUCKET, LINKS_BUCKET, LINKS_BUCKET)), delete=st.booleans())
    def bucket(self, bucket: str, delete: bool) -> None:
        if delete:
            self.world.delete_bucket(bucket)
        else:
            self.world.records.provision(bucket)

    @rule(seconds=st.sampled_from((0.5, 6.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    def teardown(self) -> None:
        # Also run after a failed step, which is the one to report.
        if sys.exc_info()[0] is None and hasattr(self, "world"):
            self.world.drain()


TestLedgerUnderFaults = pytest.mark.timeout(600)(LedgerUnderFaults.TestCase)
TestLedgerUnderFaults.settings = settings(
    max_examples=3000 if THOROUGH else 250,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


# Hypothesis shrinks what it finds; plain seeds get through many more and longer schedules in the same time.


def run_schedule(seed: int) -> World:
    """One random schedule of some 40 steps and its end."""
    rng = random.Random(seed)
    world = World(parks=seed % 2 == 0, seed=seed)
    faults = rng.choice((0.1, 0.3, 0.6))
    forgets = rng.random() < 0.2  # in the others the ledger's bucket is never deleted

    def fates(of: tuple[str, ...], count: int, calm: str) -> list[str]:
        return [rng.choice(of) if rng.random() < faults else calm for _ in range(rng.randint(0, count))]

    for _ in range(rng.randint(10, 60)):
        step = rng.randrange(10)
        waiting = [m for m in world.stream if not m.settled]
        world.decisions = [rng.choice(DECISIONS)] if rng.random() < 0.2 else []
        if step == 0 or not world.stream:
            world.publish(rng.randrange(4), "other" if rng.random() < 0.1 else "text")
        elif step <= 4 and waiting:
            world.record_fates = fates(RECORD_FATES, 8, DONE)
            world.send_fates = fates(SEND_FATES, 3, "sent")
            world.deliver(rng.choice(waiting), rng.choice(CONNECTORS))
        elif step == 5:
            world.record_fates = fates(RECORD_FATES, 4, DONE)
            world.pay(rng.choice(CONNECTORS))
        elif step == 6:
            world.now += rng.choice((0.5, 6.0, 60.0))
            world.records.land()
        elif rng.random() < faults:
            fault = rng.randrange(5)
            keys = world.records.keys(LEDGER_BUCKET)
            if fault == 0:
                rng.choice(world.stream).settled = ""
            elif fault == 1 and waiting:
                world.expire(rng.choice(waiting), rng.choice(CONNECTORS))
            elif fault == 2 and keys:
                world.resolve(rng.choice(keys), rng.choice(DECISIONS))
            elif fault == 3:
                world._restart(rng.choice(CONNECTORS))
            else:
                bucket = LEDGER_BUCKET if forgets and rng.random() < 0.3 else LINKS_BUCKET
                if rng.random() < 0.5:
                    world.delete_bucket(bucket)
                else:
                    world.records.provision(bucket)
        world.record_fates, world.send_fates = [], []
    world.drain()
    return world


def test_nothing_is_doubled_or_lost_in_many_schedules() -> None:
    schedules = 40_000 if THOROUGH else 3000
    ends: Counter[str] = Counter()
    sends = 0
    for seed in range(schedules):
        try:
            world = run_schedule(seed)
        except (AssertionError, BridgeError, LedgerError) as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
        sends += world.sends
        ends.update(record.status for record in world.records.records())
    assert sends > 3 * schedules, "the schedules hardly send anything: they prove nothing"
    assert {SENT, AMBIGUOUS, TERMINAL, CANCELLED} <= set(ends), ends
