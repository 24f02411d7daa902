"""The lease clock under suspensions, set clocks and slews."""

from __future__ import annotations

import pytest

from telegram_connector.clock import LeaseClock


class Hands:
    """Two clocks moved by hand."""

    def __init__(self) -> None:
        self.monotonic = 100.0
        self.wall = 1_700_000_000.0
        self.lease = LeaseClock(lambda: self.monotonic, lambda: self.wall)
        self._before = self.lease()

    def move(self, monotonic: float, wall: float | None = None) -> float:
        """Move the clocks on; returns how far the lease clock went."""
        self.monotonic += monotonic
        self.wall += monotonic if wall is None else wall
        now = self.lease()
        moved, self._before = now - self._before, now
        return moved


@pytest.fixture
def hands() -> Hands:
    return Hands()


def test_it_runs_with_the_monotonic_clock(hands: Hands):
    assert [hands.move(seconds) for seconds in (0.0, 0.5, 3600.0)] == [0.0, 0.5, 3600.0]


def test_a_suspension_that_only_the_wall_clock_saw_counts(hands: Hands):
    assert hands.move(1.0, wall=61.0) == pytest.approx(61.0)
    assert hands.move(1.0) == pytest.approx(1.0), "and counts once"


def test_a_wall_clock_set_back_neither_turns_it_back_nor_hides_the_next_suspension(hands: Hands):
    assert hands.move(1.0, wall=-3600.0) == pytest.approx(1.0)
    assert hands.move(1.0, wall=61.0) == pytest.approx(61.0)


def test_a_wall_clock_set_forward_makes_leases_lapse_early(hands: Hands):
    assert hands.move(0.1, wall=3600.0) == pytest.approx(3600.0)


def test_noise_below_a_second_does_not_count(hands: Hands):
    moved = sum(hands.move(1.0, wall=1.0 + noise) for noise in (0.9, -0.9, 0.5, -0.5))
    assert moved == pytest.approx(4.0)


def test_a_slew_counts_once_it_adds_up(hands: Hands):
    """A wall clock that runs 0.05% fast, looked at twice a second for four hours."""
    moved = sum(hands.move(0.5, wall=0.50025) for _ in range(4 * 7200))
    assert 4 * 3600 * 1.0005 - 1.1 <= moved <= 4 * 3600 * 1.0005 + 0.1


def test_a_slew_backwards_never_turns_it_back(hands: Hands):
    assert all(hands.move(0.5, wall=0.4) == pytest.approx(0.5) for _ in range(100))


def test_short_suspensions_add_up(hands: Hands):
    assert sum(hands.move(0.0, wall=0.8) for _ in range(100)) == pytest.approx(80.0, abs=1.0)
