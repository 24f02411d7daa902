"""The runbook against the code: every alert, log line, reason and exit code is in it, and nothing else."""

from __future__ import annotations

import ast
import itertools
import json
import logging
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.cli.dead.choice import REASONS
from telegram_connector.telemetry import describe
from tests.test_help import LEAVES, exit_codes

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs" / "operations.md").read_text()
CALLS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "CRITICAL"}

Line = tuple[str, str]  # level, words


def table(heading: str) -> list[list[str]]:
    """The cells of the table's rows whose first heading this is."""
    found = RUNBOOK.split(f"\n| {heading} | ")
    assert len(found) == 2, heading
    rows = itertools.takewhile(lambda line: line.startswith("|"), found[1].splitlines()[2:])
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def code(cell: str) -> str:
    """A cell that is one piece of code."""
    (words,) = re.findall(r"`([^`]+)`", cell)
    return str(words)


# Log lines


def samples(kind: Any) -> Iterator[Any]:
    """Values of a type, one for each way in which it may look."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        for member in typing.get_args(kind):
            yield from samples(member)
    elif origin is tuple:
        yield ("SOME", "MORE")
    elif is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for values in itertools.product(*(list(samples(hint)) for hint in hints.values())):
            yield kind(**dict(zip(hints, values, strict=True)))
    else:
        yield from {
            type(None): (None,),
            bool: (False, True),
            int: (7,),
            float: (7.0,),
            str: ("SOME",),
            BaseException: (ValueError("a bug"),),
        }[kind]


def lines_of(event: type) -> set[Line]:
    """What is logged of an event at WARNING or above, in all its forms."""
    described = map(describe, samples(event))
    return {(logging.getLevelName(level), words) for level, words, _ in described if level >= logging.WARNING}


def lines_in_passing() -> set[Line]:
    """What is logged without an event, by literal words; ``%s`` and the like are filled in."""
    found = set()
    for path in (ROOT / "telegram_connector").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CALLS
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                words = re.sub(r"%[a-z]", "SOME", node.args[0].value)
                found.add((CALLS[node.func.attr], words))
    return found


IN_PASSING = lines_in_passing()
# "%s" alone, in `run`: the words of RelayFailed.
RELAY_FAILED = ("CRITICAL", "SOME")
EVENTS = typing.get_args(events.Event)
ROWS = [(code(row[0]), row[1]) for row in table("log line")]


def matching(line: Line) -> list[Line]:
    """The rows of the runbook that are about a line: those with the most words of it."""
    level, words = line
    fit = []
    for row in ROWS:
        pattern = ".+".join(map(re.escape, row[0].split("…")))
        if row[1] == level and re.fullmatch(pattern, words):
            fit.append(row)
    return fit


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.__name__)
def test_every_line_of_an_event_at_warning_or_above_is_explained(event: type) -> None:
    for line in lines_of(event):
        assert matching(line), line


def test_so_is_every_line_that_is_no_event() -> None:
    assert RELAY_FAILED in IN_PASSING
    for line in IN_PASSING - {RELAY_FAILED}:
        assert matching(line), line


def test_no_line_is_explained_that_there_is_not() -> None:
    failed = ("CRITICAL", "thread SOME died: ValueError: a bug")
    said = {line for event in EVENTS for line in lines_of(event)} | IN_PASSING | {failed}
    explained = {row for line in said for row in matching(line)}
    assert set(ROWS) == explained
    assert len(ROWS) == len(set(ROWS))


@pytest.mark.parametrize("heading", ["log line", "alert", "alert of Prometheus", "reason"])
def test_every_row_says_what_to_do(heading: str) -> None:
    for row in table(heading):
        assert all(row[: 4 if heading == "log line" else 3]), row


# Alerts, reasons, exit codes, sections


def test_every_alert_is_explained() -> None:
    schema = json.loads((ROOT / "docs" / "alerts.schema.json").read_text())
    assert sorted(code(row[0]) for row in table("alert")) == sorted(schema["properties"]["type"]["enum"])


def test_every_alert_of_prometheus_is_explained() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
    telemetry = (ROOT / "docs" / "telemetry.md").read_text()
    alerts = dict(re.findall(r"- alert: (\w+)(?:.*\n)+?        labels: {severity: (\w+)}", rules))
    assert len(alerts) == rules.count("- alert:")
    assert sorted(code(row[0]) for row in table("alert of Prometheus")) == sorted(alerts)
    for alert, severity in alerts.items():
        assert f"\n| `{alert}` | {severity} | " in telemetry


def test_every_reason_of_a_dead_letter_is_explained() -> None:
    assert sorted(code(row[0]) for row in table("reason")) == sorted(REASONS)


def test_exit_codes_are_those_that_the_commands_tell_of() -> None:
    rows = {code(command): rest for command, *rest in table("command | 0")}
    assert list(rows) == [" ".join(path) for path in LEAVES]
    for path in LEAVES:
        codes = exit_codes(*path)
        other = [str(c) if c in (2, 78) else f"{c} {codes[c]}" for c in codes if c > 1]
        assert rows[" ".join(path)] == [codes[0], codes.get(1, ""), ", ".join(other)]


def test_every_link_leads_somewhere() -> None:
    titles = re.findall(r"^#+ (.+)$", RUNBOOK, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)]+)\)", RUNBOOK):
        path, _, anchor = target.partition("#")
        assert not path or (ROOT / "docs" / path).exists(), target
        assert not anchor or anchor in anchors, target
