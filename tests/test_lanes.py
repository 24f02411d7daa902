"""Lanes, one behaviour at a time: order, holds, leases, what is awaited, read-ahead, cost."""

from __future__ import annotations

import pytest

from telegram_connector import lanes as lanes_module
from telegram_connector.delivery import Delivery, DeliveryId
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.lanes import BySequence, Item, Lanes

NEEDED = 30.0  # seconds of lease that a send wants
LEASE = 60.0
CONTENT = TelegramOutbound(msg_id="m", text="t")


def item(
    sequence: int,
    chat: str = "a",
    *,
    reply: str = "r1",
    lease: float = LEASE,
    size: int = 1,
    stored_at: int = 0,
) -> Item:
    delivery = Delivery(DeliveryId("S", sequence, stored_at), b"x" * size, {}, reply, 1, lease)
    return Item(delivery, chat, CONTENT, lease)


def lanes_with(*items: Item, max_pending: int = 100, senders: int = 1, now: float = 0.0) -> Lanes:
    lanes = Lanes(max_pending, senders)
    for one in items:
        lanes.add(one, now)
    return lanes


def take(lanes: Lanes, now: float = 0.0, lease_now: float = 0.0) -> Item:
    taken = lanes.take(now, lease_now, NEEDED)
    assert taken is not None
    return taken


def takeable(lanes: Lanes, now: float = 0.0, lease_now: float = 0.0) -> list[int]:
    """What would be sent now if every send succeeded at once."""
    sent = []
    while (taken := lanes.take(now, lease_now, NEEDED)) is not None:
        sent.append(taken.sequence)
        lanes.done(taken)
    return sent


# Order


def test_the_oldest_message_goes_first_whatever_its_chat():
    assert takeable(lanes_with(item(3, "a"), item(1, "b"), item(2, "c"), item(4, "b"))) == [1, 2, 3, 4]


def test_a_chat_has_one_send_in_flight_and_others_go_on():
    lanes = lanes_with(item(1, "a"), item(2, "a"), item(3, "b"))
    first = take(lanes)
    assert [first.sequence, take(lanes).sequence] == [1, 3]
    assert lanes.take(0.0, 0.0, NEEDED) is None
    lanes.done(first)
    assert take(lanes).sequence == 2


def test_an_older_message_that_comes_late_goes_first():
    lanes = lanes_with(item(5), item(6))
    lanes.add(item(2), 0.0)
    assert takeable(lanes) == [2, 5, 6]


def test_a_given_back_message_is_awaited_and_later_ones_of_its_chat_wait():
    lanes = lanes_with(item(1, "a"), item(2, "a"), item(3, "b"))
    lanes.returned(take(lanes), due=30.0)
    assert takeable(lanes) == [3]
    assert takeable(lanes, now=1e6, lease_now=0.0) == []
    lanes.add(item(1, "a", reply="r2"), 30.0)
    assert takeable(lanes, now=30.0) == [1, 2]


def test_a_message_put_back_goes_first_again():
    lanes = lanes_with(item(1), item(2))
    lanes.put_back(take(lanes))
    assert takeable(lanes) == [1, 2]


def test_a_message_that_is_gone_lets_its_lane_go_on():
    lanes = lanes_with(item(1), item(2))
    lanes.returned(take(lanes), due=0.0)
    assert lanes.gone(1, "a")
    assert not lanes.gone(1, "a")
    assert not lanes.gone(1, "another")
    assert takeable(lanes) == [2]


def test_what_the_server_counts_as_settled_is_not_awaited():
    lanes = lanes_with(item(1), item(2), item(3), item(4))
    lanes.returned(take(lanes), due=0.0)
    assert lanes.lapse(0.0, lease_now=LEASE) == [2, 3, 4]
    lanes.add(item(4, lease=200.0), 0.0)
    assert lanes.settled_below(2) == [(1, "a"), (2, "a")]
    assert lanes.take(0.0, LEASE, NEEDED) is None
    assert lanes.settled_below(3) == [(3, "a")]
    assert takeable(lanes, lease_now=LEASE) == [4]


# Handles


