"""Pacing by hand-moved time: its figures, what it learns, and the sandbox's flood model as its judge."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from telegram_connector import pacing as pacing_module
from telegram_connector.delivery import Delivery, DeliveryId
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.lanes import DELAYED_SECONDS, Item, Lanes
from telegram_connector.pacing import BOT_MARGIN, MARGIN, Pacing, Rates
from telegram_connector.sandbox.flood import TELEGRAM, Flood

FREE = Rates(bot_per_second=1000.0)


def item(sequence: int, chat: str) -> Item:
    delivery = Delivery(DeliveryId("S", sequence, 0), b"x", {}, "r", 1, float("inf"))
    return Item(delivery, chat, TelegramOutbound(msg_id="m", text="t"), float("inf"))


def send(pacing: Pacing, chat: str, now: float, seconds: float = 0.0) -> None:
    pacing.started(chat, now)
    pacing.ended(chat, now + seconds)


def starts(pacing: Pacing, chat: str, count: int, now: float = 0.0, seconds: float = 0.0) -> list[float]:
    """When sends to one chat start that are made as soon as they may."""
    times = []
    for _ in range(count):
        now = max(now, pacing.due(chat), pacing.bot_due)
        times.append(now)
        send(pacing, chat, now, seconds)
        now += seconds
    return times


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


# Figures


def test_a_private_chat_takes_a_burst_of_three_and_then_one_a_second():
    assert gaps(starts(Pacing(FREE), "5", 6)) == pytest.approx([0, 0, MARGIN, MARGIN, MARGIN])


def test_a_pause_refills_the_burst_and_no_more():
    pacing = Pacing(FREE)
    starts(pacing, "5", 3)
    assert gaps(starts(pacing, "5", 5, now=100.0)) == pytest.approx([0, 0, MARGIN, MARGIN])


@pytest.mark.parametrize("chat", ["-5", "-1001234567890", "@some_channel"])
def test_groups_and_channels_are_spread_evenly_from_answer_to_send(chat: str):
    assert gaps(starts(Pacing(FREE), chat, 3)) == pytest.approx([3 * MARGIN] * 2)
    assert gaps(starts(Pacing(FREE), chat, 3, seconds=2.0)) == pytest.approx([2 + 3 * MARGIN] * 2)


def test_no_group_is_faster_than_a_chat():
    slow = Rates(1000.0, chat_per_second=0.1, group_per_minute=20)
    assert gaps(starts(Pacing(slow), "-5", 2)) == pytest.approx([10 * MARGIN])


def test_one_chats_pace_is_not_its_neighbours():
    pacing = Pacing(FREE)
    starts(pacing, "5", 3)
    assert pacing.due("5") > 0.0
    assert pacing.due("6") == float("-inf")


def test_the_bot_sends_thirty_in_any_second():
    pacing = Pacing(Rates())
    times = []
    now = 0.0
    for chat in range(1, 201):
        now = max(now, pacing.bot_due)
        times.append(now)
        send(pacing, str(chat), now)
        now += 0.001
    assert all(later - earlier >= 1.0 for earlier, later in zip(times, times[30:], strict=False))
    assert times[-1] < 200 / 30


def test_a_rate_below_one_a_second_spreads_the_bots_sends():
    pacing = Pacing(Rates(bot_per_second=0.5, chat_per_second=9))
    assert gaps(starts(pacing, "5", 3)) == pytest.approx([2 * BOT_MARGIN] * 2)


def test_with_all_in_flight_that_may_be_nothing_starts_until_one_has_ended():
    pacing = Pacing(Rates(bot_per_second=2.0))
    pacing.started("5", 0.0)
    pacing.started("6", 0.0)
    assert pacing.bot_due == float("inf")
    pacing.ended("5", 7.0)
    assert pacing.bot_due < float("inf")


def test_unreadable_envelopes_are_not_paced():
    pacing = Pacing(Rates(bot_per_second=1.0))
    assert starts(pacing, "", 5) == [0.0] * 5
    assert pacing.bot_due == float("-inf")


def test_chats_at_rest_are_forgotten():
    pacing = Pacing(FREE)
    for chat in range(1, 5000):
        send(pacing, str(chat), chat * 1.0)
    assert len(pacing._chats) <= 2 * pacing_module.FORGET_ABOVE


# What it learns


def test_a_refused_chat_gets_slower_and_recovers():
    pacing = Pacing(FREE)
    starts(pacing, "5", 3)
    pacing.refused("5", 10.0, several=False)
    first = gaps(starts(pacing, "5", 3, now=11.0))
    assert all(1.9 < gap < 2.1 for gap in first), "half as fast, and no burst"
    assert gaps(starts(pacing, "5", 3, now=200.0)) == pytest.approx([MARGIN] * 2), "as fast, still no burst"
    later = 10.0 + pacing_module.NO_BURST_SECONDS + 100.0
    starts(pacing, "5", 1, now=later - 50.0)
    assert gaps(starts(pacing, "5", 3, now=later)) == pytest.approx([0, 0])


def test_refused_again_and_again_it_slows_down_to_a_bound():
    pacing = Pacing(FREE)
    for _ in range(10):
        pacing.refused("-5", 0.0, several=False)
    assert gaps(starts(pacing, "-5", 2)) == pytest.approx([8 * 3 * MARGIN])


def test_several_refused_together_slow_the_bot_down():
    pacing = Pacing(Rates(bot_per_second=1.0, chat_per_second=9.0))
    pacing.refused("5", 0.0, several=True)
    (gap,) = gaps(starts(pacing, "6", 2))
    assert gap == pytest.approx(2 * BOT_MARGIN)


# In the lanes


def paced(rates: Rates = FREE) -> Lanes:
    return Lanes(1000, 4, Pacing(rates))


def test_a_paced_chat_waits_and_its_neighbour_goes_on():
    lanes = paced()
    for one in (item(1, "-5"), item(2, "-5"), item(3, "6")):
        lanes.add(one, 0.0)
    first = lanes.take(0.0, 0.0, 0.0)
    assert first is not None
    lanes.answered(first, 0.1)
    lanes.done(first)
    assert [i.sequence for i in iter(lambda: lanes.take(0.1, 0.0, 0.0), None)] == [3]
    due = lanes.next_due(0.1)
    assert due == pytest.approx(0.1 + 3 * MARGIN)
    assert lanes.take(due - 0.01, 0.0, 0.0) is None
    second = lanes.take(due, 0.0, 0.0)
    assert second is not None
    assert second.sequence == 2


def test_pace_never_ends_a_hold_early_and_goes_on_after_it():
    lanes = paced()
    for sequence in range(1, 4):
        lanes.add(item(sequence, "5"), 0.0)
    lanes.hold("5", until=40.0)
    lanes.flooded("5", 40.0, 0.0)
    assert lanes.take(39.9, 0.0, 0.0) is None
    first = lanes.take(40.0, 0.0, 0.0)
    assert first is not None
    lanes.answered(first, 40.0)
    lanes.done(first)
    assert lanes.take(40.0, 0.0, 0.0) is None
    assert lanes.next_due(40.0) == pytest.approx(41.26, abs=0.01)


def test_an_alert_keeps_its_chats_pace():
    lanes = paced()
    assert lanes.lend("-5", 0.0)
    lanes.return_lent("-5", 0.1)
    assert not lanes.lend("-5", 3.0)
    assert lanes.lend("-5", 3.2)


def test_what_pacing_delays_is_named_once():
    lanes = paced()
    for sequence in range(1, 10):
        lanes.add(item(sequence, "-5"), 0.0)
    for sequence in range(10, 20):
        lanes.add(item(sequence, "7"), 0.0)
    lanes.hold("7", until=100.0)
    now = 0.0
    named: list[int] = []
    while now < 60.0:
        while (taken := lanes.take(now, 0.0, 0.0)) is not None:
            lanes.answered(taken, now)
            lanes.done(taken)
        if now == 15.0:  # the server hands one over again that waits here
            lanes.add(item(9, "-5"), now)
        named += [i.sequence for i in lanes.delayed(now)]
        assert not named or now >= DELAYED_SECONDS
        now += 0.5
    assert named == [4, 5, 6, 7, 8, 9]


def test_without_pacing_nothing_is_noted():
    lanes = Lanes(1000, 4)
    lanes.add(item(1, "-5"), 0.0)
    assert lanes.delayed(1e6) == []
    assert lanes._not_delayed == []


# The judge


@pytest.mark.parametrize("seed", range(5))
def test_the_flood_model_refuses_nothing_in_steady_state(seed: int):
    """Ten minutes of more messages than fit, to chats and groups, over a network of uneven speed."""
    rng = random.Random(seed)
    senders, seconds = 16, 600.0
    lanes = Lanes(100_000, senders, Pacing(Rates()))
    flood = Flood(TELEGRAM)
    chats = [str(n) for n in range(1, 41)] + [str(-n) for n in range(1, 21)]
    for sequence in range(1, 25_000):
        lanes.add(item(sequence, rng.choice(chats)), 0.0)
    now, sent, refused = 0.0, 0, 0
    under_way: list[tuple[float, int, str, Item]] = []
    while now < seconds:
        while len(under_way) < 2 * senders and (taken := lanes.take(now, 0.0, 0.0)) is not None:
            there, back = 0.02 + rng.random() * 0.01, 0.05 + rng.random() * 0.01
            heapq.heappush(under_way, (now + there, taken.sequence, "arrives", taken))
            heapq.heappush(under_way, (now + there + back, taken.sequence, "answer", taken))
        due = lanes.next_due(now)
        coming = under_way[0][0] if under_way else float("inf")
        now = min(coming, max(now + 1e-6, due) if due is not None else float("inf"))
        while under_way and under_way[0][0] <= now:
            at, _, what, one = heapq.heappop(under_way)
            if what == "arrives":
                refused += flood.admit(1, int(one.chat), one.chat.startswith("-"), at) is not None
                sent += 1
            else:
                lanes.answered(one, now)
                lanes.done(one)
    assert refused == 0
    assert sent > 0.97 * 30 * seconds
