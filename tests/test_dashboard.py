"""Grafana's dashboard against the table of metrics, Grafana's own types, and itself."""

from __future__ import annotations

import enum
import json
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.instruments import TABLE, Kind

DEPLOY = Path(__file__).parents[1] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
RULES = (DEPLOY / "prometheus" / "rules.yml").read_text()

# Series of a metric, as Prometheus names them, by the metric's name.
SERIES = {
    name: instrument
    for instrument in TABLE
    for name in (
        [f"{instrument.prometheus_name}_{part}" for part in ("bucket", "sum", "count")]
        if instrument.kind is Kind.HISTOGRAM
        else [instrument.prometheus_name]
    )
}
# What the table has and the dashboard leaves out on purpose.
LEFT_OUT: set[str] = set()


def named(text: str) -> set[str]:
    """The series that expressions name."""
    return set(re.findall(r"\btelegram_connector_\w+", text))


def lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """What of ours Grafana's types have no place for."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs[key], f"{path}.{key}") if key in theirs else [f"{path}.{key}"]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(*pair, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, member) for member in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is list:
        return isinstance(value, list) and all(fits(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, inner[1]) for item in value.values())
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    return hint is typing.Any or isinstance(value, (int, float) if hint is float else hint)


def misfits(model: Any, path: str = "") -> Iterator[str]:
    """What is of another type than Grafana's, or none of its words."""
    if isinstance(model, list):
        for number, item in enumerate(model):
            yield from misfits(item, f"{path}[{number}]")
    elif hasattr(type(model), "from_json"):
        hints = typing.get_type_hints(type(model))
        for name, value in vars(model).items():
            if not fits(value, hints[name]):
                yield f"{path}.{name}: {value!r} is no {hints[name]}"
            yield from misfits(value, f"{path}.{name}")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's types need Python 3.11")
def test_grafana_knows_every_field_and_every_word() -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    board = Dashboard.from_json(DASHBOARD)
    assert list(lost(DASHBOARD, json.loads(JSONEncoder().encode(board)))) == []
    assert list(misfits(board)) == []


def test_panels_have_units_and_descriptions_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        fields = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in fields) < 24, panel["title"]
        assert not fields & taken, panel["title"]
        taken |= fields
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
    for names in (
        [p["id"] for p in DASHBOARD["panels"]],
        [p["title"] for p in PANELS],
        *([t["refId"] for t in p["targets"]] for p in PANELS),
    ):
        assert len(names) == len(set(names))


def test_every_query_is_of_the_durables_that_were_chosen() -> None:
    for title, target in TARGETS:
        selectors = re.findall(r"\btelegram_connector_\w+(\{[^}]*\})?", target["expr"])
        assert selectors, title
        assert all('durable=~"$durable"' in selector for selector in selectors), target["expr"]


def test_the_dashboard_shows_every_metric_of_the_table_and_no_other() -> None:
    shown = named(" ".join(target["expr"] for _, target in TARGETS))
    assert shown <= SERIES.keys()
    assert {SERIES[name].prometheus_name for name in shown} == {i.prometheus_name for i in TABLE} - LEFT_OUT


def test_the_rules_name_metrics_of_the_table_and_sections_of_the_runbook() -> None:
    assert named(RULES) <= SERIES.keys()
    alerts, runbooks = re.findall(r"- alert: (\w+)", RULES), re.findall(r"runbook: (\S+)", RULES)
    assert len(alerts) == len(runbooks) == 7
    runbook = (DEPLOY.parent / "docs" / "operations.md").read_text()
    titles = re.findall(r"^#+ (.+)$", runbook, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert {path for path, _, _ in (r.partition("#") for r in runbooks)} == {"docs/operations.md"}
    assert {anchor for _, _, anchor in (r.partition("#") for r in runbooks)} <= anchors