def test_a_redelivery_replaces_the_handle_of_a_waiting_message():
    lanes = lanes_with(item(1, size=10), item(1, reply="r2", size=10))
    assert (lanes.outstanding, lanes._bytes) == (1, 10)
    assert take(lanes).delivery.reply == "r2"


def test_a_redelivery_replaces_the_handle_of_a_send_in_flight():
    lanes = lanes_with(item(1))
    sending = take(lanes)
    lanes.add(item(1, reply="r2", lease=100.0), 0.0)
    assert (sending.delivery.reply, sending.leased_until) == ("r2", 100.0)
    assert lanes.take(0.0, 0.0, NEEDED) is None
    lanes.done(sending)
    assert (takeable(lanes), lanes.outstanding) == ([], 0)


def test_another_streams_message_of_the_same_sequence_is_another_message():
    lanes = lanes_with(item(1, stored_at=1))
    sending = take(lanes)
    lanes.reset()
    lanes.add(item(1, stored_at=2, reply="r2"), 0.0)
    assert sending.delivery.reply == "r1"
    lanes.returned(sending, due=30.0)
    assert (takeable(lanes), lanes.outstanding) == ([1], 0)


def test_a_message_put_back_does_not_push_out_another_streams_message():
    lanes = lanes_with(item(1, stored_at=1, size=3))
    sending = take(lanes)
    lanes.reset()
    lanes.add(item(1, stored_at=2, reply="r2", size=4), 0.0)
    lanes.put_back(sending)
    assert (lanes.outstanding, lanes._bytes) == (1, 4)
    assert take(lanes).delivery.reply == "r2"


# Holds


def test_a_held_chat_leaves_its_neighbour_alone():
    lanes = lanes_with(item(1, "a"), item(2, "b"))
    assert lanes.hold("a", 30.0)
    assert takeable(lanes, now=29.9) == [2]
    assert takeable(lanes, now=30.0) == [1]


def test_a_hold_only_lengthens():
    lanes = lanes_with(item(1))
    assert lanes.hold("a", 30.0)
    assert not lanes.hold("a", 20.0)
    assert not lanes.hold("a", 30.0)
    assert lanes.held(0.0) == {"a": 30.0}
    assert lanes.hold("a", 40.0)
    assert takeable(lanes, now=39.0) == []
    assert lanes.next_due(39.0) == 40.0


def test_a_finishing_send_does_not_end_its_chats_hold():
    lanes = lanes_with(item(1), item(2))
    sending = take(lanes)
    lanes.hold("a", 30.0)
    lanes.done(sending)
    assert takeable(lanes, now=29.0) == []


def test_a_hold_outlives_an_empty_lane():
    lanes = lanes_with(item(1))
    sending = take(lanes)
    lanes.hold("a", 30.0)
    lanes.done(sending)
    lanes.add(item(2), 1.0)
    assert takeable(lanes, now=29.0) == []
    assert takeable(lanes, now=30.0) == [2]


def test_the_end_of_a_hold_is_told_once():
    lanes = lanes_with(item(1))
    lanes.hold("a", 30.0)
    lanes.next_due(29.0)
    assert lanes.released() == []
    lanes.next_due(30.0)
    assert lanes.released() == ["a"]
    assert lanes.released() == []


def test_the_next_due_time_is_the_bots_while_the_bot_is_held():
    lanes = lanes_with(item(1, "a"))
    assert lanes.next_due(0.0) is None
    lanes.hold("a", 5.0)
    assert lanes.next_due(0.0) == 5.0
    lanes.gate.close("down", fault=False, now=0.0, jitter=0.0)
    assert lanes.next_due(0.0) == 1.0


def test_nothing_is_sent_while_the_bot_is_held_and_then_one_at_a_time():
    lanes = lanes_with(item(1, "a"), item(2, "b"))
    lanes.gate.close("down", fault=False, now=0.0, jitter=0.0)
    assert lanes.take(0.9, 0.0, NEEDED) is None
    trial = take(lanes, now=1.0)
    assert lanes.take(1.0, 0.0, NEEDED) is None
    lanes.gate.accepted(1.5)
    lanes.done(trial)
    assert takeable(lanes, now=1.5) == [2]


# Migrations


