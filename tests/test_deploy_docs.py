"""docs/deploy.md against what it tells of."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from telegram_connector import __version__
from telegram_connector.cli import main
from telegram_connector.settings import Settings

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "deploy.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"\bdeploy/[\w./-]*\w", TEXT)) | {
        f"docs/{link}" for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXT)
    }
    assert {"deploy/Dockerfile", "deploy/kubernetes", "docs/../README.md"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_container_that_runs_has_the_time_to_stop() -> None:
    (run,) = [shlex.split(line) for line in LINES if line.startswith("docker run")]
    assert float(run[run.index("--stop-timeout") + 1]) >= Settings().drain_seconds + 5


def test_commands_inside_are_commands_of_ours() -> None:
    told = [match for line in LINES for match in re.findall(r" telegram-connector ([a-z]+)", line)]
    assert set(told) >= {"check", "publish", "status"}
    assert set(told) <= set(main.commands)


def test_the_version_is_this_one() -> None:
    assert set(re.findall(r"telegram-connector:(\d+\.\d+\.\d+)", TEXT)) == {__version__}
