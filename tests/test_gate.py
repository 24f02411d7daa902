"""The bot's gate: when all sends wait, and what opens it again."""

from __future__ import annotations

import pytest

from telegram_connector.gate import FLOOD_WINDOW_SECONDS, BotGate


def closed_gate(*, fault: bool = False, now: float = 0.0) -> BotGate:
    gate = BotGate()
    gate.close("down", fault=fault, now=now, jitter=0.0)
    return gate


def test_a_new_gate_is_open():
    gate = BotGate()
    assert gate.held_until < 0
    assert not gate.trying
    assert not gate.probe_first
    assert gate.accepted(0.0) is None


def test_waits_double_from_one_second_to_a_minute():
    gate, now, waits = BotGate(), 0.0, []
    for _ in range(8):
        waits.append(gate.close("down", fault=False, now=now, jitter=0.0))
        now = gate.held_until
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_waits_stay_finite_after_very_many_failures():
    gate, now = BotGate(), 0.0
    for _ in range(3000):
        gate.close("down", fault=False, now=now, jitter=0.0)
        now = gate.held_until
    assert gate.next_wait(0.0) == 60.0


@pytest.mark.parametrize(("jitter", "wait"), [(0.0, 1.0), (0.5, 1.05), (0.99, 1.099)])
def test_jitter_only_lengthens(jitter: float, wait: float):
    assert BotGate().close("down", fault=False, now=0.0, jitter=jitter) == pytest.approx(wait)


def test_failures_of_sends_that_were_already_out_count_once():
    gate = closed_gate()
    assert gate.close("down", fault=False, now=0.4, jitter=0.0) == pytest.approx(0.6)
    assert gate.held_until == 1.0
    assert gate.next_wait(0.0) == 2.0


def test_a_closed_gate_is_tried_until_a_send_is_accepted():
    gate = closed_gate(now=5.0)
    assert gate.trying
    assert gate.accepted(6.0) == ("down", 1.0)
    assert not gate.trying
    assert gate.next_wait(0.0) == 1.0


def test_waits_do_not_start_over_because_getme_is_answered():
    gate = closed_gate(fault=True)
    gate.probed()
    gate.close("refused again", fault=True, now=1.0, jitter=0.0)
    assert gate.held_until == 3.0


def test_an_answer_to_an_older_send_does_not_shorten_a_hold():
    gate = closed_gate()
    assert gate.accepted(0.5) is None
    assert gate.held_until == 1.0
    assert gate.trying


def test_a_fault_is_probed_before_each_trial():
    gate = closed_gate(fault=True)
    assert gate.probe_first
    gate.probed()
    assert not gate.probe_first
    gate.close("an outage in between", fault=False, now=1.0, jitter=0.0)
    assert gate.probe_first, "the fault is not over because something else failed"
    gate.probed()
    gate.accepted(3.0)
    assert not gate.probe_first


def test_an_outage_needs_no_probe():
    assert not closed_gate().probe_first


def test_the_time_of_closing_is_the_first_failures():
    gate = closed_gate(now=10.0)
    gate.close("still down", fault=False, now=11.0, jitter=0.0)
    assert gate.accepted(20.0) == ("still down", 10.0)


# Server errors


def test_server_errors_of_two_chats_running_are_the_bots():
    gate = BotGate()
    assert not gate.server_error("a")
    assert not gate.server_error("a")
    assert gate.server_error("b")
    assert gate.server_error("a")


@pytest.mark.parametrize("how", ["answered", "accepted"])
def test_an_answer_in_between_makes_them_separate(how: str):
    gate = BotGate()
    gate.server_error("a")
    gate.answered() if how == "answered" else gate.accepted(0.0)
    assert not gate.server_error("b")


# Floods


def test_three_chats_flooded_together_hold_the_bot_until_the_first_may_be_tried():
    gate = BotGate()
    assert not gate.flooded("a", until=50.0, now=0.0)
    assert not gate.flooded("b", until=30.0, now=1.0)
    assert gate.flooded("c", until=90.0, now=2.0)
    assert gate.held_until == 30.0
    assert gate.trying
    assert not gate.probe_first
    assert gate.accepted(31.0) == ("several chats are flooded together", 29.0)


def test_one_chat_flooded_again_and_again_is_that_chats_affair():
    gate = BotGate()
    assert not any(gate.flooded("a", until=n + 5.0, now=float(n)) for n in range(8))
    assert not gate.trying


def test_floods_far_apart_or_with_a_success_in_between_are_not_together():
    gate = BotGate()
    gate.flooded("a", 50.0, now=0.0)
    gate.flooded("b", 50.0, now=1.0)
    assert not gate.flooded("c", 50.0, now=FLOOD_WINDOW_SECONDS)
    gate.accepted(11.0)
    assert not gate.flooded("d", 50.0, now=11.0)
    assert not gate.flooded("e", 50.0, now=11.0)


def test_a_flood_never_shortens_the_bots_hold():
    gate = closed_gate()
    for _ in range(6):
        gate.close("down", fault=False, now=gate.held_until, jitter=0.0)
    before = gate.held_until
    for chat in "abc":
        gate.flooded(chat, until=before - 10.0, now=before - 20.0)
    assert gate.held_until == before
    assert gate.reason == "down"


def test_floods_of_many_chats_over_time_are_not_all_remembered():
    gate = BotGate()
    for number in range(1000):
        gate.flooded(str(number), until=number * 6.0 + 1, now=number * 6.0)
    assert len(gate._floods) <= 2