def test_migrated_messages_merge_by_sequence_with_those_of_the_new_chat():
    lanes = lanes_with(item(1, "old"), item(2, "new"), item(3, "old"), item(4, "new"))
    assert lanes.migrate("old", "new")
    assert takeable(lanes) == [1, 2, 3, 4]
    lanes.add(item(5, "old"), 0.0)
    assert take(lanes).chat == "new"


def test_the_longer_hold_wins_when_lanes_merge():
    for old, new in ((30.0, 50.0), (50.0, 30.0)):
        lanes = lanes_with(item(1, "old"), item(2, "new"))
        lanes.hold("old", old)
        lanes.hold("new", new)
        lanes.migrate("old", "new")
        assert lanes.held(0.0) == {"new": 50.0}
        assert takeable(lanes, now=49.0) == []


def test_the_message_that_told_of_the_migration_goes_first_in_the_new_lane():
    lanes = lanes_with(item(1, "old"), item(2, "old"), item(3, "new"))
    sending = take(lanes)
    lanes.migrate("old", "new")
    lanes.put_back(sending)
    assert [(i.sequence, i.chat) for i in [take(lanes)]] == [(1, "new")]
    assert lanes.take(0.0, 0.0, NEEDED) is None


def test_what_the_old_chat_awaits_holds_back_the_new_one():
    lanes = lanes_with(item(1, "old"))
    lanes.returned(take(lanes), due=5.0)
    lanes.add(item(2, "new"), 0.0)
    lanes.migrate("old", "new")
    assert takeable(lanes) == []
    assert lanes.overdue(60.0) == [(1, "new")]
    lanes.add(item(1, "old", reply="r2"), 5.0)
    assert takeable(lanes, now=5.0) == [1, 2]


def test_a_known_migration_or_one_in_a_circle_changes_nothing():
    lanes = Lanes(10)
    assert lanes.migrate("a", "b")
    assert not lanes.migrate("a", "b")
    assert not lanes.migrate("b", "a")
    assert lanes.migrate("b", "c")
    assert lanes.resolve("a") == "c"
    assert lanes.resolve("elsewhere") == "elsewhere"


def test_a_send_in_flight_goes_along_with_its_chat():
    """Migrations are also learnt from an earlier process's notes, while something is in flight."""
    lanes = lanes_with(item(1, "old"), item(2, "new"), senders=2)
    sending = take(lanes)
    lanes.migrate("old", "new")
    assert lanes.take(0.0, 0.0, NEEDED) is None, "the new lane must wait for the old one's send"
    lanes.add(item(1, "old", reply="r2"), 0.0)
    assert (sending.delivery.reply, lanes.outstanding) == ("r2", 2), "handed over again, yet not sent twice"
    lanes.returned(sending, due=30.0)
    assert takeable(lanes) == []
    lanes.add(item(1, "old", reply="r3"), 30.0)
    assert takeable(lanes, now=30.0) == [1, 2]
    assert lanes.outstanding == 0


def test_a_merged_lane_waits_for_both_sends_in_flight():
    lanes = lanes_with(item(1, "old"), item(2, "new"), item(3, "new"), senders=2)
    first, second = take(lanes), take(lanes)
    lanes.migrate("old", "new")
    assert lanes.in_flight == 2
    lanes.done(second)
    assert lanes.take(0.0, 0.0, NEEDED) is None
    lanes.returned(first, due=1.0)
    assert takeable(lanes, now=1.0) == []
    lanes.gone(1, "old")
    assert takeable(lanes) == [3]


# Leases


def test_a_head_without_enough_lease_waits_for_its_extension():
    lanes = lanes_with(item(1), item(2))
    assert lanes.take(0.0, LEASE - NEEDED + 1, NEEDED) is None
    items = lanes.to_extend(LEASE - NEEDED + 1, below=40.0)
    assert sorted(i.sequence for i in items) == [1, 2]
    lanes.extended(items, leased_until=200.0)
    assert takeable(lanes, lease_now=40.0) == [1, 2]


def test_an_extension_never_shortens_a_lease():
    one = item(1, lease=100.0)
    lanes = lanes_with(one)
    lanes.extended([one], leased_until=50.0)
    assert one.leased_until == 100.0


