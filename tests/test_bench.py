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
TINY = ("--messages", "50", "--idle", "5", "--rounds", "2", "--limit-seconds", "60")


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH), *TINY, *arguments],
        env={**os.environ, "TMPDIR": str(folder), "NATS_URL": "nats://192.0.2.1", "TG_STREAM": "AMBIENT"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integration
def test_it_prints_its_table(tmp_path: Path) -> None:
    done = bench(tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("bare requests", "relay", "messages/s", "CPU ms/message", "p50", "p99", "load"):
        assert words in done.stdout
    assert "Every message came once, and each chat's in order." in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
@pytest.mark.parametrize("stub", ["fast", "sandbox"])
def test_its_figures_for_programs(tmp_path: Path, stub: str) -> None:
    profile = tmp_path / "stacks"
    done = bench(tmp_path, "--json", "--stub", stub, "--profile", str(profile))
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["stub"] == stub
    assert len(figures["idle_ms"]) == 2 * 5
    for rounds in figures["throughput"].values():
        assert len(rounds) == 2
        assert all(one["rate"] > 0 and one["cpu_ms"] > 0 for one in rounds)
    assert "sender-1;" in profile.read_text()


@pytest.mark.integration
def test_it_gives_up_in_time(tmp_path: Path) -> None:
    done = bench(tmp_path, "--messages", "50000", "--limit-seconds", "1.5")
    assert done.returncode == 1
    assert "scripts/bench: " in done.stderr
    assert not list(tmp_path.iterdir())
