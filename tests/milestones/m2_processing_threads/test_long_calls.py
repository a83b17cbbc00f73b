"""What waits, and what doesn't, while user code takes long: other records, commits, the group, the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from milestones.common.records import TaskId
from milestones.common.task.lifecycle import TaskState
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m2_processing_threads.scheduled_task import Job
from milestones.m2_processing_threads.scheduler import SLICE_MS
from milestones.m2_processing_threads.worker import ProcessingThread
from milestones.parts import PREPARE_MS, CloseMode
from tests.milestones.fakes import Counting, counting, put
from tests.milestones.m2_processing_threads.test_commit_requests import running as with_a_cache
from tests.milestones.m2_processing_threads.test_processing import running
from tests.milestones.m2_processing_threads.test_scheduler import Shop
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

A = TaskId(0, 0)
WAIT_S = 10


def turn(r: RunningProcessing) -> None:
    """A turn of the stream thread alone."""
    with r.turn():
        r.loop.run_once(r.world.clock.monotonic_ms())


def test_a_task_whose_punctuations_take_longer_than_a_slice_processes_a_record_in_each_of_its_turns() -> None:
    calls: list[int] = []

    class Punctuating(Counting):
        def init(self, context: Any) -> None:
            super().init(context)
            if context.task_id == A:
                context.schedule(150, "wall-clock-time", self.punctuate)

        def punctuate(self, now_ms: int) -> None:
            calls.append(now_ms)
            for _ in range(10):
                r.world.clock.advance(2 * SLICE_MS // 10)
                turn(r)

    r = RunningProcessing(ProcessingWorld(counting(processor=Punctuating)))
    r.run(0, 1)
    for _ in range(50):
        put(r.world, 0, "a")
        put(r.world, 1, *["b"] * 10)
        r.step(ms=SLICE_MS)
    assert len(calls) >= 10
    assert len(r.world.written(0)) >= len(calls)


def apply_again(r: RunningProcessing) -> None:
    r.loop._processing.apply(r.world.state.tasks[A])


def revoke(r: RunningProcessing) -> None:
    r.assign()


@pytest.mark.parametrize("request_", [apply_again, revoke])
def test_a_request_that_comes_as_a_batch_begins_ends_the_batch_and_not_only_the_turn(
    request_: Callable[[RunningProcessing], None],
) -> None:
    r = running(0, commit_interval_ms=10_000)
    put(r.world, 0, *["a"] * 1_000)
    r.step(5)
    task: Any = r.world.state.tasks[A]
    process, batches = task.process, list[int]()

    def process_after_the_request(limit: int, now_ms: int) -> int:
        task.process = process
        with r.turn():
            request_(r)
        done: int = process(limit, now_ms)
        batches.append(done)
        assert limit > 100
        return done

    task.process = process_after_the_request
    before = len(r.world.user_code.seen)
    r.world.user_code.at = lambda _: turn(r)
    put(r.world, 0, *["b"] * 1_000)
    turn(r)
    r.world.workers.step()
    assert len(batches) == 1
    assert len(r.world.user_code.seen) - before <= 2


def test_a_thread_in_a_call_of_a_task_that_was_taken_away_isnt_counted_on_when_the_next_task_is_chosen() -> None:
    """With one thread left the older task still has its turn in time after the one with more to do, with two it
    hadn't: they should have begun at once."""
    shop = Shop({"waiting": 9}, {}, {}, threads=2)
    call = shop.take()
    shop.scheduler.wake()
    shop.scheduler.remove(call.task.id, CloseMode.CLOSE)
    shop.clock.advance(SLICE_MS)
    for task, waiting in zip(shop.tasks[1:], (1, 5), strict=True):
        task.waiting = waiting
        shop.scheduler.wake([task.id])
        shop.clock.advance(SLICE_MS * 2 // 5)
    assert shop.take().task is shop.tasks[2]


@pytest.mark.parametrize("final", [False, True])
def test_a_commit_waits_for_a_flush_and_the_last_one_for_what_is_applied_however_long_they_take(final: bool) -> None:
    shop = Shop({"waiting": 100_000})
    shop.task.cached = shop.task.unflushed = True
    for job in [Job.FLUSH, Job.APPLY] if final else [Job.FLUSH]:
        shop.task.applying = job is Job.APPLY
        assert not shop.scheduler.flush(final=final)
        lease = shop.take()
        assert lease.job is job
        shop.clock.advance(20 * SLICE_MS)
        assert not shop.scheduler.flush(final=final)
        shop.task.unflushed = shop.task.applying = False
        shop.scheduler.give_back(lease)
        assert shop.scheduler.flush(final=final)
        shop.scheduler.unlock()


def test_a_flush_for_which_a_commit_lost_its_patience_keeps_no_other_waiting_and_is_followed_by_one() -> None:
    shop = Shop({"waiting": 100_000})
    shop.task.cached = shop.task.unflushed = True
    assert not shop.scheduler.flush()
    lease = shop.take()
    shop.scheduler.unlock()
    assert shop.scheduler.flush()
    shop.scheduler.unlock()
    assert not shop.scheduler.flush(final=True)
    shop.task.flush()
    shop.scheduler.give_back(lease)
    assert (shop.task.state, shop.task.commit_requested) == (TaskState.LOCKED, True)


def test_a_thread_that_is_to_leave_closes_the_task_of_its_call_although_the_stream_thread_has_ended_meanwhile() -> None:
    shop = Shop({"waiting": 1})
    called, returns = threading.Event(), threading.Event()

    def call(limit: int, now_ms: int) -> int:
        called.set()
        assert returns.wait(WAIT_S)
        return 0

    shop.task.process = call
    (worker,) = shop.workers
    thread = ProcessingThread(worker, nullcontext())
    thread.start()
    assert called.wait(WAIT_S)
    worker.leaving = True
    shop.scheduler.remove(A, CloseMode.CLOSE)
    assert not shop.scheduler.close(0)
    returns.set()
    thread.join(WAIT_S)
    assert (shop.task.done[-1], worker.ended) == ("stores closed", True)


def test_an_error_of_closing_stores_after_the_end_keeps_no_stores_of_another_task_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Shop({}, {})
    recycled = shop.tasks[0].recycle()
    recycled.close = lambda: shop.tasks[0].missing
    shop.tasks[0].end = lambda: None
    shop.tasks[0].recycle = lambda: recycled
    for task in shop.tasks:
        shop.scheduler.remove(task.id, CloseMode.CLOSE)
    shop.scheduler.close(0)
    shop.work(2)
    assert shop.tasks[1].done[-1] == "stores closed"
    assert "task 0_0" in caplog.text


def preparing() -> tuple[ThreadedProcessing, Callable[[bool], bool], RunningProcessing]:
    """A task with a cache in a flush that doesn't come back."""
    r = with_a_cache()
    put(r.world, 0, "a")
    r.step(3)
    r.world.workers.stuck = True
    processing = r.loop._processing
    assert isinstance(processing, ThreadedProcessing)

    def prepared(final: bool) -> bool:
        return processing.prepare_commit(r.world.clock.monotonic_ms(), final=final)

    assert not prepared(False)
    return processing, prepared, r


def test_the_last_commit_of_tasks_has_a_patience_of_its_own() -> None:
    _, prepared, r = preparing()
    r.world.clock.advance(PREPARE_MS)
    assert not prepared(True)
    assert prepared(False)
    r.world.clock.advance(PREPARE_MS)
    assert prepared(True)


def test_a_commit_that_wasnt_made_as_its_tasks_were_lost_leaves_the_next_one_all_its_patience() -> None:
    processing, prepared, r = preparing()
    task = r.world.state.tasks[A]
    processing.remove(A, CloseMode.SUSPEND)
    r.world.clock.advance(PREPARE_MS)
    processing.add(task)
    assert not prepared(False)
    r.world.clock.advance(PREPARE_MS)
    assert prepared(False)


def test_a_task_is_given_back_although_its_threads_metrics_raise() -> None:
    shop = Shop({"waiting": 1})

    def end(_: object) -> None:
        raise OverflowError("a metric")

    measures: Any = shop.workers[0]._measures
    measures.end = end
    shop.work()
    assert [str(failure.error) for failure in shop.scheduler.failures().values()] == ["a metric"]


def test_a_task_that_comes_back_after_the_end_of_the_threads_is_closed_by_another_one() -> None:
    closed: list[str] = []

    class Closing(Counting):
        def close(self) -> None:
            closed.append("processor")

    r = RunningProcessing(ProcessingWorld(counting(processor=Closing)))
    r.run(0)
    processing, task = r.loop._processing, r.tasks.processing[A]
    assert isinstance(processing, ThreadedProcessing)
    processing.remove(A, CloseMode.SUSPEND)
    (removed,) = processing.take_removed()
    removed.task.roll_back()
    processing.close(0)
    with r.turn():
        processing.retire(task, CloseMode.CLOSE)
        assert (closed, processing.take_removed()) == ([], [])
    r.world.workers.step()
    assert (closed, task.state, A in r.world.state.held) == (["processor"], TaskState.CLOSED, False)


def test_a_task_whose_late_close_gets_no_thread_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    r = RunningProcessing()
    r.run(0)
    processing, task = r.loop._processing, r.tasks.processing[A]
    assert isinstance(processing, ThreadedProcessing)
    processing.remove(A, CloseMode.SUSPEND)
    processing.close(0)

    def refuse(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    processing._threads._launch = refuse
    processing.retire(task, CloseMode.CLOSE)
    assert "task 0_0 isn't closed" in caplog.text