def test_sends_in_flight_are_extended_and_lapsed_leases_are_not():
    lanes = lanes_with(item(1), item(2), item(3, lease=10.0), item(4, lease=500.0))
    take(lanes)
    assert sorted(i.sequence for i in lanes.to_extend(20.0, below=45.0)) == [1, 2]


def test_a_lapsed_lease_drops_the_message_and_awaits_it():
    lanes = lanes_with(item(1, lease=50.0), item(2, lease=300.0), item(3, "b", lease=50.0))
    assert lanes.lapse(7.0, lease_now=49.9) == []
    assert lanes.lapse(7.0, lease_now=50.0) == [1, 3]
    assert lanes.overdue_for(1, "a", now=10.0) == 3.0
    assert (takeable(lanes, now=7.0, lease_now=50.0), lanes.outstanding) == ([], 3)
    lanes.add(item(1, lease=110.0, reply="r2"), 8.0)
    assert takeable(lanes, now=8.0, lease_now=50.0) == [1, 2]


def test_a_send_in_flight_is_not_dropped_when_its_lease_lapses():
    lanes = lanes_with(item(1))
    sending = take(lanes)
    assert lanes.lapse(0.0, lease_now=LEASE + 1) == []
    lanes.done(sending)
    assert lanes.outstanding == 0


# What is awaited


def test_an_awaited_message_is_looked_up_when_overdue_and_then_every_few_seconds():
    lanes = lanes_with(item(1), item(2))
    lanes.returned(take(lanes), due=30.0)
    assert lanes.overdue(31.9) == []
    assert lanes.overdue(32.0) == [(1, "a")]
    assert lanes.overdue(36.9) == []
    assert lanes.overdue(37.0) == [(1, "a")]
    assert lanes.overdue_for(1, "a", 37.0) == 7.0
    assert lanes.overdue_for(2, "a", 37.0) == 0.0


def test_of_a_lanes_awaited_messages_the_first_is_looked_up():
    lanes = lanes_with(item(1), item(2), item(3))
    lanes.lapse(0.0, lease_now=LEASE)
    assert lanes.overdue(2.0) == [(1, "a")]
    lanes.gone(1, "a")
    assert lanes.overdue(2.0) == [(2, "a")]


def test_of_many_overdue_messages_each_gets_its_turn():
    """64 that stay overdue must not keep the others from being looked up."""
    lanes = lanes_with(*(item(s, f"chat {s}") for s in range(1, 201)), max_pending=1000)
    lanes.lapse(0.0, lease_now=LEASE)
    named = [sequence for _ in range(4) for sequence, _ in lanes.overdue(10.0)]
    assert sorted(named) == list(range(1, 201))


def test_a_reset_forgets_all_but_the_sends_in_flight_and_the_holds():
    lanes = lanes_with(item(1, "a"), item(2, "a"), item(3, "b"), item(4, "c"))
    first, third = take(lanes), take(lanes)
    lanes.returned(third, due=5.0)
    lanes.hold("c", 30.0)
    assert lanes.reset() == 3
    assert (lanes.outstanding, lanes.held(0.0)) == (1, {"c": 30.0})
    lanes.done(first)
    for again in (2, 3, 4):
        lanes.add(item(again, {2: "a", 3: "b", 4: "c"}[again]), 0.0)
    assert takeable(lanes) == [2, 3]
    assert takeable(lanes, now=30.0) == [4]


def test_emptying_the_lanes_tells_what_is_free_from_what_waits_behind_a_send():
    lanes = lanes_with(item(1, "a"), item(5, "a"), item(4, "b"), item(2, "c"), item(3, "a"))
    sending = take(lanes)
    free, behind = lanes.drain()
    assert [i.sequence for i in free] == [2, 4]
    assert [i.sequence for i in behind] == [3, 5]
    assert lanes.outstanding == 1
    lanes.put_back(sending)
    assert [[i.sequence for i in part] for part in lanes.drain()] == [[1], []]
    assert (lanes.outstanding, lanes._bytes) == (0, 0)


# Read-ahead


def test_read_ahead_stops_at_a_few_ready_messages():
    lanes = lanes_with()
    assert lanes.wanted(0.0) == 32
    for sequence in range(1, 17):
        lanes.add(item(sequence, f"chat {sequence}"), 0.0)
    assert lanes.wanted(0.0) == 16
    lanes.add(item(17, "chat 17"), 0.0)
    assert lanes.wanted(0.0) == 0


