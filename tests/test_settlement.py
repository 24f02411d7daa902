"""What each disposition leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegram_connector.delivery import Ack, Nak, Term
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.settlement import LONGEST_BACKOFF_SECONDS, Policy, Settlement, backoff, settle

POLICY = Policy(ack_wait_seconds=60.0, max_attempts=5, backoff_seconds=30.0)
OWN_FAILURES = [
    Transient(500, "broken"),
    Transient(418, "unheard of"),
    Ambiguous("no answer in time"),
    Ambiguous("gateway timeout", 504),
]


def settled(
    disposition: Disposition,
    *,
    attempts: int = 0,
    policy: Policy = POLICY,
    bot_wait: float = 0.0,
    last: bool = False,
    jitter: float = 0.0,
) -> Settlement:
    return settle(
        disposition,
        attempts=attempts,
        policy=policy,
        bot_wait_seconds=bot_wait,
        last_hand_over=last,
        random=lambda: jitter,
    )


def test_sent_is_acked():
    assert settled(Sent(7)) == Settlement(Sent(7), Ack())


@pytest.mark.parametrize("reason", ["refused", "unreadable"])
def test_terminal_is_termed_with_its_reason_and_holds_nothing(reason: str):
    terminal = Terminal(400, "chat not found", reason)
    assert settled(terminal) == Settlement(terminal, Term(reason))


def test_migrated_is_kept_and_costs_nothing():
    assert settled(Migrated("-100")) == Settlement(Migrated("-100"), None)


@pytest.mark.parametrize("disposition", [Unavailable("no connection"), BotFault(401, "Unauthorized")])
def test_what_ails_the_bot_is_given_back_without_an_attempt_or_a_hold_of_the_chat(disposition: Disposition):
    assert settled(disposition, bot_wait=8.0, attempts=4) == Settlement(disposition, Nak(8.0))
    assert settled(disposition, bot_wait=300.0).command == Nak(60.0)


# 429


def test_a_429_costs_no_attempt_however_often():
    answer = settled(Transient(429, "slow down", 5.0), attempts=1000)
    assert (answer.command, answer.costs_attempt) == (Nak(5.0), False)


def test_a_429_holds_a_little_longer_than_asked():
    assert settled(Transient(429, "", 10.0)).hold_seconds == pytest.approx(10.1)
    assert settled(Transient(429, "", 10.0), jitter=0.999).hold_seconds == pytest.approx(10.6, abs=0.01)
    assert settled(Transient(429, "", 1000.0), jitter=0.999).hold_seconds == pytest.approx(1001.1, abs=0.01)


def test_a_long_429_naks_at_most_the_ack_wait_and_is_held_in_full():
    fortnight = 14 * 86_400.0
    answer = settled(Transient(429, "", fortnight))
    assert answer.command == Nak(60.0)
    assert answer.hold_seconds >= fortnight


def test_a_429_that_names_no_time_waits_the_backoff():
    answer = settled(Transient(429, "slow down"))
    assert answer.command == Nak(30.0)
    assert answer.hold_seconds == pytest.approx(30.1)


def test_a_429_of_no_seconds_still_holds_a_moment():
    answer = settled(Transient(429, "", 0.0))
    assert answer.command == Nak(0.0)
    assert answer.hold_seconds > 0


# The message's own failures


@pytest.mark.parametrize("disposition", OWN_FAILURES)
def test_an_own_failure_costs_an_attempt_and_waits_the_backoff(disposition: Disposition):
    assert settled(disposition) == Settlement(disposition, Nak(30.0), 30.0, costs_attempt=True)


@pytest.mark.parametrize("disposition", OWN_FAILURES)
def test_the_last_attempt_gives_up_with_what_was_last_said(disposition: Disposition):
    answer = settled(disposition, attempts=4)
    assert answer.command == Term("gave_up")
    assert answer.disposition == Terminal(
        getattr(disposition, "status_code", None) or 0, disposition.description, "gave_up"
    )
    assert (answer.costs_attempt, answer.hold_seconds) == (True, 0.0)
    assert settled(disposition, attempts=3).command != Term("gave_up")


def test_one_allowed_attempt_gives_up_at_once():
    assert settled(Transient(500, ""), policy=replace(POLICY, max_attempts=1)).command == Term("gave_up")


def test_backoffs_double_up_to_five_minutes():
    policy = replace(POLICY, max_attempts=99)
    answers = [settled(Transient(500, ""), attempts=n, policy=policy) for n in range(6)]
    assert [a.hold_seconds for a in answers] == [30, 60, 120, 240, 300, 300]
    assert [a.command for a in answers] == [Nak(30), Nak(60), Nak(60), Nak(60), Nak(60), Nak(60)]


def test_a_first_backoff_beyond_five_minutes_is_not_cut():
    assert [backoff(n, 600.0) for n in (1, 2)] == [600.0, 600.0]


def test_the_backoff_of_very_many_failures_is_finite():
    assert backoff(10_000, 0.001) == LONGEST_BACKOFF_SECONDS


def test_a_server_error_that_names_a_longer_time_is_held_as_long():
    answer = settled(Transient(503, "maintenance", 200.0))
    assert (answer.command, answer.hold_seconds) == (Nak(60.0), 200.0)
    assert settled(Transient(503, "maintenance", 1.0)).hold_seconds == 30.0


# The last hand-over


@pytest.mark.parametrize("disposition", [*OWN_FAILURES, Transient(429, "", 5.0)])
def test_a_last_hand_over_is_kept_and_held_instead_of_given_back(disposition: Disposition):
    given_back, kept = settled(disposition), settled(disposition, last=True)
    assert kept == replace(given_back, command=None)
    assert kept.hold_seconds > 0, "else it would be tried again at once"


@pytest.mark.parametrize("disposition", [Unavailable("down"), BotFault(401, "")])
def test_a_last_hand_over_is_kept_while_the_bot_is_held(disposition: Disposition):
    assert settled(disposition, last=True, bot_wait=8.0).command is None


@pytest.mark.parametrize(("disposition", "command"), [(Sent(1), Ack()), (Terminal(403, ""), Term("refused"))])
def test_a_last_hand_over_is_settled_like_any_other_once_it_is_decided(disposition, command):
    assert settled(disposition, last=True).command == command


def test_a_last_hand_over_still_gives_up():
    assert settled(Transient(500, ""), last=True, attempts=4).command == Term("gave_up")


@given(
    st.sampled_from([*OWN_FAILURES, Transient(429, "", 3.0), Transient(429, "", 1e6), Unavailable("down")]),
    st.integers(0, 3),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 200),
)
def test_jitter_only_lengthens_and_a_nak_stays_within_the_ack_wait(disposition, attempts, jitter, bot_wait):
    plain = settled(disposition, attempts=attempts, bot_wait=bot_wait)
    answer = settled(disposition, attempts=attempts, bot_wait=bot_wait, jitter=jitter)
    assert isinstance(plain.command, Nak)
    assert isinstance(answer.command, Nak)
    assert plain.command.delay_seconds <= answer.command.delay_seconds <= POLICY.ack_wait_seconds
    assert plain.hold_seconds <= answer.hold_seconds <= 1.1 * plain.hold_seconds + 1.0
