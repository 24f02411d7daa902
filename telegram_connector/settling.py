"""Carries out what an attempt leads to: lanes, gate, state and JetStream. Called under the worker's lock."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from telegram_connector.attempt import Attempt
from telegram_connector.deadletter import dead_letter
from telegram_connector.delivery import Ack, Delivery, DeliveryId, MessageSource, Nak, Term
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError
from telegram_connector.events import (
    AlreadySent,
    Attempted,
    BotHeld,
    BotReleased,
    ChatHeld,
    ChatMigrated,
    Observer,
    SentPlain,
    Subject,
    TopicIgnored,
)
from telegram_connector.lanes import Item, Lanes
from telegram_connector.ledger import Ledger, Outgoing
from telegram_connector.settled import SettledMemory
from telegram_connector.settlement import Policy, Settlement, settle
from telegram_connector.state import State

GIVE_BACK_GAP_SECONDS = 0.1


class Settling:
    """What is told JetStream, the lanes and the operator about each message.

    Args:
        random: Jitter in [0, 1).
        wall: Seconds since 1970.
    """

    def __init__(
        self,
        lanes: Lanes,
        source: MessageSource,
        state: State,
        policy: Policy,
        ledger: Ledger,
        observe: Observer,
        random: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._lanes = lanes
        self._source = source
        self._state = state
        self._policy = policy
        self._ledger = ledger
        self._observe = observe
        self._random = random
        self._wall = wall
        self._memory = SettledMemory()
        self._sent_plain = 0
        self._buried: queue.SimpleQueue[tuple[DeliveryId, Term]] = queue.SimpleQueue()
        self.unconfirmed: set[Future[bool]] = set()

    def has_settled(self, id_: DeliveryId) -> bool:
        """Whether this process has settled the message for good."""
        return self._memory.settled_by(id_) is not None

    def settled_before(self, delivery: Delivery, subject: Subject) -> bool:
        """Settle again what this process has settled already; False when it has not."""
        command = self._memory.settled_by(delivery.id)
        if command is None:
            return False
        self._observe(AlreadySent(subject))
        self._tell(delivery, command)
        return True

    def conclude(self, item: Item, result: Attempt, sent_to: str, seconds: float, now: float) -> None:
        """Do what an attempt leads to.

        Args:
            sent_to: The chat that the attempt was for; a migration may have moved the item since.
            seconds: How long the attempt took.
            now: Monotonic seconds.
        """
        disposition = result.disposition
        attempts = self._state.attempts(item.delivery.id)
        if isinstance(disposition, Migrated):
            if self.follow(sent_to, disposition.new_chat):
                self._lanes.put_back(item)  # first in its chat's new lane
                self._report(item, Settlement(disposition, None), attempts, seconds)
                return
            disposition = Transient(400, f"migrates in a circle: {disposition.description}")
        if isinstance(disposition, Sent):
            self._look_at_topic(item, disposition)
            if result.plain_after:
                self._sent_plain += 1
                subject = subject_of(item.delivery, item.content, item.chat)
                self._observe(SentPlain(subject, result.plain_after, self._sent_plain))
        settlement = settle(
            disposition,
            attempts=attempts,
            policy=self._policy_now(),
            bot_wait_seconds=self._gate(item, disposition, result.outage, now),
            last_hand_over=item.delivery.last,
            random=self._random,
        )
        if settlement.costs_attempt:
            attempts = self._state.failed(item.delivery.id)
        self._hold(item.chat, settlement, now)
        match settlement.command:
            case Ack():
                self._lanes.done(item)
                self._finish(item.delivery, Ack(), now)
            case Term():
                self._lanes.done(item)
                self._bury(item, settlement.disposition, attempts, now)
            case Nak() as command:
                self._lanes.returned(item, now + command.delay_seconds)
                self._track(self._source.nak(item.delivery, command.delay_seconds))
            case None:
                self._lanes.put_back(item)
        self._report(item, settlement, attempts, seconds)

    def expire(self, item: Item, outcome: Concluded | Terminal | Ambiguous, now: float) -> None:
        """Settle a message that was taken out of its lane because it is too old."""
        attempts = self._state.attempts(item.delivery.id)
        settlement = settle(
            outcome,
            attempts=attempts,
            policy=self._policy_now(),
            bot_wait_seconds=0.0,
            last_hand_over=False,
            random=self._random,
        )
        if isinstance(settlement.command, Ack):
            self._finish(item.delivery, Ack(), now)
        else:
            self._bury(item, settlement.disposition, attempts, now)
        self._report(item, settlement, attempts, 0.0)

    def give_back(self, items: list[Item], now: float) -> None:
        """Nak in stream order; what waits for a hold, or for what was nak'd before it, not before that."""
        ack_wait = self._source.ack_wait_seconds()
        for item in items:
            delay = self._lanes.due_in(item, now)
            # A little later than what it waits for, whose delay was counted from a moment before.
            delay = min(delay + GIVE_BACK_GAP_SECONDS, ack_wait) if delay else 0.0
            self._track(self._source.nak(item.delivery, delay))

    def conclude_probe(self, me: Disposition, now: float) -> None:
        """Let the gate hear what `getMe` said."""
        if isinstance(me, Sent):
            self._lanes.gate.probed()
        else:
            self.close_gate(f"getMe: {why(me)}", isinstance(me, BotFault), now)

    def close_gate(self, reason: str, fault: bool, now: float, *, ask_first: bool = False) -> float:
        """Hold the bot, see `BotGate.close`; returns for how many seconds from now."""
        gate = self._lanes.gate
        held_until = gate.held_until
        seconds = gate.close(reason, fault=fault, now=now, jitter=self._random(), ask_first=ask_first)
        if gate.held_until > held_until:
            self._observe(BotHeld(reason, seconds, gate.fault))
        return seconds

    def hold_flooded(self, chat: str, refused: Transient, now: float) -> None:
        """Hold the chat of something that was no delivery and met flood control."""
        asked = refused.retry_after_seconds
        seconds = self._policy.backoff_seconds if asked is None else asked
        self._hold(chat, Settlement(refused, None, seconds), now)

    def follow(self, old: str, new: str) -> bool:
        """Let all that goes to `old` go to `new` from now on; False for a circle."""
        if self._lanes.migrate(old, new):
            self._state.moved(old, new)
            self._observe(ChatMigrated(old, new))
            return True
        return self._lanes.resolve(old) != old

    def tidy(self) -> None:
        """Forget the dead letters that are stored, and the attempts of their messages."""
        while True:
            try:
                id_, command = self._buried.get_nowait()
            except queue.Empty:
                return
            self._state.settled(id_)
            self._memory.replace(id_, Term(command.reason))

    def _policy_now(self) -> Policy:
        ack_wait = self._source.ack_wait_seconds()
        if ack_wait != self._policy.ack_wait_seconds:  # the server has it otherwise
            self._policy = replace(self._policy, ack_wait_seconds=ack_wait)
        return self._policy

    def _look_at_topic(self, item: Item, sent: Sent) -> None:
        """Telegram may put a message into the general chat when its topic cannot be used, without a word."""
        asked = None if isinstance(item.content, EnvelopeError) else item.content.message_thread_id
        if asked is not None and sent.message_id is not None and sent.message_thread_id != asked:
            subject = subject_of(item.delivery, item.content, item.chat)
            self._observe(TopicIgnored(subject, asked, sent.message_thread_id))

    def _gate(self, item: Item, disposition: Disposition, outage: str, now: float) -> float:
        """Let the bot's gate hear of it; returns for how many seconds the bot is held."""
        gate = self._lanes.gate
        if isinstance(disposition, Sent):
            over = gate.accepted(now)
            if over is not None:
                self._observe(BotReleased(*over))
        elif isinstance(disposition, Unavailable | BotFault) or outage:
            fault, lost = isinstance(disposition, BotFault), isinstance(disposition, Ambiguous)
            return self.close_gate(outage or why(disposition), fault, now, ask_first=lost)
        elif isinstance(disposition, Terminal) or (
            isinstance(disposition, Transient) and disposition.status_code < 500
        ):
            gate.answered()
        return max(0.0, gate.held_until - now)

    def _hold(self, chat: str, settlement: Settlement, now: float) -> None:
        if settlement.hold_seconds <= 0:
            return
        until = now + settlement.hold_seconds
        if self._lanes.hold(chat, until):
            wall = self._wall()
            self._state.held(chat, wall + settlement.hold_seconds, wall)
            self._observe(ChatHeld(chat, settlement.hold_seconds, why(settlement.disposition)))
        refused = settlement.disposition
        if not (isinstance(refused, Transient) and refused.rate_limited):
            return
        if self._lanes.flooded(chat, until, now):
            gate = self._lanes.gate
            self._observe(BotHeld(gate.reason, gate.held_until - now, False))

    def _bury(self, item: Item, terminal: Disposition, attempts: int, now: float) -> None:
        """Term, after the dead letter is stored; only the storing is retried, and the lane goes on."""
        assert isinstance(terminal, Terminal)
        delivery = item.delivery
        if not isinstance(item.content, EnvelopeError):
            self._ledger.drop(Outgoing(delivery, item.content, item.chat), terminal)
        keeps = self._source.keeps_dead_letters()
        command = Term(terminal.reason, dead_letter(delivery, terminal, attempts) if keeps else None)
        future = self._finish(delivery, command, now)
        future.add_done_callback(lambda done: self._note_buried(done, delivery.id, command))

    def _note_buried(self, future: Future[bool], id_: DeliveryId, command: Term) -> None:
        # On the bridge's thread, without the lock: `tidy` does the rest.
        if not future.cancelled() and future.exception() is None and future.result():
            self._buried.put((id_, command))

    def _finish(self, delivery: Delivery, command: Ack | Term, now: float) -> Future[bool]:
        self._memory.remember(delivery.id, command, now)
        if isinstance(command, Ack):
            self._state.settled(delivery.id)
        return self._tell(delivery, command)

    def _tell(self, delivery: Delivery, command: Ack | Term) -> Future[bool]:
        match command:
            case Ack():
                return self._track(self._source.ack(delivery))
            case Term():
                return self._track(self._source.term(delivery, command.reason, command.dead_letter))

    def _track(self, future: Future[bool]) -> Future[bool]:
        self.unconfirmed.add(future)
        future.add_done_callback(self.unconfirmed.discard)
        return future

    def _report(self, item: Item, settlement: Settlement, attempts: int, seconds: float) -> None:
        command = settlement.command
        self._observe(
            Attempted(
                subject_of(item.delivery, item.content, item.chat),
                settlement.disposition,
                attempts,
                seconds * 1000,
                {Ack: "ack", Nak: "nak", Term: "term"}.get(type(command), "kept"),
                command.delay_seconds if isinstance(command, Nak) else settlement.hold_seconds or None,
                isinstance(command, Term) and self._source.keeps_dead_letters(),
                self._wall() - item.delivery.id.stored_at_ns / 1e9,
            )
        )


def subject_of(delivery: Delivery, content: TelegramOutbound | EnvelopeError, chat: str) -> Subject:
    """What events say of a message."""
    if isinstance(content, EnvelopeError):
        return Subject(delivery.headers.get("Nats-Msg-Id", ""), "", None, delivery.id.sequence)
    return Subject(content.msg_id, chat, content.kind, delivery.id.sequence)


def why(disposition: Disposition) -> str:
    """A disposition in a few words."""
    return getattr(disposition, "description", "") or type(disposition).__name__
