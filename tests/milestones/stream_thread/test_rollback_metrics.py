"""What roll-backs cost."""

from __future__ import annotations

from milestones.common.records import TaskId
from milestones.common.testing import StepClock
from milestones.stream_thread.rollback_metrics import RollBacks

A, B = TaskId(0, 0), TaskId(0, 1)


def test_a_roll_back_lasts_until_the_last_of_its_tasks_processes_again() -> None:
    clock = StepClock()
    cost = RollBacks(clock)
    cost.began([A, B])
    cost.rolled_back(3)
    cost.rolled_back(4)
    clock.advance(100)
    cost.is_back(A)
    assert cost.ms == 0
    clock.advance(50)
    cost.is_back(B)
    assert (cost.count, cost.records, cost.ms) == (1, 7, 150)


def test_a_roll_back_within_another_is_part_of_it() -> None:
    clock = StepClock()
    cost = RollBacks(clock)
    for _ in range(2):
        cost.began([A])
        cost.rolled_back(1)
        clock.advance(100)
    cost.is_back(A)
    assert (cost.count, cost.records, cost.ms) == (2, 2, 200)


def test_tasks_that_were_not_rolled_back_do_not_matter() -> None:
    cost = RollBacks(StepClock())
    cost.is_back(A)
    assert (cost.count, cost.records, cost.ms) == (0, 0, 0)
