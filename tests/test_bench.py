"""The benchmark, tiny: that it works and says what it measured. Speed is nobody's promise here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "scripts" / "bench" / "bench.py"
TINY = ("--messages", "50", "--idle", "5", "--runs", "2", "--backlogs", "40,80", "--limit-seconds", "90")


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH), *TINY, *arguments],
        env={**os.environ, "TMPDIR": str(folder), "NATS_URL": "nats://192.0.2.1", "TG_STREAM": "AMBIENT"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integration
def test_it_prints_its_tables(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "a,d,e,f,g")
    assert done.returncode == 0, done.stderr
    for words in ("bare requests", "relay", "messages/s", "CPU ms/message", "x bare", "p50", "p99", "load"):
        assert words in done.stdout
    for words in ("s to the first send", "MiB at most", "pacing", "a standby"):
        assert words in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
@pytest.mark.parametrize("stub", ["fast", "sandbox"])
def test_its_figures_for_programs(tmp_path: Path, stub: str) -> None:
    profile = tmp_path / "stacks"
    done = bench(tmp_path, "--only", "a", "--json", "--stub", stub, "--profile", str(profile))
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert (figures["stub"], figures["runs"]) == (stub, 2)
    runs = figures["scenarios"]["a"]
    assert len(runs) == 2
    for run in runs:
        for name in ("bare requests", "relay"):
            assert run[name]["messages/s"] > 0
            assert run[name]["CPU ms/message"] > 0
    assert "sender-1;" in profile.read_text()


@pytest.mark.integration
def test_slow_calls_are_measured(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "h", "--runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["scenarios"]["h"]
    assert run["relay, 32 workers, calls of 80 ms"]["messages/s"] > 0


@pytest.mark.integration
def test_telemetry_is_measured(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "i", "--runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["scenarios"]["i"]
    assert set(run) == {"relay", "relay, OTLP", "relay, OTLP hung"}


@pytest.mark.integration
def test_it_gives_up_in_time(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "a", "--messages", "50000", "--limit-seconds", "1.5")
    assert done.returncode == 1
    assert "scripts/bench: " in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_unknown_scenario_is_refused(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "a,z")
    assert done.returncode == 2
    assert "no scenario z" in done.stderr
