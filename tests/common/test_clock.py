"""What a machine can tell of the time for which it stood still."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milestones.common.clock import JUMP_MS, Standstill
from tests.common.clocks import Machine


def test_a_suspension_counts_in_full() -> None:
    machine = Machine()
    standstill = Standstill(machine)
    machine.advance(5_000)
    assert standstill.ms() == 0
    machine.put(60_000)
    machine.advance(3)
    assert standstill.ms() == 60_000
    machine.advance(5_000)
    assert standstill.ms() == 60_000


def test_a_wall_clock_that_is_put_back_changes_nothing() -> None:
    machine = Machine()
    standstill = Standstill(machine)
    machine.put(-3_600_000)
    assert standstill.ms() == 0
    machine.put(20_000)
    assert standstill.ms() == 20_000, "a suspension after it counts"


def test_a_wall_clock_that_is_adjusted_little_by_little_has_not_stood_still() -> None:
    machine = Machine()
    standstill = Standstill(machine)
    for _ in range(100):
        machine.advance(1_000)
        machine.put(JUMP_MS - 1)
        assert standstill.ms() == 0


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(-100_000, 100_000))))
def test_whatever_the_wall_clock_does_what_was_counted_stays_counted(moves: list[tuple[int, int]]) -> None:
    machine = Machine()
    standstill, before = Standstill(machine), 0
    for passed, put in moves:
        machine.advance(passed)
        machine.put(put)
        now = standstill.ms()
        assert now - before == (put if put >= JUMP_MS else 0)
        before = now
