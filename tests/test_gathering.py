"""Gathering, one behaviour at a time: first at once, counts, pauses, room, drops, cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telegram_connector.gathering import COUNT_LENGTH, CUT, NOTE_LENGTH, Gathering, shortened


def gathering(capacity: int = 10, pause: float = 5.0, limit: int = 400) -> Gathering:
    return Gathering(capacity, pause, limit)


def test_the_first_is_due_at_once_and_nothing_is_said_of_nothing():
    one = gathering()
    assert (one.due_at(), one.take(0.0), one.waiting) == (None, None, False)
    one.add("a", "text", 7.0)
    assert (one.due_at(), one.waiting) == (7.0, True)
    assert one.take(7.0) == "text"
    assert (one.due_at(), one.take(7.0), one.waiting) == (None, None, False)


def test_a_storm_of_one_kind_is_one_message_with_its_count_and_the_last_text():
    one = gathering()
    one.add("a", "first", 0.0)
    assert one.take(0.0) == "first"
    for n in range(1000):
        one.add("a", f"text {n}", 1.0)
    assert (one.due_at(), one.take(4.9)) == (5.0, None)
    assert one.take(5.0) == "[1000 times] text 999"


def test_the_pause_of_a_kind_doubles_while_it_goes_on_and_starts_over_after_quiet():
    one = gathering()
    now, pauses = 0.0, []
    for _ in range(10):
        one.add("a", "text", now)
        due = one.due_at()
        assert due is not None
        pauses.append(due - now)
        now = due
        assert one.take(now) == "text"
    assert pauses == [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]
    one.add("a", "text", now + 600)
    assert one.due_at() == now + 600


def test_another_kind_waits_for_the_pause_between_messages_only():
    one = gathering()
    one.add("a", "a", 0.0)
    one.take(0.0)
    one.add("b", "b", 1.0)
    assert (one.take(4.9), one.take(5.0)) == (None, "b")


def test_what_comes_together_goes_together_in_the_order_of_its_first():
    one = gathering()
    for key in ("a", "b", "a", "c"):
        one.add(key, key, 0.0)
    assert one.take(0.0) == "[2 times] a\n\nb\n\nc"


def test_what_has_no_room_goes_into_the_next_message():
    one = gathering(limit=400)
    for key in "abc":
        one.add(key, key * 140, 0.0)
    assert one.take(0.0) == "a" * 140 + "\n\n" + "b" * 140
    assert one.due_at() == 5.0
    assert one.take(5.0) == "c" * 140


def test_drops_are_counted_and_said_once():
    one = gathering(capacity=2)
    for n in range(5):
        one.add(n, f"text {n}", 0.0)
    one.add(0, "again", 0.0)
    note = "[3 more were dropped: too many different ones at once]"
    assert one.take(0.0) == f"[2 times] again\n\ntext 1\n\n{note}"
    assert not one.waiting


def test_a_quiet_kind_makes_room():
    one = gathering(capacity=2)
    one.add("a", "a", 0.0)
    one.add("b", "b", 0.0)
    one.take(0.0)
    one.add("b", "b", 1.0)
    one.add("c", "c", 1.0)  # in place of a
    one.add("d", "d", 1.0)
    assert one.take(5.0) == "b\n\nc\n\n[1 more were dropped: too many different ones at once]"


def test_at_once_disregards_every_pause():
    one = gathering()
    one.add("a", "a", 0.0)
    one.take(0.0)
    one.add("a", "a", 0.0)
    assert (one.take(0.0), one.take(0.0, at_once=True)) == (None, "a")


def test_a_cut_text_keeps_its_beginning_and_its_end():
    cut = shortened("message\n" + "x" * 1000 + "\nValueError: the end", 100)
    assert len(cut) == 100
    assert cut.startswith("message\n")
    assert CUT in cut
    assert cut.endswith("\nValueError: the end")
    assert shortened("x" * 100, 100) == "x" * 100


@given(
    st.lists(st.tuples(st.integers(0, 8), st.text(max_size=600), st.booleans()), max_size=60),
    st.integers(NOTE_LENGTH + COUNT_LENGTH + 50, 700),
)
def test_every_text_is_said_or_counted_and_every_message_fits(
    steps: list[tuple[int, str, bool]], limit: int
) -> None:
    one, now, messages, added = gathering(capacity=4, limit=limit), 0.0, [], 0
    for key, text, take in steps:
        one.add(key, f"<{key}>{text}", now)
        added += 1
        now += 1.0
        if take and (message := one.take(now)) is not None:
            messages.append(message)
    while (message := one.take(now, at_once=True)) is not None:
        messages.append(message)
    assert not one.waiting
    assert all(0 < len(message) <= limit for message in messages)
    assert bool(messages) == bool(added)
