"""The stream of dead letters for operators: read, resend, discard.

A resend takes three steps: the claim in `telegram_state`, made by compare-and-set; the copy, published under
an id that follows from the claim; the mark. It may end between any two of them. Whoever comes next searches
the outbound stream for the id that was claimed, and repeats it if it is not there; what two publish at the
same time the server takes for one message, within its duplicate window.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import msgspec

from telegram_connector.bridge.client import NatsClient
from telegram_connector.bridge.consumer import nanoseconds
from telegram_connector.bridge.kv import KeyValue, NoBucket
from telegram_connector.bridge.stored import data, each, headers
from telegram_connector.clock import LeaseClock
from telegram_connector.deadletter import RESENT_OF, Copy, Letter, copy, size
from telegram_connector.envelope import MSG_ID_HEADER
from telegram_connector.errors import STREAM_NOT_FOUND, ApiError, BridgeError, EnvelopeError
from telegram_connector.marks import Change, Claim, Finish, Leave, Mark, Refuse, key, next_step, no_envelope
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import NS, STATE_BUCKET

# How old the knowledge that a copy is not there may be when it is published: a fifth of the outbound stream's
# duplicate window as provisioned, and half of one that is shorter, but enough for a slow answer.
SURE_SECONDS = 60.0
LEAST_SURE_SECONDS = 5.0
_EXPECTED_STREAM = "Nats-Expected-Stream"


class Marked(NamedTuple):
    """A letter's mark and its revision; the mark is None where it is that of another letter."""

    mark: Mark | None
    revision: int


UNMARKED = Marked(None, 0)


@dataclass(frozen=True)
class Resent:
    """A copy is in the outbound stream and marked.

    Attributes:
        msg_id: The copy's.
        stream_seq: Its sequence.
        already: It was there before.
    """

    msg_id: str
    stream_seq: int
    already: bool = False


Outcome: TypeAlias = Resent | Leave | Refuse


class _Outbound(NamedTuple):
    """What the outbound stream holds, and how long it knows duplicates."""

    first: int
    last: int
    window_seconds: float


