"""Alarms ring once, in time, and are forgotten with their tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.common.records import TaskId
from milestones.common.task.alarms import Alarms, PunctuationAlarms
from milestones.common.testing.clock import StepClock

A, B = TaskId(0, 0), TaskId(0, 1)


def test_an_alarm_rings_once_when_its_time_has_come() -> None:
    alarms = Alarms()
    alarms.set(A, 100)
    alarms.set(B, 50)
    assert (alarms.next_ms(), alarms.ring(49)) == (50, [])
    assert (alarms.ring(100), alarms.ring(1_000), alarms.next_ms()) == ([B, A], [], None)


def test_the_earliest_of_a_tasks_alarms_counts() -> None:
    alarms = Alarms()
    for at_ms in (100, 50, 70):
        alarms.set(A, at_ms)
    assert (alarms.ring(60), alarms.ring(1_000)) == ([A], [])


def test_one_that_has_rung_can_be_set_anew_for_the_same_time() -> None:
    alarms = Alarms()
    alarms.set(A, 100)
    alarms.set(A, 50)
    alarms.ring(50)
    alarms.set(A, 100)
    assert (alarms.next_ms(), alarms.ring(100), alarms.ring(100)) == (100, [A], [])


def test_a_task_that_is_forgotten_rings_no_more() -> None:
    alarms = Alarms()
    alarms.set(A, 100)
    alarms.forget(A)
    alarms.forget(B)
    assert (alarms.next_ms(), alarms.ring(1_000)) == (None, [])


def punctuated(id: TaskId, due_ms: int | None) -> Any:
    return SimpleNamespace(id=id, next_punctuation_ms=lambda: due_ms)


def test_a_task_is_rung_when_its_punctuation_is_due_and_one_without_any_never() -> None:
    clock = StepClock()
    alarms = PunctuationAlarms(clock)
    alarms.set(punctuated(A, clock.wall_ms() + 100))
    alarms.set(punctuated(B, None))
    assert (alarms.ring(), alarms.next_in_ms()) == ([], 100)
    clock.advance(250)
    assert (alarms.next_in_ms(), alarms.ring(), alarms.next_in_ms()) == (0, [A], None)


def test_a_clock_that_is_put_back_rings_every_task_with_a_punctuation() -> None:
    clock = StepClock()
    alarms = PunctuationAlarms(clock)
    for id in (A, B):
        alarms.set(punctuated(id, clock.wall_ms() + 100))
    clock.set_wall_ms(clock.wall_ms() - 1_000)
    assert (alarms.ring(), alarms.ring()) == ([A, B], [])
