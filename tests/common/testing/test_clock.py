"""A clock that stands still."""

from __future__ import annotations

import pytest

from milestones.common.testing import StepClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = StepClock(1_000)
    assert (clock.wall_ms(), clock.wall_ms(), clock.monotonic_ms()) == (1_000, 1_000, 0)
    clock.advance(5)
    clock.sleep_ms(2)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_007, 7)


def test_time_cant_go_back() -> None:
    with pytest.raises(ValueError, match=r"time can't go back by 1 ms"):
        StepClock().advance(-1)
