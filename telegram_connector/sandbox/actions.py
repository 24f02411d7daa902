"""What a fault rule does to a call: a closed union of actions, and those that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from telegram_connector.sandbox.answers import Answer
from telegram_connector.sandbox.presets import ALIASES, PRESETS

BEFORE_BODY = "before_body"
BEFORE_ANSWER = "before_answer"
AFTER_ACCEPT = "after_accept"


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} is {' or '.join(allowed)}, not {value!r}")


@dataclass(frozen=True)
class Pass:
    """The call is carried out and answered as ever; useful with a delay."""


@dataclass(frozen=True)
class Say:
    """Another answer than the method's.

    Attributes:
        answer: What is said.
        accept: Whether the method is carried out all the same, so that a message exists behind a refusal.
    """

    answer: Answer
    accept: bool = False


@dataclass(frozen=True)
class Reset:
    """A TCP reset instead of an answer.

    Attributes:
        when: ``before_body`` (the request's body is not read), ``before_answer`` (read, nothing carried
            out) or ``after_accept`` (carried out: a message exists).
    """

    when: str

    def __post_init__(self) -> None:
        _one_of("reset", self.when, (BEFORE_BODY, BEFORE_ANSWER, AFTER_ACCEPT))


@dataclass(frozen=True)
class Half:
    """Carried out, but only half of the answer's body comes before the connection ends."""


@dataclass(frozen=True)
class Drip:
    """Carried out, but the answer's body comes in small pieces.

    Attributes:
        bytes: Size of a piece.
        interval_seconds: Time between two.
    """

    bytes: int = 1
    interval_seconds: float = 0.05

    def __post_init__(self) -> None:
        if self.bytes < 1:
            raise ValueError("drip: bytes must be at least 1")


@dataclass(frozen=True)
class Silence:
    """No answer for a long time, then a reset.

    Attributes:
        seconds: How long; it ends sooner when the caller hangs up or the sandbox stops.
        when: ``after_accept`` (a message exists) or ``before_answer`` (nothing carried out).
    """

    seconds: float = 60.0
    when: str = AFTER_ACCEPT

    def __post_init__(self) -> None:
        _one_of("silence", self.when, (BEFORE_ANSWER, AFTER_ACCEPT))


Action: TypeAlias = Pass | Say | Reset | Half | Drip | Silence

# Faults of the connection; those that are answers are in `presets`.
WIRE_PRESETS: Mapping[str, Action] = {
    "reset-before": Reset(BEFORE_BODY),
    "reset-after": Reset(AFTER_ACCEPT),
    "half-body": Half(),
    "slow-drip": Drip(),
    "timeout-after-accept": Silence(),
}
PRESET_NAMES = (*PRESETS, *ALIASES, *WIRE_PRESETS)
