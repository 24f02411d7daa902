"""Dead letters as operators choose and treat them, by whatever they do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from telegram_connector.ages import Ages
from telegram_connector.bridge import DeadLetters
from telegram_connector.bridge.deadletters import UNMARKED, Marked, Outcome
from telegram_connector.deadletter import Letter, copy
from telegram_connector.errors import EnvelopeError
from telegram_connector.marks import Change, Claim, Finish, Mark, Step, next_step, no_envelope

REASONS = ("refused", "unreadable", "gave_up", "ambiguous", "expired", "conflict")
# Why one is dead, and what to do about it; docs/operations.md says more.
ADVICE: Mapping[str, tuple[str, str]] = {
    "refused": (
        "Telegram refused it.",
        "400 is about what it says: mend its publisher, and resend it as plain text meanwhile. 403 is about "
        "who it is for: let the bot in again and resend it, send it to another chat, or discard it.",
    ),
    "unreadable": (
        "It is no envelope that a connector can read; Telegram was not asked.",
        "Mend its publisher, and publish it anew.",
    ),
    "gave_up": (
        "It failed too often, for reasons of its own.",
        "Look whether the chat shows it, then resend it.",
    ),
    "ambiguous": (
        "Nobody knows whether Telegram has it.",
        "Look into the chat, then settle it among what is in doubt.",
    ),
    "expired": (
        "It was too old to be sent.",
        "Resend what still matters; see why it waited so long.",
    ),
    "conflict": (
        "Its msg_id was used before for something else.",
        "Mend its publisher's ids, and publish it anew.",
    ),
}
ANY_AGE = Ages()
DEFAULT_CHAT = "default"  # how letters are asked for that named no chat


@dataclass(frozen=True)
class Filter:
    """Which letters are meant; what is empty excludes none."""

    seqs: frozenset[int] = frozenset()
    reasons: frozenset[str] = frozenset()
    chats: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    msg_ids: frozenset[str] = frozenset()
    ages: Ages = ANY_AGE

    def __bool__(self) -> bool:
        return bool(self.seqs or self.reasons or self.chats or self.kinds or self.msg_ids or self.ages)

    def holds(self, letter: Letter, now: datetime) -> bool:
        return (
            (not self.seqs or letter.seq in self.seqs)
            and (not self.reasons or letter.reason in self.reasons)
            and (not self.chats or (letter.chat or DEFAULT_CHAT) in self.chats)
            and (not self.kinds or letter.kind in self.kinds)
            and (not self.msg_ids or letter.msg_id in self.msg_ids)
            and self.ages.hold(letter.dead_at, now)
        )


@dataclass(frozen=True)
class Row:
    """A letter and what was done about it."""

    letter: Letter
    seen: Marked

    @property
    def mark(self) -> Mark | None:
        """The mark, unless it is that of a letter of an earlier stream which had the sequence."""
        mark = self.seen.mark
        return mark if mark is not None and mark.letter == self.letter.stored_at else None

    @property
    def status(self) -> str:
        return "open" if self.mark is None else self.mark.state

    def step(self, change: Change, again: bool) -> Step:
        """What a resend would have to do about it; a body that is elsewhere is not looked at."""
        step = next_step(self.letter.reason, self.mark, change, again)
        if isinstance(step, Claim | Finish) and not self.letter.body_omitted:
            try:
                copy(self.letter, 1, change)
            except EnvelopeError as error:
                return no_envelope(error)
        return step

    def light(self) -> Row:
        """The row without headers and body, which are read again when its turn comes."""
        return Row(Letter(self.letter.seq, self.letter.stored_at, {}, b""), self.seen)


def rows_of(letters: DeadLetters, wanted: Filter, now: datetime) -> Iterator[Row]:
    """The letters that are wanted, in stream order; what was done about them is read first.

    Raises:
        BridgeError: They cannot be read.
    """
    marks = letters.marks()
    found = (
        (letter for seq in sorted(wanted.seqs) if (letter := letters.letter(seq)) is not None)
        if wanted.seqs
        else letters.letters()
    )
    for letter in found:
        if wanted.holds(letter, now):
            yield Row(letter, marks.get(letter.seq, UNMARKED))


def resend_one(letters: DeadLetters, row: Row, change: Change, again: bool) -> Outcome | None:
    """Publish a copy of the letter as it is now; None where it is gone.

    Raises:
        BridgeError: NATS; the same call again goes on where this one stopped.
    """
    letter = letters.letter(row.letter.seq)
    if letter is None or letter.stored_at != row.letter.stored_at:
        return None
    return letters.resend(letter, row.seen, change, again)


def discard_one(letters: DeadLetters, row: Row, why: str | None, purge: bool) -> bool:
    """Put a letter aside, or with `purge` delete it; False when somebody else is at it.

    Raises:
        BridgeError: It was not done, or nobody said that it was.
    """
    if row.status != "discarded" and not letters.discard(row.letter, row.seen, why):
        return False
    if purge:
        letters.purge(row.letter)
    return True
