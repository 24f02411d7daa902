"""What may be done next about a dead letter."""

from __future__ import annotations

import pytest

from telegram_connector.marks import Change, Claim, Finish, Leave, Mark, Refuse, key, next_step

SAME = Change("@desk", plain=True)


def mark(state: str, n: int = 1) -> Mark:
    return Mark(letter="t", state=state, by="a@b", at="2026-01-01T00:00:00.000Z", n=n, change=SAME)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["refused", "unreadable", "gave_up", "expired", "conflict", "", "new"])
def test_a_letter_without_a_mark_is_claimed(reason: str):
    assert next_step(reason, None, SAME, again=False) == Claim(1)
    assert next_step(reason, None, SAME, again=True) == Claim(1)


@pytest.mark.parametrize("seen", [None, mark("claimed"), mark("resent"), mark("discarded")])
@pytest.mark.parametrize("again", [False, True])
def test_what_may_have_been_sent_is_never_resent_here(seen: Mark | None, again: bool):
    step = next_step("ambiguous", seen, SAME, again)
    assert isinstance(step, Refuse)
    assert "ledger resolve" in step.why


@pytest.mark.parametrize("again", [False, True])
def test_a_claim_is_finished_by_the_same_options_whatever_else_is_asked(again: bool):
    assert next_step("refused", mark("claimed"), SAME, again) == Finish(mark("claimed"))


def test_a_claim_with_other_options_is_left_to_whoever_made_it():
    step = next_step("refused", mark("claimed"), Change(), again=False)
    assert isinstance(step, Refuse)
    assert "a@b" in step.why
    assert "to @desk, plain" in step.why
    assert next_step("refused", mark("claimed", 3), Change(), again=True) == Claim(4)


@pytest.mark.parametrize("state", ["resent", "discarded"])
def test_what_is_done_is_left_alone_unless_asked(state: str):
    step = next_step("refused", mark(state), Change(), again=False)
    assert isinstance(step, Leave)
    assert step.why == f"{state} by a@b at 2026-01-01T00:00:00.000Z"
    assert next_step("refused", mark(state, 2), Change(), again=True) == Claim(3)
    assert next_step("refused", mark(state, 0), Change(), again=True) == Claim(1)


def test_streams_that_share_a_bucket_do_not_share_keys():
    assert key("TELEGRAM_DEAD", 7) == "dead.7"
    assert key("OTHER_DEAD", 7) == "dead.OTHER_DEAD.7"
    assert key("TELEGRAM_DEAD", "*") == "dead.*"
