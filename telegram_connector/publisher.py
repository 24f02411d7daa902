"""Publishing from a synchronous program: checked before, confirmed after, waiting within bounds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from telegram_connector.bridge import THREAD_NAME, Outlet, PublishAck
from telegram_connector.docket import Begun, Docket, Found, Raced
from telegram_connector.envelope import MSG_ID_HEADER, TelegramOutbound, encode
from telegram_connector.errors import BridgeError, EnvelopeError, LedgerError, PublishFailed, SettingsError
from telegram_connector.fitness import fits, reads_well
from telegram_connector.projection import (
    Context,
    Decision,
    Earlier,
    GroupState,
    LocalMessage,
    Policy,
    Projected,
    Route,
    Withheld,
    msg_id,
    project,
)
from telegram_connector.record import PENDING
from telegram_connector.settings import NatsSettings
from telegram_connector.traceparent import carried

__all__ = ["THREAD_NAME", "Check", "PublishAck", "Published", "Publisher", "Withheld", "fits", "reads_well"]

TIMEOUT_SECONDS = 10.0
# All tries of one call share an id. They lie within the duplicate window: 5 minutes as provisioned, 2 minutes
# where a stream was made with the server's default.
MAX_TIMEOUT_SECONDS = 100.0
CLOSE_SECONDS = 2.0

RACES = 4
CONFIRM_SECONDS = 1.0  # for the note that the stream has it, where the budget is used up

Check = Callable[[TelegramOutbound], None]
Recorder = Callable[[Decision], None]
Progress = Callable[[TelegramOutbound, PublishAck], None]


@dataclass(frozen=True)
class Published:
    """A local message left.

    Attributes:
        decision: By which decision.
        acks: The receipts of this call, a part each: fewer than there are parts where a call before was
            interrupted and this one went on.
    """

    decision: Decision
    acks: tuple[PublishAck, ...]


class Publisher:
    """Publishes envelopes to the outbound stream, from any thread.

    It connects when the first envelope is published, and anew after the connection was lost. In a forked
    child it connects for itself; the parent's connection is the parent's. A program that exits without
    closing it is not held up. It reads no environment and sets up no logging.

    Args:
        settings: Where to publish, and as whom.
        check: Raises `EnvelopeError` for what is not to be published. True for `reads_well`, which refuses
            what Telegram would refuse; False for nothing but the envelope's own rules.
        bot: The bot's id, which stands before the colon in its token: `publish_local` then puts each decision
            in the ledger, under the key that the relay uses with TG_LEDGER=kv. None for no ledger.
        recorder: Called with each decision of `publish_local` before anything is published, perhaps with the
            same one twice; if it raises, nothing is published.
        name: What the server calls the connection.

    Raises:
        SettingsError: No server, or a subject with a wildcard.
        ValueError: `bot` is no id.
    """

    def __init__(
        self,
        settings: NatsSettings,
        *,
        check: bool | Check = True,
        bot: str | None = None,
        recorder: Recorder | None = None,
        name: str = "telegram_connector publisher",
    ) -> None:
        if not settings.nats_servers:
            raise SettingsError(["NATS_URL is not set"])
        if {"*", ">"} & set(settings.subject.split(".")):
            raise SettingsError(["TG_SUBJECT has a wildcard: set it to the one subject to publish to"])
        if bot is not None and not re.fullmatch("[0-9]+", bot):
            raise ValueError("bot must be the bot's id: the digits before the colon of its token, no more")
        self._settings = settings
        self._check = check if callable(check) else reads_well if check else _anything
        self._bot = bot
        self._recorder = recorder
        self._name = name
        self._closed = False
        # One per process that has published: a parent's stay here untouched, its threads and locks are not
        # ours. Kept by process and not by a hook of the fork's, since not every host that forks runs those.
        self._outlets: dict[int, Outlet] = {}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value among the settings."""
        return self._settings.secrets

    def publish(
        self,
        envelope: TelegramOutbound,
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> PublishAck:
        """Publish one envelope and wait until the stream has it.

        Within the budget a broker that is away is waited for, and an answer that does not come is asked for
        again under the same id, which stores nothing twice. Publishing the same envelope again after a
        failure is safe within the duplicate window (5 minutes as provisioned), from another process too.
        After that the stream has forgotten the id: what `maybe_stored` had left open may then be doubled.

        Args:
            envelope: What to say.
            timeout_seconds: Above 0, at most 100.
            headers: More headers; none of NATS's own. Without a ``traceparent`` among them it is that of the
                current OpenTelemetry span, if any.

        Returns:
            The sequence in the stream, and whether the stream had the `msg_id` already: from before, or from
            an earlier try of this call whose answer was lost.

        Raises:
            TextRefused: Telegram would refuse its text, in its words; nothing was published.
            EnvelopeError: It is no envelope, does not pass the check, or is larger than the server takes;
                nothing was published.
            PublishFailed: It was not stored, or nobody knows (`maybe_stored`).
            ValueError: A header or the timeout is not possible.
        """
        return self._send(envelope, self._checked(envelope), timeout_seconds, headers)

    def publish_many(
        self,
        envelopes: Iterable[TelegramOutbound],
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> list[PublishAck]:
        """Publish envelopes in their order, each after the one before it is stored.

        All are checked before the first is published. The first that fails ends it; publishing all of them
        again is safe within the duplicate window.

        Args:
            envelopes: What to say.
            timeout_seconds: For each of them.
            headers: As for `publish`, on each of them.
            progress: Called with each envelope and its receipt, once it is stored.

        Raises:
            EnvelopeError: As for `publish`; nothing was published, unless it is only the server's limit.
            PublishFailed: Of the first that failed; it names the `msg_id`, and none after it was published.
            ValueError: A header or the timeout is not possible.
        """
        acks = []
        for envelope, payload in [(e, self._checked(e)) for e in envelopes]:
            ack = self._send(envelope, payload, timeout_seconds, headers)
            acks.append(ack)
            if progress is not None:
                progress(envelope, ack)
        return acks

    def publish_local(
        self,
        message: LocalMessage,
        route: Route,
        context: Context | None,
        policy: Policy | None = None,
        *,
        earlier: Earlier | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> Published | Withheld:
        """Decide whether a local message may leave by a route, put that on record, and publish it.

        With a ledger (`bot`), a message that was published before is not published again, nor one that was
        edited since: the answer is `Withheld` with the status on record. What was begun and not confirmed, by
        a crash or a `PublishFailed`, is taken up again by the same call. Parts are published one by one.

        Without a ledger, what `earlier` says stands, and else the stream's duplicate window.

        Args:
            message: The message.
            route: Where it would go.
            context: What links it to the route; None for nothing, and then it stays.
            policy: What may leave; `Policy()` without.
            earlier: What the program itself has on record about it, if anything. None where publishing was
                begun and is not known to be done: else a crash in between would withhold it for good.
            timeout_seconds: For all of it; above 0, at most 100.
            headers: As for `publish`.

        Raises:
            EnvelopeError: As for `publish`.
            PublishFailed: The ledger cannot be used, or as for `publish`, of the first part that failed. The
                same call again goes on from there.
            ValueError: A header or the timeout is not possible.
        """
        whole = msg_id(route.id, message.id)
        deadline = time.monotonic() + _possible(timeout_seconds)
        decide = partial(project, message, route, context, policy or Policy())
        result = decide(earlier=earlier)
        envelopes = result.envelopes if isinstance(result, Projected) else ()
        payloads = {envelope.msg_id: self._checked(envelope) for envelope in envelopes}
        if self._bot is None:
            self._tell(result.decision)
            if isinstance(result, Withheld):
                return result
            acks = [self._send(e, payloads[e.msg_id], _left(whole, deadline), headers) for e in envelopes]
            return Published(result.decision, tuple(acks))
        docket = Docket(self._open_outlet(whole), self._bot)
        for _ in range(RACES):
            try:
                found = docket.look(message, route, envelopes, _left(whole, deadline))
                known = found.earlier(envelopes)
                decided = result if known is None else decide(earlier=known)
                self._tell(decided.decision)
                if isinstance(decided, Withheld):
                    if decided.status is None:
                        docket.withhold(found, message, route, decided.decision, _left(whole, deadline))
                    return decided
                begun = self._begin(docket, found, whole, envelopes, deadline)
            except Raced:
                continue
            except (BridgeError, LedgerError) as error:
                raise _unusable(whole, error) from None
            return self._publish_begun(docket, decided, begun, payloads, decide, deadline, headers)
        raise PublishFailed(whole, "others write its records all the time", maybe_stored=False)

    def group_status(
        self, message_id: str, route: Route, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> GroupState | None:
        """What became of a local message on a route, part by part, as the ledger has it.

        Returns:
            One part where it was not split; None where nothing is on record.

        Raises:
            PublishFailed: The ledger cannot be used.
            ValueError: There is none (`bot`), or the timeout is not possible.
        """
        if self._bot is None:
            raise ValueError("without a bot there is no ledger to ask")
        whole = msg_id(route.id, message_id)
        try:
            docket = Docket(self._open_outlet(whole), self._bot)
            return docket.group_status(message_id, route, _possible(timeout_seconds))
        except (BridgeError, LedgerError) as error:
            raise _unusable(whole, error) from None

    def start(self) -> None:
        """Start this process's thread now; connecting waits for the first publish.

        `publish` does it otherwise. But Python 3.12 starts no threads while it exits: a program that may
        publish first in an exit handler calls this before.

        Raises:
            Disconnected: The publisher is closed, or no thread can be started.
        """
        self._outlet().start()

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Close this process's connection; who waits for a receipt gets `PublishFailed`. Idempotent."""
        self._closed = True
        if outlet := self._outlets.get(os.getpid()):
            outlet.close(timeout_seconds)

    def _checked(self, envelope: TelegramOutbound) -> bytes:
        payload = encode(envelope)
        if not _is_header_value(envelope.msg_id):
            raise EnvelopeError("msg_id", "control characters or outer white space, which no header carries")
        self._check(envelope)
        return payload

    def _send(
        self,
        envelope: TelegramOutbound,
        payload: bytes,
        timeout_seconds: float,
        headers: Mapping[str, str] | None,
    ) -> PublishAck:
        _possible(timeout_seconds)
        outlet = self._open_outlet(envelope.msg_id)
        headers = _sound(headers or {})
        with_id = {**headers, **carried(headers), MSG_ID_HEADER: envelope.msg_id}
        return outlet.publish(self._settings.subject, payload, with_id, timeout_seconds)

    @staticmethod
    def _begin(
        docket: Docket, found: Found, whole: str, envelopes: Sequence[TelegramOutbound], deadline: float
    ) -> list[tuple[TelegramOutbound, Begun]]:
        """Put on record what is to be published: all of it before the first part leaves."""
        begun = [
            (envelope, docket.begin(found, envelope, _left(whole, deadline)))
            for envelope in envelopes
            if not found.is_begun(envelope)
        ]
        if len(envelopes) > 1:
            docket.forget_whole(found, whole, _left(whole, deadline))
        return begun

    def _publish_begun(
        self,
        docket: Docket,
        result: Projected,
        begun: Sequence[tuple[TelegramOutbound, Begun]],
        payloads: Mapping[str, bytes],
        decide: Callable[..., Projected | Withheld],
        deadline: float,
        headers: Mapping[str, str] | None,
    ) -> Published | Withheld:
        acks = []
        for envelope, entry in begun:
            left = _left(envelope.msg_id, deadline)
            ack = self._send(envelope, payloads[envelope.msg_id], left, headers)
            left = max(CONFIRM_SECONDS, deadline - time.monotonic())
            if ack.duplicate and entry.before is not None:
                # It was edited after a call that was cut off, whose text the stream has: that one stands.
                for _, other in begun:
                    docket.put_back(other, ack.seq if other is entry else None, left)
                of_then = entry.before.text_hash or result.decision.text_hash
                stays = decide(earlier=Earlier(status=PENDING, text_hash=of_then))
                assert isinstance(stays, Withheld)
                return stays
            docket.confirm(entry, ack.seq, left)
            acks.append(ack)
        return Published(result.decision, tuple(acks))

    def _tell(self, decision: Decision) -> None:
        if self._recorder is not None:
            self._recorder(decision)

    def _open_outlet(self, msg_id: str) -> Outlet:
        if self._closed:
            raise PublishFailed(msg_id, "the publisher is closed", maybe_stored=False)
        return self._outlet()

    def _outlet(self) -> Outlet:
        process = os.getpid()
        if process not in self._outlets:
            # Of two threads that come here together one wins; the other's was never started.
            self._outlets.setdefault(process, Outlet(self._settings, self._name))
        return self._outlets[process]

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _anything(_envelope: TelegramOutbound) -> None:
    """The check of those who want none."""


def _possible(timeout_seconds: float) -> float:
    if not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"timeout_seconds must be above 0 and at most {MAX_TIMEOUT_SECONDS:g}")
    return timeout_seconds


def _unusable(msg_id: str, error: BridgeError | LedgerError) -> PublishFailed:
    if isinstance(error, PublishFailed):
        return error
    return PublishFailed(msg_id, f"the ledger cannot be used: {error}", maybe_stored=False)


def _left(msg_id: str, deadline: float) -> float:
    """What is left of the budget, seconds."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise PublishFailed(msg_id, "no time is left for it", maybe_stored=False)
    return seconds


def _is_header_value(text: str) -> bool:
    return text == text.strip() and not re.search(r"[\x00-\x1f\x7f]", text)


def _sound(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or name.lower().startswith("nats-"):
            raise ValueError(f"header {name!r}: no header's name, or one of NATS's own")
        if not _is_header_value(value):
            raise ValueError(f"header {name!r}: control characters or outer white space in its value")
    return headers
