"""docs/sandbox.md says what is there, and its examples work."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from telegram_connector.sandbox import Sandbox
from telegram_connector.sandbox.actions import WIRE_PRESETS
from telegram_connector.sandbox.presets import ALIASES

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "sandbox.md").read_text()
CODE = sorted((ROOT / "telegram_connector" / "sandbox").glob("*.py"))


def test_the_examples_of_files_can_be_read(tmp_path):
    chats, faults = re.findall(r"```json\n(.*?)```", DOC, re.DOTALL)
    (tmp_path / "chats.json").write_text(chats)
    (tmp_path / "faults.json").write_text(faults)
    sandbox = Sandbox(chats=tmp_path / "chats.json", faults=tmp_path / "faults.json")
    assert len(sandbox.faults) == len(json.loads(faults)["faults"])


def test_every_endpoint_is_documented(sandbox, session):
    for endpoint in session.get(sandbox.url, timeout=10).json()["control"]:
        assert f"`{endpoint}`" in DOC


@pytest.mark.parametrize("name", [*ALIASES, *WIRE_PRESETS])
def test_every_friendly_preset_is_documented(name):
    assert f"`{name}`" in DOC


def test_every_public_name_of_a_sandbox_is_documented():
    internal = {"world", "rules", "port", "url"}
    names = {name for name in dir(Sandbox) if not name.startswith("_")} - internal
    assert {name for name in names if f"`{name}" not in DOC and f", `{name}" not in DOC} == set()


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_the_sandbox_imports_nothing_else_of_the_project_but_markup_web_and_errors(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("telegram_connector"):
            names = {f"{node.module}.{alias.name}".split(".")[1] for alias in node.names}
            assert names <= {"sandbox", "markup", "web", "errors"}
