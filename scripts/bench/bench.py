"""How fast is the relay? Side by side in one run, against the same stub: see scripts/bench/README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ground import Ground, Rows
from scenarios import SCENARIOS
from targets import STUBS

from telegram_connector.cli.demo import environment, nats_server
from telegram_connector.demo.processes import Children, Failed
from telegram_connector.errors import BridgeError


@dataclass
class Results:
    """What all runs measured, by the letter of the scenario."""

    about: dict[str, Any]
    runs: dict[str, list[Rows]] = field(default_factory=dict)


def measure(options: argparse.Namespace) -> Results:
    results = Results(_about(options))
    with tempfile.TemporaryDirectory(prefix="telegram-connector-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with Children(folder, environment(os.environ)) as children:
            ground = Ground(options, folder, children)
            for run in range(options.runs):
                for letter in options.only:
                    print(f"run {run + 1} of {options.runs}: {SCENARIOS[letter].title}", file=sys.stderr)
                    results.runs.setdefault(letter, []).append(SCENARIOS[letter].measure(ground))
    results.about["load_after"] = os.getloadavg()[0]
    return results


def _about(options: argparse.Namespace) -> dict[str, Any]:
    version = subprocess.run([nats_server(), "--version"], capture_output=True, text=True, check=True)
    return {
        "runs": options.runs,
        "seed": options.seed,
        "messages": options.messages,
        "stub": options.stub,
        "python": platform.python_version(),
        "nats_server": version.stdout.split()[-1].lstrip("v"),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }


# Showing


def tables(results: Results) -> str:
    """The results for people: medians of the runs, and for ratios the median of each run's own ratio."""
    about = results.about
    lines = [
        f"{about['runs']} runs, medians; seed {about['seed']}, stub {about['stub']}",
        f"Python {about['python']}, nats-server {about['nats_server']}, {about['cpus']} CPUs, load "
        f"{about['load_before']:.2f} before and {about['load_after']:.2f} after",
    ]
    for letter, runs in results.runs.items():
        lines += ["", f"({letter}) {SCENARIOS[letter].title}", *_table(letter, runs)]
    lines += ["", "Every message came once, and each chat's in order, where no column says otherwise."]
    return "\n".join(lines)


def _table(letter: str, runs: list[Rows]) -> list[str]:
    ratio = SCENARIOS[letter].ratio
    columns = list(dict.fromkeys(column for row in runs[0].values() for column in row))
    base = next(iter(runs[0]))
    width = max(len(row) for row in runs[0])
    head = [f"{column:>20}" for column in columns]
    if ratio:
        head.append(f"{f'x {base}':>18}")
    lines = [" " * width + "".join(head)]
    for row in runs[0]:
        cells = [f"{_cell([run[row][c] for run in runs if c in run[row]]):>20}" for c in columns]
        if ratio:
            cells.append(f"{statistics.median(run[row][ratio] / run[base][ratio] for run in runs):18.2f}")
        lines.append(f"{row:{width}}" + "".join(cells))
    return lines


def _cell(figures: Sequence[float]) -> str:
    """The median, and least and most where there are several and they differ."""
    if not figures:
        return ""
    digits = 0 if statistics.median(figures) >= 100 else 2
    shown = [f"{one:.{digits}f}" for one in (statistics.median(figures), min(figures), max(figures))]
    return shown[0] if shown[1] == shown[2] else f"{shown[0]} ({shown[1]}-{shown[2]})"


def document(results: Results) -> dict[str, Any]:
    """The results for programs."""
    return {**results.about, "scenarios": results.runs}


def letters(text: str) -> list[str]:
    chosen = [letter.strip() for letter in text.split(",")]
    unknown = [letter for letter in chosen if letter not in SCENARIOS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}"
        )
    return chosen


def parser() -> argparse.ArgumentParser:
    scenarios = "\n".join(f"  {letter}  {one.title}" for letter, one in SCENARIOS.items())
    made = argparse.ArgumentParser(
        prog="scripts/bench/run.sh",
        allow_abbrev=False,
        description=f"{__doc__}\n\nscenarios:\n{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", type=letters, default=list(SCENARIOS), metavar="a,c", help="those scenarios")
    made.add_argument("--runs", type=int, default=3, help="of each, in turns (3)")
    made.add_argument("--messages", type=int, default=2000, help="in a, g and h (2000)")
    made.add_argument("--idle", type=int, default=200, help="messages in d (200)")
    made.add_argument(
        "--backlogs",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[1000, 10_000, 100_000],
        help="depths in f (1000,10000,100000); the first is what the others are compared with",
    )
    made.add_argument("--patience", type=float, default=40.0, help="seconds that c waits at most (40)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--stub", choices=sorted(STUBS), default="fast", help="sandbox: for a, d to g only")
    made.add_argument("--limit-seconds", type=float, default=3600.0, help="give up after so long (3600)")
    made.add_argument(
        "--profile", type=Path, help="write the relay's sampled stacks (the last relay's) to this file"
    )
    made.add_argument("--json", action="store_true", help="figures for programs")
    return made


def stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, stop)
    try:
        results = measure(options)
    except (Failed, BridgeError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document(results), indent=1) if options.json else tables(results))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
