"""What operators have done about dead letters: a mark for each in `telegram_state`, and what it allows next.

A resend is claimed before it is published and marked after it. Whoever finds a claim without the mark goes on
with what was claimed, under the same id, so that neither an interruption nor a second operator sends it
twice. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from telegram_connector.errors import EnvelopeError

KEY = "dead"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a copy has other than its original.

    Attributes:
        chat: To be sent there instead; None for where the original was to go.
        plain: The plain text of its markup, without a parse mode.
    """

    chat: str | None = None
    plain: bool = False


class Mark(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was done about one dead letter last.

    Attributes:
        letter: When the letter was stored, in the server's words: a stream that is made anew counts from 1.
        state: ``claimed`` while a copy is being published, ``resent`` once it was, or ``discarded``.
        by: Who did it, ``user@host``.
        at: When, RFC 3339.
        n: Number of the last copy; 0 while there has been none.
        msg_id: The last copy's.
        change: The last copy's.
        after: The outbound stream's last sequence before the last copy was published.
        stream_seq: The last copy's sequence in the outbound stream.
        why: What whoever discarded it said.
    """

    letter: str
    state: Literal["claimed", "resent", "discarded"]
    by: str
    at: str
    n: int = 0
    msg_id: str | None = None
    change: Change = Change()
    after: int = 0
    stream_seq: int | None = None
    why: str | None = None


@dataclass(frozen=True)
class Claim:
    """A copy is to be made, with this number."""

    n: int


@dataclass(frozen=True)
class Finish:
    """A copy was claimed, and nobody knows whether it was published: the same one, unless it is there."""

    mark: Mark


@dataclass(frozen=True)
class Leave:
    """Nothing is to be done, for a reason that is no fault."""

    why: str


@dataclass(frozen=True)
class Refuse:
    """It must not be done, or cannot be."""

    why: str


Step: TypeAlias = Claim | Finish | Leave | Refuse


def next_step(reason: str, mark: Mark | None, change: Change, again: bool) -> Step:
    """What a resend has to do about a letter.

    Args:
        reason: Why it is a dead letter.
        mark: What was done about it; None for nothing.
        change: What the copy is to have other than the original.
        again: Whether what was resent or discarded is to be sent all the same.
    """
    if reason == "ambiguous":
        return Refuse("it may have been sent: see ledger list, and settle it with ledger resolve")
    if mark is None:
        return Claim(1)
    if mark.state == "claimed" and mark.change == change:
        return Finish(mark)
    if again:
        return Claim(mark.n + 1)
    if mark.state == "claimed":
        return Refuse(
            f"{mark.by} began to resend it at {mark.at} {_in_words(mark.change)}: finish that with the same "
            "options, or send another copy with --again"
        )
    return Leave(f"{mark.state} by {mark.by} at {mark.at}")


def settles(mark: bytes, stored_at: str) -> bool:
    """Whether a mark says that nothing is left to do about the letter that was stored at `stored_at`."""
    try:
        found = msgspec.json.decode(mark, type=Mark)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return found.letter == stored_at and found.state != "claimed"


def no_envelope(error: EnvelopeError) -> Refuse:
    """The refusal of what a connector would not take, whatever its id."""
    return Refuse(f"it is no envelope that could be sent: {error}")


def key(dead_stream: str, sequence: int | str, default_stream: str = "TELEGRAM_DEAD") -> str:
    """The key of a letter's mark: ``dead.<sequence>``; streams other than the usual one are named in it."""
    return f"{KEY}.{sequence}" if dead_stream == default_stream else f"{KEY}.{dead_stream}.{sequence}"


def _in_words(change: Change) -> str:
    chat = f"to {change.chat}" if change.chat else "to its own chat"
    return f"{chat}, plain" if change.plain else chat
