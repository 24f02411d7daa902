"""The flood model, by hand-moved time."""

from __future__ import annotations

import pytest

from telegram_connector.sandbox.flood import STRICT, TELEGRAM, Flood, Limits, parse


def admitted(flood: Flood, times: int, *, chat: int = 5, group: bool = False, now: float = 0.0) -> int:
    return sum(flood.admit(1, chat, group, now) is None for _ in range(times))


def test_a_chat_takes_a_burst_and_then_one_a_second():
    flood = Flood(TELEGRAM)
    assert admitted(flood, 5) == 5
    assert flood.admit(1, 5, False, 0.0) == 1
    assert flood.admit(1, 5, False, 1.0) is None
    assert flood.admit(1, 5, False, 1.0) == 1


def test_a_pause_refills_the_burst_and_no_more():
    flood = Flood(TELEGRAM)
    assert admitted(flood, 5) == 5
    assert admitted(flood, 6, now=1000.0) == 5


def test_a_chat_that_keeps_its_pace_is_never_refused():
    flood = Flood(STRICT)
    assert all(flood.admit(1, 5, False, n * 1.0) is None for n in range(100))
    # Ten times a tenth is a whole, whatever floating point says.
    flood = Flood(Limits(per_chat=10, per_bot=0, chat_burst=1))
    assert all(flood.admit(1, 5, False, n * 0.1) is None for n in range(100))


def test_a_group_takes_twenty_in_any_minute():
    flood = Flood(Limits(per_chat=0))
    assert [flood.admit(1, -5, True, n * 1.0) for n in range(20)] == [None] * 20
    # The first of the twenty leaves the minute at 60.
    assert flood.admit(1, -5, True, 20.0) == 40
    assert flood.admit(1, -5, True, 60.0) is None
    assert flood.admit(1, 5, False, 60.0) is None


def test_one_chats_flood_is_not_its_neighbours():
    flood = Flood(TELEGRAM)
    assert admitted(flood, 10) == 5
    assert flood.admit(1, 6, False, 0.0) is None


def test_a_bot_takes_thirty_a_second_over_all_chats():
    flood = Flood(TELEGRAM)
    assert [flood.admit(1, chat, False, 0.0) for chat in range(100, 130)] == [None] * 30
    assert flood.admit(1, 200, False, 0.5) == 1
    assert flood.admit(2, 200, False, 0.5) is None
    # The bot as a whole is held.
    assert flood.admit(1, 201, False, 1.4) == 6
    assert flood.admit(1, 201, False, 7.4) is None


def test_who_comes_back_too_early_waits_longer_and_longer():
    flood = Flood(STRICT)
    flood.admit(1, 5, False, 0.0)
    assert flood.admit(1, 5, False, 0.0) == 1
    assert flood.admit(1, 5, False, 0.0) == 6
    assert flood.admit(1, 5, False, 0.0) == 16
    assert flood.admit(1, 5, False, 10.0) == 26
    # Kept at last: the growth begins anew.
    assert flood.admit(1, 5, False, 36.0) is None
    assert flood.admit(1, 5, False, 36.0) == 1
    assert flood.admit(1, 5, False, 36.5) == 6


def test_waits_stop_growing_at_telegrams_own_bound():
    flood = Flood(STRICT)
    flood.admit(1, 5, False, 0.0)
    waits = [flood.admit(1, 5, False, 0.0) for _ in range(1000)]
    assert max(wait for wait in waits if wait) == 1_209_600


def test_what_is_refused_is_not_counted():
    flood = Flood(Limits(per_chat=0, per_bot=0, per_group_minute=1))
    assert flood.admit(1, -5, True, 0.0) is None
    assert flood.admit(1, -5, True, 1.0) == 59
    assert flood.admit(1, -5, True, 60.0) is None


def test_a_figure_of_zero_turns_its_limit_off():
    assert admitted(Flood(Limits(0, 0, 0)), 1000, group=True) == 1000
    assert admitted(Flood(None), 1000, group=True) == 1000


def test_the_same_calls_give_the_same_answers():
    calls = [(chat, chat % 2 == 0, n * 0.07) for n in range(300) for chat in (n % 7,)]
    first, second = Flood(TELEGRAM), Flood(TELEGRAM)
    assert [first.admit(1, *call) for call in calls] == [second.admit(1, *call) for call in calls]


def test_reading_limits():
    assert parse("off") is None
    assert parse("Telegram") == TELEGRAM
    assert parse("strict") == STRICT
    assert parse("0.5,10,100") == Limits(0.5, 10, 100)
    for nonsense in ("some", "1,2", "1,2,3,4", "-1,2,3", "a,b,c"):
        with pytest.raises(ValueError, match="flood"):
            parse(nonsense)


def test_flood_over_the_wire(sandbox, api):
    sandbox.set_flood("strict")
    assert api("sendMessage", chat_id=5, text="one").status_code == 200
    refused = api("sendMessage", chat_id=5, text="two")
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "1"
    assert refused.json() == {
        "ok": False,
        "error_code": 429,
        "description": "Too Many Requests: retry after 1",
        "parameters": {"retry_after": 1},
    }
    sandbox.clock.advance(1)
    assert api("sendMessage", chat_id=5, text="two").status_code == 200
    assert api("getMe").status_code == 200


def test_a_message_refused_for_itself_counts_for_no_limit(sandbox, api):
    sandbox.set_flood("strict")
    for _ in range(3):
        assert api("sendMessage", chat_id=5, text="").status_code == 400
    assert api("sendMessage", chat_id=5, text="hi").status_code == 200
