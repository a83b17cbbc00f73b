"""The baseline's rounds over its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.baseline.processing import MOST_RECORDS, SLICE_MS, InlineProcessing
from milestones.common.testing.clock import StepClock
from milestones.parts import CloseMode, RemovedTask
from tests.milestones.work import Work


def processing(clock: StepClock, *tasks: Work) -> InlineProcessing:
    context: Any = SimpleNamespace(clock=clock)
    part = InlineProcessing(context)
    for task in tasks:
        part.add(task)  # type: ignore[arg-type]  # as far as it goes
    return part


def test_all_that_was_fetched_is_processed_before_more_is_when_time_allows() -> None:
    clock = StepClock()
    part = processing(clock, task := Work(clock, waiting=10 * MOST_RECORDS, record_ms=0))
    assert part.run_once(clock.monotonic_ms())
    assert task.waiting == 0
    assert part.processed == 10 * MOST_RECORDS
    assert max(task.limits) == MOST_RECORDS


def test_a_call_ends_soon_after_its_time_slice_however_much_waits() -> None:
    clock = StepClock()
    slow = [Work(clock, waiting=1_000_000, record_ms=3, partition=number) for number in range(3)]
    part = processing(clock, *slow)
    for _ in range(10):
        before_ms = clock.monotonic_ms()
        part.run_once(before_ms)
        assert clock.monotonic_ms() - before_ms < 3 * SLICE_MS


def test_no_task_waits_for_another_one_to_finish() -> None:
    clock = StepClock()
    busy, idle = Work(clock, waiting=1_000_000), Work(clock, partition=1, waiting=1)
    processing(clock, busy, idle).run_once(clock.monotonic_ms())
    assert idle.waiting == 0


def test_nothing_to_do_is_said() -> None:
    clock = StepClock()
    assert not processing(clock, Work(clock)).run_once(clock.monotonic_ms())


def test_tasks_of_a_paused_sub_topology_neither_process_nor_punctuate_until_it_is_resumed() -> None:
    clock = StepClock()
    paused, going, later = (Work(clock, number, waiting=5, sub=sub) for number, sub in ((0, 1), (0, 0), (1, 1)))
    for task in (paused, going, later):
        task.punctuation_ms = 0
    part = processing(clock, paused, going)
    part.pause(frozenset({1}))
    part.add(later)  # type: ignore[arg-type]
    part.run_once(clock.monotonic_ms())
    assert [task.waiting for task in (paused, later, going)] == [5, 5, 0]
    assert ["punctuate" in task.done for task in (paused, later, going)] == [False, False, True]
    part.pause(frozenset())
    part.run_once(clock.monotonic_ms())
    assert (paused.waiting, later.waiting) == (0, 0)


def test_a_punctuation_of_a_paused_task_wakes_nobody_up() -> None:
    clock = StepClock()
    part = processing(clock, task := Work(clock))
    task.punctuation_ms = clock.wall_ms() + 70
    part.run_once(clock.monotonic_ms())
    assert part.wake_up_ms(clock.monotonic_ms()) == 70
    part.pause(frozenset({0}))
    assert part.wake_up_ms(clock.monotonic_ms()) is None


def test_a_paused_task_can_be_taken_away() -> None:
    clock = StepClock()
    part = processing(clock, task := Work(clock))
    part.pause(frozenset({0}))
    part.remove(task.id, CloseMode.SUSPEND)
    assert part.take_removed() == [RemovedTask(task)]  # type: ignore[arg-type]