def test_while_enough_is_ready_nobody_needs_to_ask():
    lanes = lanes_with(*(item(s, f"chat {s}") for s in range(1, 31)))
    assert lanes.wanted(0.0) == 0
    asked = 0
    for _ in range(14):
        lanes.done(take(lanes))
        if lanes.runs_low():
            asked += 1
            assert (lanes.wanted(0.0) > 0) == (lanes.outstanding <= 16)
    assert asked == 1
    assert lanes.wanted(0.0) == 16


def test_read_ahead_stops_at_one_deep_chat_that_is_being_sent_to():
    lanes = lanes_with(*(item(s) for s in range(1, 19)))
    take(lanes)
    assert lanes.wanted(0.0) == 0


def test_several_senders_read_on_past_one_deep_chat():
    lanes = lanes_with(*(item(s) for s in range(1, 41)), senders=4, max_pending=1000)
    assert lanes.wanted(0.0) > 0
    for sequence in range(41, 61):
        lanes.add(item(sequence, f"chat {sequence}"), 0.0)
    assert lanes.wanted(0.0) == 0


def test_read_ahead_goes_on_behind_a_held_chat_in_growing_steps_up_to_the_limit():
    lanes = Lanes(max_pending=1000)
    lanes.hold("a", 1e6)
    sequence = 0
    steps = []
    while wanted := lanes.wanted(0.0):
        steps.append(wanted)
        for _ in range(wanted):
            sequence += 1
            lanes.add(item(sequence), 0.0)
    assert lanes.outstanding == 1000
    assert steps == [32, 32, 64, 128, 256, 256, 232]


def test_a_neighbour_behind_a_held_chats_backlog_is_reached():
    lanes = Lanes(max_pending=1000)
    lanes.hold("a", 1e6)
    for sequence in range(1, 301):
        assert lanes.wanted(0.0) > 0
        lanes.add(item(sequence), 0.0)
    lanes.add(item(301, "b"), 0.0)
    assert takeable(lanes) == [301]
    assert lanes.wanted(0.0) == 32


def test_the_payloads_in_memory_are_bounded():
    half = lanes_module.MAX_BYTES // 2
    lanes = lanes_with(item(1, "a", size=half))
    lanes.hold("a", 1e6)
    assert lanes.wanted(0.0) > 0
    lanes.add(item(2, "a", size=half), 0.0)
    assert lanes.wanted(0.0) == 0


@pytest.mark.parametrize("full", ["by count", "by bytes"])
def test_full_lanes_still_ask_for_what_they_gave_back(full: str):
    """Else a flooded chat whose backlog fills the lanes would never get its first message again."""
    size = 1 if full == "by count" else lanes_module.MAX_BYTES // 8
    lanes = lanes_with(*(item(s, size=size) for s in range(1, 12)), max_pending=11 if size == 1 else 100)
    lanes.returned(take(lanes), due=30.0)
    assert lanes.wanted(29.9) == 0
    assert lanes.wanted(30.0) == 1
    lanes.add(item(1, size=size), 30.0)
    assert lanes.wanted(30.0) == 0
    assert takeable(lanes, now=30.0)[:3] == [1, 2, 3]


def test_nothing_at_rest_is_left_in_memory():
    lanes = lanes_with(*(item(s, f"chat {s}") for s in range(1, 101)), max_pending=1000)
    lanes.hold("chat 1", 10.0)
    lanes.migrate("chat 2", "chat 3")
    takeable(lanes)
    assert takeable(lanes, now=10.0) == [1]
    assert (lanes._lanes, lanes._ready, lanes._timed, lanes._blocked) == ({}, [], [], set())
    assert (lanes.outstanding, lanes._bytes, lanes.in_flight) == (0, 0, 0)


def test_the_fullest_chats_are_named_first():
    lanes = lanes_with(item(1, "a"), item(2, "b"), item(3, "b"), item(4, "c"), item(5, "c"), item(6, "c"))
    assert lanes.fullest(2) == ("c", "b")


# Cost, counted and not timed: figures must not depend on how many messages wait


