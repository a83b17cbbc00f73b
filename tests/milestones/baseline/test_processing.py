"""The baseline's rounds over its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.baseline.processing import MOST_RECORDS, SLICE_MS, InlineProcessing
from milestones.common.testing.clock import StepClock
from milestones.parts import CloseMode, RemovedTask
from tests.milestones.work import PAUSE_MS, Work


class Timed(Work):
    """A task whose `init` and punctuation take their time, its records none."""

    def __init__(self, clock: StepClock, partition: int, waiting: int = 0, init_ms: int = 0) -> None:
        super().__init__(clock, partition, waiting, record_ms=0)
        self._init_ms, self.long_ms = init_ms, 0

    def initialise(self) -> None:
        if not self.initialised:
            self.clock.advance(self._init_ms)
        super().initialise()

    def punctuate(self, wall_ms: int) -> bool:
        called = super().punctuate(wall_ms)
        self.clock.advance(self.long_ms * called)
        return called


def processing(clock: StepClock, *tasks: Work) -> InlineProcessing:
    context: Any = SimpleNamespace(clock=clock)
    part = InlineProcessing(context)
    for task in tasks:
        part.add(task)  # type: ignore[arg-type]  # as far as it goes
    return part


def committed(part: InlineProcessing, task: Work, waits_ms: int) -> None:
    """A commit of the task was confirmed, and waits for the disk for so long."""
    task.applying, task.waits_ms = True, waits_ms
    part.apply(task)  # type: ignore[arg-type]  # as far as it goes


def taken_away_beyond_its_time(part: InlineProcessing, task: Work) -> None:
    committed(part, task, 100)
    part.remove(task.id, CloseMode.SUSPEND)
    task.clock.advance(200)
    part.run_once(task.clock.monotonic_ms())


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
        assert clock.monotonic_ms() - before_ms < 3 * SLICE_MS <= 150


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


def test_a_task_that_has_been_slow_gets_no_long_turn_when_much_comes_at_once() -> None:
    """However many short rounds there were before, and however quick another task is."""
    clock = StepClock()
    slow, quick = Work(clock, waiting=1, record_ms=20), Work(clock, 1, waiting=1_000_000, record_ms=0)
    part = processing(clock, slow, quick)
    quick.waiting = 10 * MOST_RECORDS
    for _ in range(20):
        part.run_once(clock.monotonic_ms())
        slow.waiting, quick.waiting = 1, 10 * MOST_RECORDS
        slow.input.on_arrival()
        quick.input.on_arrival()
    slow.waiting = 1_000
    before_ms = clock.monotonic_ms()
    part.run_once(before_ms)
    assert clock.monotonic_ms() - before_ms < 2 * SLICE_MS


def test_a_task_whose_records_become_slow_has_one_long_turn_and_no_second_one() -> None:
    clock = StepClock()
    task = Work(clock, waiting=10 * MOST_RECORDS, record_ms=0)
    part = processing(clock, task)
    part.run_once(clock.monotonic_ms())
    task.waiting, task.record_ms = 10 * MOST_RECORDS, 20
    task.input.on_arrival()
    part.run_once(clock.monotonic_ms())
    before_ms = clock.monotonic_ms()
    part.run_once(before_ms)
    assert clock.monotonic_ms() - before_ms < 2 * SLICE_MS


def test_where_a_record_takes_most_of_a_slice_the_tasks_share_several_calls_in_turn() -> None:
    clock = StepClock()
    tasks = [Work(clock, number, waiting=5, record_ms=SLICE_MS) for number in range(10)]
    part = processing(clock, *tasks)
    for _ in range(10):
        before_ms = clock.monotonic_ms()
        part.run_once(before_ms)
        assert clock.monotonic_ms() - before_ms == SLICE_MS
    assert [task.waiting for task in tasks] == [4] * 10


def test_many_new_tasks_are_initialised_in_several_calls_while_others_are_processed() -> None:
    clock = StepClock()
    part = processing(clock, old := Work(clock))
    part.run_once(clock.monotonic_ms())
    new = [Timed(clock, number, waiting=1, init_ms=20) for number in range(1, 11)]
    for task in new:
        part.add(task)  # type: ignore[arg-type]
    for _ in range(4):
        old.waiting = 1
        old.input.on_arrival()
        before_ms = clock.monotonic_ms()
        assert part.run_once(before_ms)
        assert clock.monotonic_ms() - before_ms < 3 * SLICE_MS
        assert old.waiting == 0
    assert [task.waiting for task in new] == [0] * 10


def test_punctuations_that_take_long_are_called_in_several_calls_each_in_its_turn() -> None:
    clock = StepClock()
    tasks = [Timed(clock, number) for number in range(10)]
    part = processing(clock, *tasks)
    part.run_once(clock.monotonic_ms())
    for task in tasks:
        task.punctuation_ms, task.long_ms = clock.wall_ms(), 20
        part.remove(task.id, CloseMode.SUSPEND)
        part.add(task)  # type: ignore[arg-type]
    for _ in range(4):
        before_ms = clock.monotonic_ms()
        part.run_once(before_ms)
        assert clock.monotonic_ms() - before_ms < 2 * SLICE_MS
    assert [task.done.count("punctuate") for task in tasks] == [1] * 10


def test_a_task_without_input_writes_what_waits_for_the_disk_once_that_is_due() -> None:
    clock = StepClock()
    tasks = [Work(clock, partition=number) for number in range(3)]
    part = processing(clock, *tasks)
    for number, task in enumerate(tasks):
        committed(part, task, 100 * (1 + number))
    for _ in range(40):
        part.run_once(clock.monotonic_ms())
        written = [task.done.count("write") for task in tasks]
        assert written == [int(clock.monotonic_ms() >= task.waits_ms) for task in tasks]
        clock.advance(10)


def test_a_task_that_is_taken_away_writes_nothing_afterwards() -> None:
    clock = StepClock()
    part = processing(clock, task := Work(clock))
    taken_away_beyond_its_time(part, task)
    assert "write" not in task.done


def test_what_is_due_first_is_written_first_whoever_committed_first() -> None:
    clock = StepClock()
    tasks = [Work(clock, partition=number) for number in range(2)]
    part = processing(clock, *tasks)
    for task, waits_ms in zip(tasks, (900, 100), strict=True):
        committed(part, task, waits_ms)
    clock.advance(100)
    part.run_once(clock.monotonic_ms())
    assert [task.done.count("write") for task in tasks] == [0, 1]


def test_a_task_that_comes_back_writes_what_waits_once_that_is_due() -> None:
    clock = StepClock()
    part = processing(clock, task := Work(clock))
    taken_away_beyond_its_time(part, task)
    part.add(task)  # type: ignore[arg-type]  # as far as it goes
    part.run_once(clock.monotonic_ms())
    assert task.done.count("write") == 1


def test_a_busy_disk_keeps_no_record_waiting_for_what_no_commit_waits_for() -> None:
    clock = StepClock()
    tasks = [Work(clock, partition=number, record_ms=0) for number in range(2)]
    part = processing(clock, *tasks)
    busy = tasks[0]
    committed(part, busy, 100)
    clock.advance(100)
    busy.busy = 3
    for number in range(4):
        before_ms = clock.monotonic_ms()
        tasks[1].waiting = 5
        tasks[1].input.on_arrival()
        part.run_once(before_ms)
        assert (clock.monotonic_ms(), tasks[1].waiting) == (before_ms, 0)
        assert (busy.done.count("busy"), busy.done.count("write")) == (min(number + 1, 3), number // 3)
        clock.advance(PAUSE_MS)
