"""What a stream thread, and whoever writes user code, may rely on when threads take tasks."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

from milestones.common.errors import OwnershipError, StateError
from milestones.common.metrics import Metrics
from milestones.common.records import TaskId
from milestones.common.task.lifecycle import TaskState
from milestones.common.testing.clock import StepClock
from milestones.m2_processing_threads.commit_preparation import LOCK_MS, LONG_CALL_MS
from milestones.m2_processing_threads.quarantine import FIRST_MS, LONGEST_MS
from milestones.m2_processing_threads.runnable_tasks import PATROL_MS
from milestones.m2_processing_threads.scheduled_task import Job, SchedulerPlace
from milestones.m2_processing_threads.scheduler import IDLE_MS, SLICE_MS, Scheduler
from milestones.m2_processing_threads.worker import MOST_RECORDS, Worker
from milestones.parts import CloseMode
from tests.milestones.m2_processing_threads.failures import final_failure
from tests.milestones.work import Work, room_of

TIMEOUT_MS = 60_000
ROOM = 12_000
LENT = 9_000
A = TaskId(0, 0)


class Shop:
    """A scheduler with a worker. `slept`: how long each wait would have been; `state`: of each task, once it is
    initialised."""

    def __init__(self, *tasks: dict[str, Any], threads: int = 1, **state: Any) -> None:
        self.clock = StepClock()
        self.slept: list[int] = []
        self.scheduler = Scheduler(
            self.clock, threads, TIMEOUT_MS, room=room_of(ROOM),
            wait=lambda _, timeout_ms: self.slept.append(timeout_ms),
        )  # fmt: skip
        self.metrics = Metrics(self.clock)
        self.workers = [Worker(f"worker {n}", self.scheduler, self.clock, self.metrics) for n in range(threads)]
        self.tasks: list[Any] = [Work(self.clock, number, **of) for number, of in enumerate(tasks)]
        for task in self.tasks:
            self.scheduler.add(task)
            task.initialise()
            vars(task).update(state)

    @property
    def task(self) -> Any:
        return self.tasks[0]

    def work(self, times: int = 1) -> None:
        for _ in range(times):
            self.workers[0].run_once()

    def take(self) -> Any:
        lease = self.scheduler.take("a thread")
        assert lease is not None
        return lease


# -- turns


def test_a_task_is_worked_on_for_a_time_slice() -> None:
    shop = Shop({"waiting": 10_000, "record_ms": 3})
    shop.work()
    assert SLICE_MS - 3 < shop.clock.monotonic_ms() <= SLICE_MS
    assert SLICE_MS <= 50, "what a pause, and another task, wait for"


def test_a_record_that_takes_longer_than_a_slice_is_the_only_one_of_its_turn() -> None:
    shop = Shop({"waiting": 5, "record_ms": 10 * SLICE_MS})
    shop.work()
    assert shop.task.counters.processed == 1


def test_fast_records_are_processed_in_large_batches() -> None:
    shop = Shop({"waiting": 100_000, "record_ms": 0})
    shop.task.process = lambda limit, _: shop.task.limits.append(limit) or shop.clock.advance(1) or limit
    shop.work()
    assert max(shop.task.limits) == MOST_RECORDS


def test_a_thread_has_one_task_at_a_time_and_a_task_one_thread() -> None:
    shop = Shop({"waiting": 10}, threads=2)
    lease = shop.take()
    assert shop.scheduler.take("another thread") is None
    assert shop.scheduler.places() == {A: SchedulerPlace.LEASED}
    shop.scheduler.give_back(lease)
    with pytest.raises(OwnershipError, match="a thread gives back task 0_0 without a lease"):
        shop.scheduler.give_back(lease)


def test_a_turn_that_is_overdue_ends_at_the_next_record() -> None:
    shop = Shop({"waiting": 10})
    shop.take()
    shop.task.limit = 5
    shop.clock.advance(SLICE_MS - 1)
    shop.scheduler.wake()
    assert shop.task.limit == 5
    shop.clock.advance(1)
    shop.scheduler.wake()
    assert shop.task.limit == 0


def test_a_thread_without_work_sleeps_until_the_next_punctuation() -> None:
    shop = Shop({})
    shop.work()
    shop.task.punctuation_ms = shop.clock.wall_ms() + 70
    shop.clock.advance(PATROL_MS)  # the scheduler wasn't told
    shop.work()
    shop.clock.advance(70 - PATROL_MS)
    shop.work()
    assert shop.slept == [IDLE_MS, 70 - PATROL_MS]
    assert shop.task.done[-1] == "punctuate"


def test_nothing_of_a_paused_task_is_called_and_what_is_at_work_ends_at_the_next_record() -> None:
    shop = Shop({"waiting": 10}, {"waiting": 10, "sub": 1})
    lease = shop.take()
    shop.scheduler.pause(frozenset({lease.task.id.subtopology}))
    assert lease.stop
    shop.scheduler.give_back(lease)
    other = shop.take()
    assert other.task is not lease.task
    assert shop.scheduler.take("another thread") is None


# -- failures


def test_a_task_that_fails_is_tried_again_later_each_time_and_the_others_go_on() -> None:
    shop = Shop({"waiting": 10}, {"waiting": 10_000})
    shop.task.error = ValueError("user code")
    tries, times = 0, []
    for _ in range(400):
        before = len(shop.task.limits)
        shop.work()
        if len(shop.task.limits) > before:
            tries += 1
            times.append(shop.clock.monotonic_ms())
        shop.clock.advance(25)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] >= FIRST_MS
    assert all(later > earlier for earlier, later in pairwise(pauses[:5]))
    assert shop.tasks[1].waiting < 10_000
    assert final_failure(shop.scheduler) is None


def test_a_task_in_quarantine_is_in_no_other_place_and_comes_out_of_it_to_be_tried() -> None:
    shop = Shop({"waiting": 10}, error=ValueError("user code"))
    shop.work()
    assert (shop.scheduler.places(), shop.task.state) == ({A: SchedulerPlace.QUARANTINED}, TaskState.QUARANTINED)
    assert shop.scheduler.take("a thread") is None
    shop.clock.advance(FIRST_MS)
    shop.task.error = None
    shop.work()
    assert (shop.scheduler.places(), shop.task.state) == ({A: SchedulerPlace.IDLE}, TaskState.READY)
    assert shop.task.waiting == 0
    assert shop.scheduler.failures() == {}


def test_a_task_that_has_failed_for_task_timeout_is_the_stream_threads_matter() -> None:
    shop = Shop({"waiting": 10}, error=ValueError("user code"))
    while final_failure(shop.scheduler) is None:
        shop.work()
        shop.clock.advance(LONGEST_MS // 10)
    assert TIMEOUT_MS <= shop.clock.monotonic_ms() <= TIMEOUT_MS + LONGEST_MS
    failure = final_failure(shop.scheduler)
    assert failure is not None
    assert failure.error is shop.task.error


def test_a_record_that_was_passed_begins_the_count_of_failures_anew() -> None:
    shop = Shop({"waiting": 10})
    for _ in range(3):
        shop.task.error = ValueError("user code")
        shop.work()
        shop.clock.advance(TIMEOUT_MS - 1_000)
        assert final_failure(shop.scheduler) is None
        shop.task.error = None
        shop.task.waiting = 1
        shop.work()
        assert shop.scheduler.failures() == {}


def test_errors_of_several_tasks_are_kept_apart() -> None:
    shop = Shop({"waiting": 10}, {"waiting": 10})
    for task in shop.tasks:
        task.error = ValueError(f"of {task.id}")
    shop.work(2)
    assert {id: str(failure.error) for id, failure in shop.scheduler.failures().items()} == {
        TaskId(0, 0): "of 0_0",
        TaskId(0, 1): "of 0_1",
    }


@pytest.mark.parametrize("error", [StateError("a full disk"), OwnershipError("a bug"), SystemExit(), MemoryError])
def test_what_is_no_matter_of_a_record_isnt_tried_again(error: Any) -> None:
    shop = Shop({"waiting": 10}, error=error() if isinstance(error, type) else error)
    shop.work()
    failure = final_failure(shop.scheduler)
    if isinstance(shop.task.error, MemoryError):
        assert failure is None  # a large record perhaps
    else:
        assert failure is not None
        assert failure.error is shop.task.error


def test_processors_that_cant_be_initialised_arent_tried_again() -> None:
    shop = Shop()
    task: Any = Work(shop.clock)
    task.initialise = lambda: task._do("initialise")
    task.error = ValueError("user's init")
    shop.scheduler.add(task)
    shop.work()
    failure = final_failure(shop.scheduler)
    assert failure is not None
    assert str(failure.error) == "user's init"


# -- commits


def test_caches_are_flushed_by_a_processing_thread_and_the_task_then_waits_for_its_commit() -> None:
    shop = Shop({"waiting": 100_000}, cached=True)
    shop.work()
    assert not shop.scheduler.flush()
    shop.work()
    assert (shop.scheduler.places(), shop.task.state) == ({A: SchedulerPlace.LOCKED}, TaskState.LOCKED)
    assert shop.task.done[-1] == "flush"
    assert shop.scheduler.flush()
    assert shop.scheduler.take("a thread") is None
    shop.scheduler.unlock()
    assert (shop.task.state, shop.take().task) == (TaskState.READY, shop.task)


def test_a_task_at_work_is_flushed_after_its_record() -> None:
    shop = Shop({"waiting": 100_000}, cached=True)
    shop.work()
    lease = shop.take()
    assert not shop.scheduler.flush()
    assert lease.stop
    shop.scheduler.give_back(lease)
    assert shop.take().job is Job.FLUSH


def test_a_commit_does_not_wait_for_a_long_call_and_another_one_follows_the_call() -> None:
    shop = Shop({"waiting": 100_000}, {"waiting": 100_000}, cached=True, unflushed=True)
    call = shop.take()
    shop.clock.advance(SLICE_MS + LONG_CALL_MS)
    assert not shop.scheduler.flush()  # the other one's
    shop.work()
    assert shop.scheduler.flush()
    shop.scheduler.unlock()
    assert not call.task.commit_requested
    shop.scheduler.give_back(call)
    shop.work()
    assert (call.task.done[-1], call.task.state, call.task.commit_requested) == ("flush", TaskState.LOCKED, True)


def test_for_its_last_commit_a_task_with_a_cache_is_locked_although_nothing_waits_in_it() -> None:
    shop = Shop({"waiting": 100_000}, cached=True)
    lease = shop.take()
    shop.task.initialise()
    assert shop.scheduler.flush()
    assert not shop.scheduler.flush(final=True)
    assert lease.stop
    shop.scheduler.give_back(lease)
    shop.work()
    assert shop.scheduler.places() == {A: SchedulerPlace.LOCKED}
    assert shop.scheduler.flush(final=True)


def test_one_with_a_cache_that_nobody_works_on_is_locked_at_once_for_its_last_commit() -> None:
    shop = Shop({}, cached=True)
    shop.task.initialise()
    assert shop.scheduler.flush(final=True)
    assert (shop.scheduler.places(), shop.task.done) == ({A: SchedulerPlace.LOCKED}, ["initialise"])


def test_one_with_a_cache_isnt_locked_for_its_last_commit_before_what_was_confirmed_is_applied() -> None:
    shop = Shop({}, cached=True, applying=True)
    shop.task.initialise()
    assert [shop.scheduler.flush(final=True) for _ in range(2)] == [False, False]
    shop.work()
    assert shop.scheduler.flush(final=True)
    assert (shop.scheduler.places(), shop.task.done[-1]) == ({A: SchedulerPlace.LOCKED}, "apply")


def test_the_last_commit_of_what_was_done_since_waits_until_the_one_before_is_applied_but_not_for_a_long_call() -> None:
    shop = Shop({"waiting": 100_000}, applying=True)
    assert shop.scheduler.flush(final=True)
    shop.task.applying = False
    lease = shop.take()
    shop.task.applying = True
    shop.task.process(1, 0)
    assert shop.scheduler.flush()
    assert not shop.scheduler.flush(final=True)
    shop.clock.advance(SLICE_MS + LONG_CALL_MS)
    assert shop.scheduler.flush(final=True)
    shop.scheduler.give_back(lease)
    assert not shop.scheduler.flush(final=True)
    shop.work()
    assert (shop.task.done[-1], shop.scheduler.flush(final=True)) == ("apply", True)


def test_a_lock_is_a_lease_with_an_end() -> None:
    shop = Shop({"waiting": 100_000}, cached=True)
    shop.work()
    shop.scheduler.flush()
    shop.work()
    shop.clock.advance(LOCK_MS)
    assert shop.take().job is Job.TURN


def test_a_flush_that_isnt_wanted_any_more_isnt_made() -> None:
    shop = Shop({"waiting": 100_000}, cached=True)
    shop.work()
    lease = shop.take()
    shop.scheduler.flush()
    shop.scheduler.unlock()
    shop.scheduler.give_back(lease)
    assert shop.take().job is Job.TURN


def test_a_task_without_input_writes_what_waits_for_the_disk_when_that_is_due() -> None:
    shop = Shop({}, applying=True, waits_ms=500)
    shop.scheduler.apply(A)
    shop.work(3)
    assert (shop.task.done[-1], shop.slept[-1]) == ("apply", 500), "the thread sleeps until then"
    shop.clock.advance(500)
    shop.work()
    assert shop.task.done[-1] == "write"


def test_a_paused_task_writes_what_waits_for_the_disk_when_that_is_due() -> None:
    shop = Shop({"waiting": 5}, applying=True, waits_ms=500)
    shop.scheduler.apply(A)
    shop.work()
    shop.scheduler.pause(frozenset({0}))
    shop.work(3)
    assert (shop.task.done[-1], shop.slept[-1]) == ("apply", 500), "the thread sleeps until then"
    shop.clock.advance(500)
    shop.work()
    assert (shop.task.done[-1], shop.task.waiting) == ("write", 5)


def test_what_is_confirmed_is_applied_before_more_is_processed() -> None:
    shop = Shop({"waiting": 100_000})
    lease = shop.take()
    shop.task.applying = True
    shop.scheduler.apply(A)
    assert lease.stop
    shop.scheduler.give_back(lease)
    assert shop.take().job is Job.APPLY


# -- the way back


@pytest.mark.parametrize("close_mode", CloseMode)
def test_a_task_that_nobody_works_on_comes_back_after_its_fate(close_mode: CloseMode) -> None:
    shop = Shop({"waiting": 10})
    shop.scheduler.remove(A, close_mode)
    shop.work()
    (removed,) = shop.scheduler.take_removed()
    assert removed.task is shop.task
    assert (removed.task.state is TaskState.CLOSED) == (close_mode is not CloseMode.SUSPEND)
    assert (removed.stores is not None) == (close_mode is CloseMode.CLOSE)
    assert shop.scheduler.take_removed() == []


def test_a_task_that_is_to_be_kept_comes_back_at_once_when_nobody_works_on_it() -> None:
    shop = Shop({"waiting": 10})
    shop.scheduler.remove(A, CloseMode.SUSPEND)
    assert len(shop.scheduler.take_removed()) == 1


@pytest.mark.parametrize("close_mode", CloseMode)
def test_a_task_at_work_is_void_at_once_and_comes_back_when_its_record_ends(close_mode: CloseMode) -> None:
    shop = Shop({"waiting": 10})
    lease = shop.take()
    shop.scheduler.remove(A, close_mode)
    assert (lease.stop, shop.task.epoch) == (True, 1)
    shop.work(3)
    assert (shop.scheduler.take_removed(), shop.scheduler.places()) == ([], {})
    shop.scheduler.give_back(lease)
    shop.work()
    assert len(shop.scheduler.take_removed()) == 1


def test_what_is_confirmed_is_applied_before_a_task_comes_back() -> None:
    for close_mode in CloseMode:
        shop = Shop({"waiting": 10}, applying=True)
        shop.scheduler.remove(A, close_mode)
        shop.work()
        assert ("apply" in shop.task.done, len(shop.scheduler.take_removed())) == (True, 1)


def test_an_error_of_a_call_whose_task_was_taken_away_is_void() -> None:
    shop = Shop({"waiting": 10})
    lease = shop.take()
    shop.scheduler.remove(A, CloseMode.CLOSE)
    shop.scheduler.give_back(lease, ValueError("user code"))
    shop.work()
    (removed,) = shop.scheduler.take_removed()
    assert (removed.error, final_failure(shop.scheduler)) == (None, None)


def test_a_task_that_doesnt_close_cleanly_comes_back_with_its_error() -> None:
    shop = Shop({}, error=ValueError("user's close"))
    shop.scheduler.remove(A, CloseMode.CLOSE)
    shop.work()
    (removed,) = shop.scheduler.take_removed()
    assert removed.error is shop.task.error


def test_a_task_in_quarantine_can_be_taken_away() -> None:
    shop = Shop({"waiting": 10}, error=ValueError("user code"))
    shop.work()
    shop.scheduler.remove(A, CloseMode.SUSPEND)
    assert [removed.task.state for removed in shop.scheduler.take_removed()] == [TaskState.READY]


def test_the_end_doesnt_wait_for_ever_and_what_comes_later_is_closed_where_it_is() -> None:
    shop = Shop({"waiting": 10})
    shop.scheduler._wait = lambda _, timeout_ms: shop.clock.advance(timeout_ms)  # type: ignore[assignment]
    lease = shop.take()
    shop.scheduler.remove(A, CloseMode.CLOSE)
    assert not shop.scheduler.close(30_000)
    assert shop.clock.monotonic_ms() == 30_000
    shop.scheduler.give_back(lease)
    shop.work()
    assert (shop.task.state, shop.task.done[-1]) == (TaskState.CLOSED, "stores closed")
    assert shop.workers[0].over


# -- what has changed


def test_a_task_is_told_of_as_long_as_a_thread_has_it_and_once_more_when_it_is_given_back() -> None:
    shop = Shop(*({"waiting": 1} for _ in range(50)))
    shop.scheduler.take_changed()
    lease = shop.take()
    assert set(shop.scheduler.take_changed()) == {lease.task}
    assert set(shop.scheduler.take_changed()) == {lease.task}
    shop.scheduler.give_back(lease)
    assert set(shop.scheduler.take_changed()) == {lease.task}
    assert set(shop.scheduler.take_changed()) == set()


def test_tasks_that_come_and_go_are_told_of_too() -> None:
    shop = Shop({}, {})
    assert set(shop.scheduler.take_changed()) == set(shop.tasks)
    shop.scheduler.remove(shop.tasks[1].id, CloseMode.SUSPEND)
    assert set(shop.scheduler.take_changed()) == {shop.tasks[1]}


def test_what_threads_do_while_others_ask_is_never_missed() -> None:
    """The asking thread counts the work of each task that the scheduler names: in the end that is all of the work."""
    shop = Shop(*({"waiting": 40, "record_ms": 0} for _ in range(50)), threads=2)
    for worker in shop.workers:
        worker.run_once()
    threads = [threading.Thread(target=lambda worker=worker: [worker.run_once() for _ in range(200)])
               for worker in shop.workers]  # fmt: skip
    seen: dict[TaskId, int] = {}

    def look() -> None:
        for task in shop.scheduler.take_changed():
            seen[task.id] = task.counters.processed

    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        look()
    look()
    assert seen == {task.id: 40 for task in shop.tasks}
