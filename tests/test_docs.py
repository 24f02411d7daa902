"""The README and the project's files against the code."""

from __future__ import annotations

import configparser
import json
from pathlib import Path

import click
import pytest

from telegram_connector.cli import main
from telegram_connector.settings import Settings, variables

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", [v for v in variables(Settings) if v == v.upper()])
def test_every_setting_is_in_the_readme(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("command", list(main.commands.values()), ids=lambda c: c.name)
def test_every_command_and_option_is_in_the_readme(command: click.Command) -> None:
    assert f"`{command.name}" in README
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "help":
            assert any(option in README for option in parameter.opts), parameter.opts


def test_the_first_screen_has_one_command_to_run_and_one_to_test() -> None:
    first = "\n".join(README.splitlines()[:25])
    assert "scripts/run_local.sh" in first
    assert "scripts/test.sh" in first


def test_every_decision_is_listed_and_every_link_leads_somewhere() -> None:
    listed = (ROOT / "docs" / "adr" / "README.md").read_text()
    for path in (ROOT / "docs" / "adr").glob("0*.md"):
        assert path.name in listed
    for link in ("docs/sandbox.md", "docs/markup.md", "docs/lifecycle.md", "docs/adr"):
        assert f"({link})" in README
        assert (ROOT / link).exists()


def test_what_heroku_reads() -> None:
    assert (ROOT / "Procfile").read_text() == "worker: python -m telegram_connector run\n"
    assert (ROOT / ".python-version").read_text().strip() in {"3.11", "3.12", "3.13", "3.14"}
    assert json.loads((ROOT / "app.json").read_text())["formation"]["worker"]["quantity"] == 1
    assert (ROOT / "requirements.txt").read_text().splitlines()[-1] == "."


def test_core_dependencies_stay_few() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    names = {line.split(">=")[0] for line in config["options"]["install_requires"].split()}
    assert names == {
        *("nats-py[nkeys]", "requests", "tenacity", "python-json-logger", "msgspec", "click"),
        "opentelemetry-api",
    }
