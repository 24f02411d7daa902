"""What was settled for good is remembered, within bounds."""

from __future__ import annotations

from telegram_connector.delivery import Ack, DeliveryId, Term
from telegram_connector.settled import SettledMemory


def id_of(sequence: int, stored_at: int = 0) -> DeliveryId:
    return DeliveryId("S", sequence, stored_at)


def test_a_settled_delivery_is_known_by_how_it_was_settled():
    memory = SettledMemory()
    memory.remember(id_of(1), Ack(), 0.0)
    memory.remember(id_of(2), Term("refused"), 0.0)
    assert memory.settled_by(id_of(1)) == Ack()
    assert memory.settled_by(id_of(2)) == Term("refused")
    assert memory.settled_by(id_of(3)) is None


def test_the_same_sequence_of_a_stream_made_anew_is_not_known():
    memory = SettledMemory()
    memory.remember(id_of(1, stored_at=1), Ack(), 0.0)
    assert memory.settled_by(id_of(1, stored_at=2)) is None
    assert memory.settled_by(DeliveryId("OTHER", 1, 1)) is None


def test_what_is_too_old_is_forgotten():
    memory = SettledMemory(seconds=100.0)
    memory.remember(id_of(1), Ack(), 0.0)
    memory.remember(id_of(2), Ack(), 50.0)
    memory.remember(id_of(3), Ack(), 100.0)
    assert [memory.settled_by(id_of(n)) is not None for n in (1, 2, 3)] == [False, True, True]


def test_only_so_many_are_kept_the_oldest_going_first():
    memory = SettledMemory(count=3)
    for sequence in range(1, 11):
        memory.remember(id_of(sequence), Ack(), 0.0)
    assert list(memory._settled) == [id_of(8), id_of(9), id_of(10)]


def test_settling_again_makes_it_young_again():
    memory = SettledMemory(count=2)
    for sequence in (1, 2, 1, 3):
        memory.remember(id_of(sequence), Ack(), 0.0)
    assert memory.settled_by(id_of(1)) == Ack()
    assert memory.settled_by(id_of(2)) is None


def test_a_memory_of_nothing_forgets_at_once():
    memory = SettledMemory(count=0)
    memory.remember(id_of(1), Ack(), 0.0)
    assert memory.settled_by(id_of(1)) is None
