"""The soak: a small one, and that its verdict sees what it is for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.sandbox import Sandbox

ROOT = Path(__file__).parents[1]
SOAK = ROOT / "scripts" / "soak"
sys.path.insert(0, str(SOAK))

import faults  # noqa: E402
import verdict  # noqa: E402
from verdict import Kill, Sent, Story, judge  # noqa: E402

SMALL = (
    "--messages",
    "300",
    "--chats",
    "30",
    "--relay-kills",
    "3",
    "--server-kills",
    "2",
    "--minutes",
    "0.4",
)


def sent(number: int, at: float, fault: str = "", *, accepted: bool = True, chat: str = "1") -> Sent:
    return Sent(at, chat, f"text {number}", accepted, fault)


def story(*sends: Sent, count: int = 3, **changes: Any) -> Story:
    """Texts 0 to `count` - 1, all for chat 1, stored at second 0."""
    published = {f"text {n}": ("1", 0.0) for n in range(count)}
    return replace(Story(published, sends, (), in_stream=count), **changes)


KILLED = Kill(2.0, "relay", "SIGKILL", 2.1)
ENDED = Kill(2.0, "relay", "SIGTERM", 2.1)
SERVER = Kill(2.0, "server", "SIGKILL", 2.5)


def test_all_kept() -> None:
    found = judge(story(sent(0, 1), sent(1, 2), sent(2, 3)))
    assert (found.broken, found.lost, found.doubles, found.breaks) == ((), (), (), ())


def test_a_loss_is_seen() -> None:
    found = judge(story(sent(0, 1), sent(2, 3), sent(1, 2, "500", accepted=False)))
    assert found.lost == ("text 1",)
    assert "1 messages lost" in found.broken[0]


def test_a_loss_that_is_a_dead_letter_is_seen_too() -> None:
    assert any("dead letters" in words for words in judge(story(count=0, dead=("sequence 1",))).broken)


@pytest.mark.parametrize("fault", [name for name, kind in faults.KINDS.items() if kind.lost])
def test_a_double_after_a_lost_answer_has_a_reason(fault: str) -> None:
    found = judge(story(sent(0, 1, fault), sent(0, 30), sent(1, 31), sent(2, 32)))
    assert [double.reason for double in found.doubles] == [f"answer lost ({fault})"]
    assert found.broken == ()


@pytest.mark.parametrize("fault", ["", *(name for name, kind in faults.KINDS.items() if not kind.lost)])
def test_a_double_without_a_reason_is_seen(fault: str) -> None:
    found = judge(story(sent(0, 1, fault), sent(0, 30), sent(1, 31), sent(2, 32)))
    assert dict(found.reasons) == {"NO REASON": 1}
    assert "sent again without a reason" in found.broken[0]


def test_the_second_repeat_needs_a_reason_of_its_own() -> None:
    found = judge(story(sent(0, 1, "reset-accepted"), sent(0, 2), sent(0, 3), sent(1, 4), sent(2, 5)))
    assert [bool(double.reason) for double in found.doubles] == [True, False]


@pytest.mark.parametrize(
    ("at", "fault", "kills", "remembers", "reason"),
    [
        (1.9, "", (KILLED,), True, "relay killed before the ack was safe"),
        (0.5, "slow-answer", (KILLED,), True, "relay killed before the ack was safe"),
        (0.5, "", (KILLED,), True, ""),  # long before
        (2.2, "", (KILLED,), True, ""),  # after
        (1.9, "", (ENDED,), True, ""),  # SIGTERM finishes the send and its ack
        (1.9, "", (SERVER,), True, ""),  # what was sent is remembered
        (1.9, "", (SERVER,), False, "ack lost with the server"),
        (0.5, "", (SERVER,), False, ""),
        (4.0, "", (SERVER,), False, ""),
        (1.9, "", (SERVER, replace(ENDED, at=2.6)), True, "ack lost with the server, its sender ended"),
        (1.9, "", (SERVER, replace(KILLED, at=4.0)), True, "relay killed before the ack was safe"),
        (1.9, "", (SERVER, replace(KILLED, at=40.0)), True, ""),  # ended after it was sent again
    ],
)
def test_kills_as_a_reason(at: float, fault: str, kills: Any, remembers: bool, reason: str) -> None:
    found = judge(
        story(sent(0, at, fault), sent(0, 30), sent(1, 31), sent(2, 32), kills=kills, remembers=remembers)
    )
    assert [double.reason for double in found.doubles] == [reason]
    assert bool(found.broken) is not bool(reason)


def test_an_order_break_is_seen() -> None:
    sends = (sent(0, 1), sent(2, 2), sent(1, 3))
    found = judge(story(*sends))
    assert found.breaks == (("1", "text 2", "text 1"),)
    assert "order breaks" in found.broken[0]
    assert judge(story(*sends, strict=False)).broken == ()


def test_a_repeat_is_no_order_break() -> None:
    found = judge(story(sent(0, 1), sent(1, 2, "reset-accepted"), sent(2, 3), sent(1, 4)))
    assert (found.breaks, found.broken) == ((), ())


def test_a_first_try_that_was_not_accepted_does_not_count_for_order() -> None:
    found = judge(story(sent(0, 1, "500", accepted=False), sent(1, 2), sent(0, 3), sent(2, 4)))
    assert found.breaks == (("1", "text 1", "text 0"),)


def test_another_chat_is_another_order() -> None:
    published = {"text 0": ("1", 0.0), "text 1": ("2", 0.0)}
    found = judge(Story(published, (sent(1, 1, chat="2"), sent(0, 2)), (), in_stream=2))
    assert found.broken == ()


def test_a_message_in_the_wrong_chat_is_lost_and_strange() -> None:
    found = judge(story(sent(0, 1, chat="2"), sent(1, 2), sent(2, 3)))
    assert (found.lost, len(found.strange)) == (("text 0",), 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"told": ("token in relay.out (1 times)",)}, "a secret was printed: token in relay.out"),
        ({"unfinished": "3 messages never handed over"}, "not done in time"),
        ({"in_stream": 4}, "the stream took 4 messages for 3"),
        ({"kills": (replace(ENDED, exit_code=-9),)}, "did not exit 0 on SIGTERM"),
    ],
)
def test_other_broken_promises(changes: Any, words: str) -> None:
    found = judge(story(sent(0, 1), sent(1, 2), sent(2, 3), **changes))
    assert len(found.broken) == 1
    assert words in found.broken[0]
    assert f"BROKEN: {found.broken[0]}" in verdict.table(story(**changes), found)


def test_how_soon_it_goes_on() -> None:
    published = {"text 0": ("1", 0.0), "text 1": ("1", 1.0), "text 2": ("1", 5.0)}
    kills = (replace(SERVER, at=2.0, back_at=2.5), replace(KILLED, at=6.0, back_at=6.2))
    found = judge(Story(published, (sent(0, 1), sent(1, 4), sent(2, 7)), kills, in_stream=3))
    assert found.resumed == {"server SIGKILL": (2.0,), "relay SIGKILL": (1.0,)}
    assert found.caught_up == {"server SIGKILL": (2.0,), "relay SIGKILL": (1.0,)}


def test_the_faults_are_as_many_as_asked_for_and_of_all_kinds() -> None:
    from telegram_connector.sandbox.faults import Fault, read_rule

    rules = [Fault(read_rule(rule)) for rule in faults.rules(0.05, seed=1)]
    met: Counter[str] = Counter()
    for _ in range(20_000):
        met[next((f.rule.name for f in rules if f.fires("sendMessage", {})), "")] += 1
    assert 0.045 < 1 - met[""] / 20_000 < 0.055
    assert set(met) == {"", *faults.KINDS}
    assert faults.rules(0.05, 1) == faults.rules(0.05, 1) != faults.rules(0.05, 2)


def test_the_sandbox_takes_the_faults() -> None:
    with Sandbox(faults=faults.rules(1.0, seed=1)) as sandbox:
        assert len(sandbox.faults) == len(faults.KINDS)


class SmallSoak:
    """scripts/soak.sh at work, its temporary directory in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [str(ROOT / "scripts" / "soak.sh"), *SMALL, *options],
            env={**os.environ, "READY_PYTHON": sys.executable, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._timer = threading.Timer(100, self.process.kill)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
        output, errors = self.process.communicate()
        self._timer.cancel()
        return self.process.returncode, output, errors


@pytest.fixture
def soak_in(tmp_path: Path) -> Iterator[Any]:
    started: list[SmallSoak] = []

    def start(*options: str) -> SmallSoak:
        started.append(SmallSoak(tmp_path, *options))
        return started[-1]

    yield start
    for soak in started:
        if soak.process.poll() is None:
            soak.process.kill()
            soak.end()


def left_in(folder: Path) -> list[str]:
    """What runs on files of the folder, and what is in it."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [
        *(p.name for p in folder.iterdir()),
        *(line for line in listed.splitlines() if str(folder) in line),
    ]


@pytest.mark.parametrize(
    "option", ["--messages=0", "--chats=0", "--faulty=2", "--minutes=0", "--relay-kills=-1"]
)
def test_what_makes_no_sense_is_refused_at_once(soak_in: Any, option: str) -> None:
    code, output, errors = soak_in(option).end()
    assert (code, output) == (2, "")
    assert option.partition("=")[0] in errors or "kills" in errors


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_ctrl_c_leaves_nothing_behind(soak_in: Any, tmp_path: Path, number: int) -> None:
    soak = soak_in()
    assert soak.process.stderr is not None
    assert soak.process.stderr.readline().startswith("Started")
    soak.process.send_signal(number)
    code, output, errors = soak.end()
    assert (code, output) == (130, "")
    assert re.search("Interrupted: all stopped", errors)
    assert "Traceback" not in errors
    assert left_in(tmp_path) == []


@pytest.mark.integration
@pytest.mark.parametrize("connectors", [1, 2])
def test_a_small_soak_keeps_every_promise(soak_in: Any, tmp_path: Path, connectors: int) -> None:
    soak = soak_in("--connectors", str(connectors), "--faulty", "0.1", "--json")
    code, output, errors = soak.end()
    assert code == 0, output + errors
    figures = json.loads(output)
    assert figures["published"] == 300
    assert len(figures["kills"]) == 5
    assert figures["faulty"] > 10
    assert figures["lost"] == figures["dead_lettered"] == 0
    assert figures["order_promised"]  # the nats-server that the tests use can pin
    assert left_in(tmp_path) == []