class Counting(BySequence[Item]):
    """A lane's queue that counts how often it is asked anything."""

    calls = 0

    def __getitem__(self, sequence: int) -> Item:
        Counting.calls += 1
        return super().__getitem__(sequence)

    def __iter__(self):
        for sequence in super().__iter__():
            Counting.calls += 1
            yield sequence

    def values(self):
        for value in super().values():
            Counting.calls += 1
            yield value

    def first(self) -> int | None:
        Counting.calls += 1
        return super().first()


def calls_behind_a_held_chat(backlog: int, monkeypatch: pytest.MonkeyPatch) -> int:
    lanes = Lanes(max_pending=20_000)
    lanes.hold("held", 1e6)
    lane = lanes._lanes["held"]
    lane.waiting = Counting()
    for sequence in range(1, backlog + 1):
        lanes.add(item(sequence, "held", lease=1e9), 0.0)
    monkeypatch.setattr(Counting, "calls", 0)
    for sequence in range(backlog + 1, backlog + 101):
        lanes.add(item(sequence, "held", lease=1e9), 0.0)
        lanes.add(item(sequence + 1000, "b", lease=1e9), 0.0)
        lanes.wanted(0.0)
        lanes.done(take(lanes))
        lanes.next_due(0.0)
    return Counting.calls


def test_a_step_costs_the_same_whatever_waits_behind_a_held_chat(monkeypatch: pytest.MonkeyPatch):
    few, many = (calls_behind_a_held_chat(backlog, monkeypatch) for backlog in (100, 10_000))
    assert many == few


def test_ten_thousand_messages_behind_a_held_chat_enter_the_heaps_once():
    lanes = Lanes(max_pending=10_000)
    lanes.hold("a", 14 * 86_400.0)
    for sequence in range(1, 10_001):
        lanes.add(item(sequence), 0.0)
    for minute in range(1, 20):
        lease_now = minute * 30.0
        lanes.extended(lanes.to_extend(lease_now, below=40.0), lease_now + LEASE)
        lanes.wanted(lease_now)
    assert lanes.lapse(0.0, lease_now) == []
    assert len(lanes._timed) + len(lanes._ready) <= 2


def test_a_long_pause_of_the_bot_does_not_pile_up_entries():
    lanes = lanes_with(*(item(s, f"chat {s % 5}") for s in range(1, 51)))
    lanes.gate.close("revoked", fault=True, now=0.0, jitter=0.0)
    for minute in range(1, 200):
        lease_now = minute * 30.0
        lanes.extended(lanes.to_extend(lease_now, below=40.0), lease_now + LEASE)
        lanes.take(0.0, lease_now, NEEDED)
        lanes.wanted(0.0)
    assert len(lanes._ready) + len(lanes._timed) <= 10


def test_redeliveries_and_lapses_over_and_over_do_not_pile_up_in_a_lane():
    lanes = lanes_with(*(item(s) for s in range(1, 21)))
    lanes.hold("a", 1e9)
    for turn in range(1, 500):
        for sequence in range(20, 0, -1):
            lanes.add(item(sequence, lease=turn * 100.0), 0.0)  # handed over again
        assert len(lanes.lapse(0.0, lease_now=turn * 100.0)) == 20
    lane = lanes._lanes["a"]
    assert len(lane.waiting._order) + len(lane.awaited._order) < 200
    assert len(lanes._timed) + len(lanes._ready) < 50


def test_what_is_in_sequence_order_knows_its_first():
    queue: BySequence[str] = BySequence()
    assert queue.first() is None
    for sequence in (5, 3, 9):
        queue[sequence] = "x"
    assert queue.first() == 3
    del queue[3]
    queue[3] = "again"
    queue.pop(3)
    assert queue.first() == 5


def test_a_wait_for_others_that_ends_early_ends_no_other_wait():
    lanes = lanes_with(item(1))
    lanes.wait_all(50.0)
    lanes.wait_all(20.0)
    lanes.wait_for_others(80.0)
    assert takeable(lanes, 50.0) == []
    lanes.wait_for_others(float("-inf"))
    assert takeable(lanes, 49.9) == []
    assert takeable(lanes, 50.0) == [1]
