"""deploy/systemd/telegram-connector.service: by systemd's own tools, and against the commands' exit codes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from telegram_connector.cli.settings import EXIT_SETTINGS
from telegram_connector.settings import Settings
from tests.engine import unavailable

UNIT = Path(__file__).parents[1] / "deploy" / "systemd" / "telegram-connector.service"
WRONG_USAGE = 2
# systemd's own scale from 0 to 10; below 2 it says OK. A usual service has 9.
MOST_EXPOSED = 20  # tenths


@pytest.fixture
def service() -> configparser.SectionProxy:
    # A key may be given twice there; what these tests look at is given once.
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit["Service"]


def test_a_failure_is_started_anew_but_not_what_would_fail_again(service: configparser.SectionProxy) -> None:
    assert service["Restart"] == "on-failure"
    assert set(service["RestartPreventExitStatus"].split()) == {str(WRONG_USAGE), str(EXIT_SETTINGS)}


def test_a_stop_has_more_time_than_the_connector_takes(service: configparser.SectionProxy) -> None:
    assert service["KillSignal"] == "SIGTERM"
    assert float(service["TimeoutStopSec"]) >= Settings().drain_seconds + 5


def test_the_unit_itself_holds_no_settings(service: configparser.SectionProxy) -> None:
    assert "Environment" not in service
    assert service["EnvironmentFile"] == "/etc/telegram-connector/environment"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    copy = tmp_path / UNIT.name
    text, count = re.subn(
        r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    copy.write_text(text)
    return copy


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        unavailable("no systemd-analyze")
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )


def test_systemd_takes_every_line_of_it(unit: Path) -> None:
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout) == (0, "")


def test_systemd_finds_a_line_that_is_none(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "NoNewPrivilege" in analyze("verify", str(unit)).stdout


def test_systemd_finds_it_little_exposed(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))
    assert done.returncode == 0, done.stdout
