"""What commands that list and change records share."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import click
import pytest

from telegram_connector.ages import Ages, age
from telegram_connector.bridge.link import PermissionDenied
from telegram_connector.cli import records
from telegram_connector.errors import Disconnected
from telegram_connector.wording import counted, visible

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("3d", 259_200),
        ("1w", 604_800),
        ("1d12h", 129_600),
    ],
)
def test_ages_are_read_as_people_write_them(text: str, seconds: int):
    assert records.read_age(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "3", "d", "-3d", "3 d", "1.5h", "3D", "3y", "٣d", "999999999w"])
def test_what_is_no_age_is_named(text: str):
    with pytest.raises(click.BadParameter, match=r"is no length of time|more than a century"):
        records.read_age(text)


@pytest.mark.parametrize(
    ("ago", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (86_399, "23h"), (864_000, "10d")]
)
def test_ages_are_shown_in_their_largest_unit(ago: int, shown: str):
    assert age(NOW - timedelta(seconds=ago), NOW) == shown


def test_bounds_of_ages():
    hour, day = timedelta(hours=1), timedelta(days=1)
    at = NOW - timedelta(hours=5)
    assert Ages().hold(at, NOW)
    assert Ages(older_than=hour, newer_than=day).hold(at, NOW)
    assert not Ages(older_than=day).hold(at, NOW)
    assert not Ages(newer_than=hour).hold(at, NOW)
    assert not Ages()
    assert Ages(older_than=timedelta(0))


def test_times_are_utc_with_milliseconds():
    at = datetime(2026, 1, 1, 2, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=2)))
    assert records.timestamp(at) == "2026-01-01T00:00:00.123Z"


def test_strangers_words_are_one_harmless_line():
    assert visible("a\x1b[2J\nb\u202e\x9b\ud800é😀") == "a\\x1b[2J\\nb\\u202e\\x9b\\ud800é😀"


def test_arrays_are_whole_json(capsys: pytest.CaptureFixture[str]):
    records.show_json_array([])
    assert json.loads(capsys.readouterr().out) == []
    items = [{"a": "é😀"}, {"b": "\x9b\ud800\n"}]
    records.show_json_array(iter(items))
    out = capsys.readouterr().out
    assert json.loads(out) == items
    assert len(out.splitlines()) == 4
    assert "é😀" in out
    assert "\x9b" not in out


def test_columns_are_as_wide_as_needed_and_the_last_is_cut_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    rows = [("1", "short", "x" * 300), ("1000", "s", "y")]
    records.show_table(("N", "NAME", "WORDS"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "N     NAME   WORDS",
        "1     short  " + "x" * 300,
        "1000  s      y",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    records.show_table(("N", "NAME", "WORDS"), rows)
    out = capsys.readouterr().out.splitlines()
    assert out[1] == "1     short  " + "x" * 36 + "…"
    assert len(out[1]) == 50


def test_nobody_to_ask_is_wrong_usage(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(records, "attended", lambda: False)
    assert records.confirmed("Sure?", yes=True)
    with pytest.raises(click.UsageError, match="--yes"):
        records.confirmed("Sure?", yes=False)


def test_errors_are_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]):
    for error in (Disconnected("no\nserver"), PermissionDenied('permissions violation for publish to "x"')):
        with pytest.raises(SystemExit) as end, records.one_line_errors("dead list"):
            raise error
        assert end.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "telegram-connector dead list: no\\nserver"
    assert 'NATS does not allow it: permissions violation for publish to "x"' in lines[1]


@pytest.fixture
def default_sigint() -> Iterator[None]:
    """Ctrl-C as it is in a terminal: what runs in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_sigint")
def test_the_first_signal_asks_and_the_second_does_what_it_always_does():
    before = signal.getsignal(signal.SIGINT)
    with records.interruptible() as stop:
        assert not stop.wait()
        signal.raise_signal(signal.SIGINT)  # in this thread: another's would come a moment later
        assert stop.wait(60)
        assert stop.wait()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_counts_have_their_plural():
    assert [counted(n, "letter") for n in (0, 1, 2000)] == ["0 letters", "1 letter", "2,000 letters"]
