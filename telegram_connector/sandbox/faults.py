"""Faults by rule: which call they meet, and what happens to it.

A rule has one action. Rules are asked in order and the first that fires decides.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from telegram_connector.sandbox.actions import (
    BEFORE_BODY,
    PRESET_NAMES,
    WIRE_PRESETS,
    Action,
    Drip,
    Pass,
    Reset,
    Say,
    Silence,
)
from telegram_connector.sandbox.answers import (
    HTML,
    JSON,
    Answer,
    from_preset,
    refusal,
    with_headers,
)
from telegram_connector.sandbox.params import Params
from telegram_connector.sandbox.presets import named


@dataclass(frozen=True)
class Rule:
    """One rule. What is not given matches every call.

    Attributes:
        action: What happens.
        name: For the counters and to replace it; "" for none.
        preset: The preset it was made from; "" for none.
        method: Bot API method, in any letter case.
        chat: ``chat_id`` as the caller names it, a number or ``@name``.
        text: Regular expression searched for in ``text``.
        nth: Only the nth matching call, from 1.
        every: Only every so many-th matching call.
        times: At most so often.
        probability: Chance of each matching call, 0 to 1; the same seed gives the same calls.
        seed: Of that chance.
        delay_seconds: The answer, or the reset, comes so much later; what is carried out is carried out at
            once.
    """

    action: Action
    name: str = ""
    preset: str = ""
    method: str | None = None
    chat: int | str | None = None
    text: str | None = None
    nth: int | None = None
    every: int | None = None
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is from 0 to 1, not {self.probability}")
        for what, number in (("nth", self.nth), ("every", self.every), ("times", self.times)):
            if number is not None and number < 1:
                raise ValueError(f"{what} is at least 1, not {number}")
        if self.action == Reset(BEFORE_BODY) and (self.chat is not None or self.text is not None):
            raise ValueError("a reset before the body is read cannot go by chat or text; use before_answer")
        if self.text is not None:
            try:
                re.compile(self.text)
            except re.error as error:
                raise ValueError(f"text is a regular expression: {error}") from None

    @property
    def label(self) -> str:
        """What the record calls it: its name, else its preset, else the kind of its action."""
        return self.name or self.preset or type(self.action).__name__.lower()

    @property
    def reads_body(self) -> bool:
        """Whether the rule is asked only once the body is read."""
        return self.action != Reset(BEFORE_BODY)

    def matches(self, method: str, params: Params) -> bool:
        """Whether the rule is about such a call at all."""
        return (
            (self.method is None or self.method.lower() == method.lower())
            and (self.chat is None or str(self.chat) == params.get("chat_id"))
            and (self.text is None or re.search(self.text, params.get("text", "")) is not None)
        )


@dataclass
class Fault:
    """A rule at work.

    Attributes:
        rule: The rule.
        matched: Calls it was about so far.
        fired: Calls it acted on so far.
    """

    rule: Rule
    matched: int = 0
    fired: int = 0
    _random: random.Random = field(default_factory=random.Random, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.rule.seed)  # noqa: S311 - repeatable on purpose

    def fires(self, method: str, params: Params) -> bool:
        """Counts a call; whether the rule acts on it."""
        rule = self.rule
        if not rule.matches(method, params):
            return False
        self.matched += 1
        # Drawn for every matching call, so that the other conditions do not shift the sequence.
        lucky = self._random.random() < rule.probability
        hit = (
            lucky
            and (rule.nth is None or self.matched == rule.nth)
            and (rule.every is None or self.matched % rule.every == 0)
            and (rule.times is None or self.fired < rule.times)
        )
        self.fired += hit
        return hit

    def as_json(self) -> dict[str, Any]:
        """The rule and its counters."""
        shown = {f.name: getattr(self.rule, f.name) for f in fields(Rule) if f.name != "action"}
        rule = {name: value for name, value in shown.items() if value not in (None, "")}
        return {
            "name": self.rule.label,
            **rule,
            "action": repr(self.rule.action),
            "matched": self.matched,
            "fired": self.fired,
        }


class Faults:
    """The rules of one sandbox, in order; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, rule: Rule) -> Fault:
        """Adds a rule after all others; one of the same name is replaced in its place, its counters at 0."""
        fault = Fault(rule)
        with self._lock:
            for index, other in enumerate(self._faults):
                if rule.name and other.rule.name == rule.name:
                    self._faults[index] = fault
                    return fault
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Takes a rule back; nothing happens where it is gone already."""
        with self._lock:
            self._faults = [other for other in self._faults if other is not fault]

    def replace_all(self, rules: Iterable[Rule]) -> None:
        """These rules and no others."""
        fresh = [Fault(rule) for rule in rules]
        with self._lock:
            self._faults = fresh

    def all(self) -> tuple[Fault, ...]:
        """The rules at work."""
        with self._lock:
            return tuple(self._faults)

    def meet(self, method: str, params: Params | None) -> Rule | None:
        """The rule that acts on a call; `params` is None while its body is unread."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.rule.reads_body is (params is not None) and fault.fires(method, params or {}):
                    return fault.rule
        return None


