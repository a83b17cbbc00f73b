"""Writes that aren't possible now: when they are made again, what is said of them, when they are given up."""

from __future__ import annotations

import logging

import pytest

from milestones.common.errors import StateBusyError, StateError
from milestones.common.state.refusals import LONGEST_PAUSE_MS, SAY_AFTER_MS, Refusals
from milestones.common.testing import StepClock


def busy(pause_ms: int = 0, limit_ms: int | None = None) -> StateBusyError:
    return StateBusyError("the stores in /s", "the disk is full", "make room", pause_ms, limit_ms)


def test_pauses_grow_and_none_is_shorter_than_the_engine_asks_for() -> None:
    refusals = Refusals(StepClock())
    assert [refusals.note(busy()) for _ in range(8)] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE_MS, LONGEST_PAUSE_MS]
    assert refusals.note(busy(700)) == 700
    refusals.made()
    assert (refusals.note(busy()), refusals.note(busy(3))) == (1, 3)


def test_a_write_is_given_up_when_it_has_waited_for_too_long_and_the_next_one_has_as_long() -> None:
    clock = StepClock()
    refusals = Refusals(clock)
    for _ in range(2):
        refusals.note(busy(limit_ms=5_000))
        clock.advance(4_999)
        refusals.note(busy(limit_ms=5_000))
        clock.advance(1)
        with pytest.raises(StateError, match="a write was refused for 5 s, as the disk is full: make room") as error:
            refusals.note(busy(limit_ms=5_000))
        assert not isinstance(error.value, StateBusyError)


def test_without_a_limit_a_write_waits_for_ever_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = StepClock()
    refusals = Refusals(clock, "task 0_1")
    for _ in range(1_000):
        refusals.wait(busy(SAY_AFTER_MS))
    refusals.made()
    refusals.made()
    assert caplog.messages == [
        "task 0_1, the stores in /s: a write waits, as the disk is full: make room",
        "task 0_1, a write that waited for 1000 s is made",
    ]
    assert clock.monotonic_ms() == 1_000 * SAY_AFTER_MS


def test_a_short_wait_isnt_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = StepClock()
    refusals = Refusals(clock)
    refusals.note(busy())
    clock.advance(SAY_AFTER_MS - 1)
    refusals.note(busy())
    refusals.made()
    assert caplog.messages == []