class DeadLetters:
    """The dead letters, as an operator sees and treats them. For one thread.

    Args:
        by: Who does it, for the marks.
        now: The time for the marks, RFC 3339.
        clock: Seconds that count what a suspended machine has missed.
    """

    def __init__(
        self,
        client: NatsClient,
        settings: NatsSettings,
        by: str,
        now: Callable[[], str],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._by = by
        self._now = now
        self._clock = clock or LeaseClock()
        self._state = KeyValue(client, STATE_BUCKET)

    # Reading

    def letters(self) -> Iterator[Letter]:
        """All of them in the order of their death, read some dozens at a time.

        Raises:
            BridgeError: There is no such stream, or it cannot be read.
        """
        state = self._stream_info(self._settings.dead_stream, "TG_DEAD_STREAM")["state"]  # 0, 0 when new
        for message in self._stored(
            self._settings.dead_stream, range(max(1, int(state["first_seq"])), int(state["last_seq"]) + 1)
        ):
            if message["subject"] == self._settings.dead_subject:
                yield _letter(message)

    def letter(self, seq: int) -> Letter | None:
        """One of them; None where there is none (any more)."""
        found = list(self._stored(self._settings.dead_stream, [seq]))
        return _letter(found[0]) if found else None

    def marks(self) -> dict[int, Marked]:
        """What was done about which; a bucket that is not there holds no marks.

        Raises:
            BridgeError: The bucket cannot be read.
        """
        try:
            keys = self._state.keys(self._key("*"))
        except NoBucket:
            return {}
        entries = self._state.get_each(keys)
        return {
            int(name.rsplit(".", 1)[-1]): Marked(self._read(name, entry.value), entry.revision)
            for name, entry in zip(keys, entries, strict=True)
            if entry is not None
        }

    def marked(self, letter: Letter) -> Marked:
        """What was done about one of them, and by which revision that can be replaced.

        Raises:
            BridgeError: It cannot be read.
        """
        name = self._key(letter.seq)
        entry = self._state.get(name)
        return UNMARKED if entry is None else Marked(self._read(name, entry.value), entry.revision)

    def body(self, letter: Letter) -> Letter:
        """The letter with its body: one that did not fit comes from the outbound stream, if still there."""
        if not letter.body_omitted or letter.payload or letter.original is None:
            return letter
        sequence, stored_at_ns = letter.original
        for message in self._stored(self._settings.stream, [sequence]):
            if nanoseconds(str(message["time"])) == stored_at_ns:
                return replace(letter, payload=data(message))
        return letter

    # Resending

    def resend(self, letter: Letter, seen: Marked, change: Change, again: bool = False) -> Outcome:
        """Publish a copy of a letter once, whoever else is at it.

        Args:
            seen: The letter's mark when the operator decided. `again` is about that one: what somebody else
                has done since is not done again.
            change: What the copy is to have other than the original.
            again: Whether to resend what was resent or discarded.

        Raises:
            BridgeError: NATS; the same call again goes on where this one stopped.
        """
        while True:
            step = next_step(letter.reason, _of(letter, seen), change, again)
            if isinstance(step, Leave | Refuse):
                return step
            whole = self.body(letter)
            if whole.body_omitted and not whole.payload:
                return Refuse("its body did not fit, and the outbound stream has it no more")
            try:
                made = copy(whole, step.n if isinstance(step, Claim) else step.mark.n, change)
            except EnvelopeError as error:
                return no_envelope(error)
            if size(made.headers, made.payload) + len(_EXPECTED_STREAM + self._settings.stream) + 4 > (
                self._client.max_payload
            ):
                return Refuse("with its new id it is larger than NATS takes")
            if isinstance(step, Finish):
                return self._finish(letter, made, seen, step.mark, again)
            sure_at = self._clock()
            mark = Mark(
                letter=letter.stored_at,
                state="claimed",
                by=self._by,
                at=self._now(),
                n=step.n,
                msg_id=made.msg_id,
                change=change,
                after=self._outbound_at_start.last,
            )
            revision = self._write(letter, mark, seen.revision)
            if revision is not None:
                return self._publish(letter, made, Marked(mark, revision), mark, sure_at)
            seen, again = self.marked(letter), False  # somebody else was first

    def _finish(self, letter: Letter, made: Copy, seen: Marked, mark: Mark, again: bool) -> Outcome:
        """Go on with a copy of which nobody knows whether it was published."""
        sure_at = self._clock()
        stream_seq = self._find(letter, made, mark)
        if stream_seq is not None:
            return self._mark_resent(letter, made, Marked(mark, seen.revision), stream_seq, True)
        if not self._would_be_found(mark):
            if not again:
                return Refuse(
                    f"{mark.by} began to resend it at {mark.at}; the outbound stream does not reach back to "
                    "then, so it may have been sent: send another copy with --again"
                )
            return self._anew(letter, seen, mark)
        return self._publish(letter, made, seen, mark, sure_at)

    def _anew(self, letter: Letter, seen: Marked, mark: Mark) -> Outcome:
        """Give up a claim for a copy under the next id."""
        given_up = msgspec.structs.replace(mark, state="resent")
        return self.resend(letter, Marked(given_up, seen.revision), mark.change, again=True)

    def _publish(self, letter: Letter, made: Copy, seen: Marked, mark: Mark, sure_at: float) -> Outcome:
        window = self._outbound_at_start.window_seconds
        if self._clock() - sure_at > max(LEAST_SURE_SECONDS, min(SURE_SECONDS, window / 2)):
            # This process stood still meanwhile, and somebody else may have sent it long ago.
            return self._finish(letter, made, seen, mark, again=False)
        headers = {**made.headers, _EXPECTED_STREAM: self._settings.stream}
        try:
            receipt = self._client.publish(self._settings.subject, made.payload, headers)
        except ApiError as error:
            if error.code == 503 and error.err_code == 0:
                raise self._no_stream(self._settings.stream, "TG_STREAM") from None
            raise
        if receipt.duplicate and not any(
            _is_copy(message, letter, made) for message in self._stored(self._settings.stream, [receipt.seq])
        ):
            return self._anew(letter, seen, mark)  # of another letter, whose publisher used the id twice
        return self._mark_resent(letter, made, Marked(mark, seen.revision), *receipt)

    def _mark_resent(
        self, letter: Letter, made: Copy, claimed: Marked, stream_seq: int, already: bool
    ) -> Resent:
        assert claimed.mark is not None
        mark = msgspec.structs.replace(
            claimed.mark, state="resent", by=self._by, at=self._now(), stream_seq=stream_seq
        )
        self._write(letter, mark, claimed.revision)  # where somebody else was first, it is marked
        return Resent(made.msg_id, stream_seq, already)

    def _find(self, letter: Letter, made: Copy, mark: Mark) -> int | None:
        """The sequence of a claimed copy, if the outbound stream has it."""
        outbound = self._outbound()
        for message in self._stored(
            self._settings.stream, range(max(mark.after + 1, outbound.first), outbound.last + 1)
        ):
            if _is_copy(message, letter, made):
                return int(message["seq"])
        return None

    def _would_be_found(self, mark: Mark) -> bool:
        """Whether the outbound stream still holds all that came after the claim."""
        outbound = self._outbound()
        return outbound.first <= mark.after + 1 and mark.after <= outbound.last

    # Discarding

    def discard(self, letter: Letter, seen: Marked, why: str | None) -> bool:
        """Mark a letter as discarded; False when somebody else has done something about it since.

        Raises:
            BridgeError: It was not marked, or nobody said that it was.
        """
        before = _of(letter, seen) or Mark(letter=letter.stored_at, state="discarded", by="", at="")
        mark = msgspec.structs.replace(before, state="discarded", by=self._by, at=self._now(), why=why)
        return self._write(letter, mark, seen.revision) is not None

    def purge(self, letter: Letter) -> None:
        """Delete a letter for good; nothing happens where it is gone.

        Raises:
            BridgeError: It was not deleted, or nobody said that it was.
        """
        try:
            self._client.api(
                f"STREAM.MSG.DELETE.{self._settings.dead_stream}", {"seq": letter.seq, "no_erase": True}
            )
        except ApiError as error:
            if error.code != 404 and "no message found" not in error.description:
                raise

    # The streams and the bucket

    def _write(self, letter: Letter, mark: Mark, revision: int) -> int | None:
        name, value = self._key(letter.seq), msgspec.json.encode(mark)
        return self._state.update(name, value, revision) if revision else self._state.create(name, value)

    def _key(self, seq: int | str) -> str:
        return key(self._settings.dead_stream, seq)

    def _read(self, name: str, value: bytes) -> Mark:
        try:
            return msgspec.json.decode(value, type=Mark)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise BridgeError(f"{name} in bucket {STATE_BUCKET} cannot be read by this version") from None

    @functools.cached_property
    def _outbound_at_start(self) -> _Outbound:
        return self._outbound()

    def _outbound(self) -> _Outbound:
        info = self._stream_info(self._settings.stream, "TG_STREAM")
        state = info["state"]
        return _Outbound(
            int(state["first_seq"]),
            int(state["last_seq"]),
            int(info["config"].get("duplicate_window", 0)) / NS,
        )

    def _stream_info(self, stream: str, setting: str) -> dict[str, Any]:
        try:
            return self._client.api(f"STREAM.INFO.{stream}")
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                raise self._no_stream(stream, setting) from None
            raise

    def _no_stream(self, stream: str, setting: str) -> BridgeError:
        return BridgeError(
            f"there is no stream {stream}: make it with telegram-connector provision, or set {setting}"
        )

    def _stored(self, stream: str, sequences: Sequence[int]) -> Iterator[dict[str, Any]]:
        """What a stream has under these sequences; gaps are passed over."""
        try:
            yield from each(self._client, stream, sequences)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            ours = stream == self._settings.stream
            raise self._no_stream(stream, "TG_STREAM" if ours else "TG_DEAD_STREAM") from None


def _of(letter: Letter, seen: Marked) -> Mark | None:
    """The mark, unless it is that of a letter of an earlier stream which had the sequence."""
    return seen.mark if seen.mark is not None and seen.mark.letter == letter.stored_at else None


def _is_copy(message: dict[str, Any], letter: Letter, made: Copy) -> bool:
    """Whether this is the copy, or one that says the same under the same id, which is the same message."""
    about = headers(message)
    return about.get(MSG_ID_HEADER) == made.msg_id and (
        about.get(RESENT_OF) == str(letter.seq) or data(message) == made.payload
    )


def _letter(message: dict[str, Any]) -> Letter:
    return Letter(int(message["seq"]), str(message["time"]), headers(message), data(message))