def read_rule(value: Mapping[str, Any]) -> Rule:
    """A rule from its JSON object, see docs/sandbox.md.

    Raises:
        ValueError: A field is unknown or its value not allowed, or more than one action is named.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"a fault rule is an object, not {value!r}")  # noqa: TRY004 - as for all else in a file
    rest = dict(value)
    headers = rest.pop("headers", {})
    numbers: dict[str, int] = {
        str(key): rest.pop(key) for key in ("retry_after", "migrate_to_chat_id") if key in rest
    }
    accept = rest.pop("accept", False)
    named_actions = [key for key in ("preset", "answer", "reset", "drip", "silence") if key in rest]
    if len(named_actions) > 1:
        raise ValueError(f"one action a rule, not {' and '.join(named_actions)}")
    kind = named_actions[0] if named_actions else "pass"
    if numbers and kind != "preset":
        raise ValueError(f"{' and '.join(numbers)} only with a preset")
    given = rest.pop(kind, None)
    unknown = sorted(set(rest) - {f.name for f in fields(Rule)} | ({"action"} & set(rest)))
    if unknown:
        raise ValueError(f"unknown in a fault rule: {', '.join(unknown)}")
    try:
        action = _read_action(kind, given, numbers, accept)
        if isinstance(action, Say):
            action = Say(with_headers(action.answer, headers), action.accept)
        return Rule(action, preset=str(given) if kind == "preset" else "", **rest)
    except TypeError as error:
        raise ValueError(f"fault rule: {error}") from None


def parse_rule(spec: str) -> Rule:
    """A rule from a flag's text, ``PRESET[:KEY=VALUE,…]``, e.g. ``flood:chat=5,times=1,retry_after=7``.

    Raises:
        ValueError: It is no such text, or no such rule.
    """
    preset, _, conditions = spec.partition(":")
    value: dict[str, Any] = {"preset": preset}
    for condition in filter(None, conditions.split(",")):
        key, equals, word = condition.partition("=")
        if not equals:
            raise ValueError(f"a fault is PRESET or PRESET:key=value,…, not {spec!r}")
        value[key] = _number_or_word(key, word)
    return read_rule(value)


def _read_action(kind: str, given: Any, numbers: Mapping[str, int], accept: bool) -> Action:
    if kind == "pass":
        return Pass()
    if kind == "reset":
        return Reset(given)
    if kind == "drip":
        return Drip(**given)
    if kind == "silence":
        return Silence(**given)
    if kind == "answer":
        return Say(_read_answer(**given), accept)
    preset = named(given)
    if preset is None and given not in WIRE_PRESETS:
        raise ValueError(f"unknown preset {given!r}; known are {', '.join(PRESET_NAMES)}")
    strange = set(numbers) - set(preset.parameters if preset else ())
    if strange:
        raise ValueError(f"preset {given} has no {' and '.join(sorted(strange))}")
    if preset is None:
        return WIRE_PRESETS[given]
    answer = from_preset(preset, **numbers)
    return Pass() if answer is None else Say(answer, accept)


def _read_answer(
    status: int,
    description: str = "",
    parameters: Mapping[str, int] | None = None,
    body: str | None = None,
    content_type: str = "",
) -> Answer:
    if body is None:
        return refusal(status, description, parameters)
    guessed = HTML if body.lstrip().startswith("<") else JSON
    return Answer(status, body.encode(), content_type or guessed)


def _number_or_word(key: str, word: str) -> Any:
    if key in ("method", "text", "name"):
        return word
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return word
