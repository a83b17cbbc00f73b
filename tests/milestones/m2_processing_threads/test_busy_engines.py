"""An engine that can't take a write now: its tasks wait, and nobody else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from milestones.common.records import TaskId, TopicPartition
from milestones.m2_processing_threads.scheduled_task import SchedulerPlace
from milestones.parts import CloseMode
from tests.milestones.fakes import BUSY_MS, CHANGELOG, ILLEGAL_GENERATION, A, B, put
from tests.milestones.m2_processing_threads.test_processing import running
from tests.milestones.m2_processing_threads.test_scheduler import Shop
from tests.milestones.stepped_workers import RunningProcessing
from tests.milestones.work import PAUSE_MS

FOR_EVER = 1_000_000
INTERVAL_MS = 50

both = pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])


# -- a thread and its tasks


def test_a_task_whose_engine_is_busy_is_tried_again_when_the_engine_asks_for_it_and_no_sooner() -> None:
    shop = Shop({})
    vars(shop.task).update(busy=2, applying=True)
    shop.work(3)
    assert shop.task.done == ["initialise", "busy"]
    assert shop.slept[-1] == PAUSE_MS
    for _ in range(2):
        shop.clock.advance(PAUSE_MS - 1)
        shop.work(3)
        shop.clock.advance(1)
        shop.work(3)
    assert shop.task.done == ["initialise", "busy", "busy", "apply"]


def test_one_thread_works_on_all_other_tasks_while_an_engine_is_busy() -> None:
    shop = Shop({}, {"waiting": 100}, {"waiting": 100})
    vars(shop.task).update(busy=FOR_EVER, applying=True)
    shop.work(20)
    assert [task.waiting for task in shop.tasks] == [0, 0, 0]
    assert shop.task.applying


def test_a_busy_engine_is_no_failure_of_its_task() -> None:
    shop = Shop({"waiting": 10})
    vars(shop.task).update(busy=FOR_EVER, applying=True)
    for _ in range(10_000):
        shop.clock.advance(PAUSE_MS)
        shop.work()
    statistics = shop.scheduler.statistics()
    assert (shop.scheduler.failures(), statistics.quarantined, statistics.busy) == ({}, 0, 1)
    assert shop.scheduler.places() == {A: SchedulerPlace.IDLE}
    vars(shop.task).update(busy=0)
    shop.clock.advance(PAUSE_MS)
    shop.work(3)
    assert (shop.task.waiting, shop.scheduler.statistics().busy) == (0, 0)


def test_a_task_in_quarantine_whose_engine_is_busy_stays_there() -> None:
    shop = Shop({"waiting": 10}, error=ValueError("user code"))
    shop.work()
    vars(shop.task).update(busy=2, applying=True, error=None)
    shop.scheduler.apply(A)
    shop.work(2)
    assert shop.scheduler.places() == {A: SchedulerPlace.QUARANTINED}
    assert (shop.scheduler.statistics().quarantined, shop.scheduler.statistics().busy) == (1, 1)


@pytest.mark.parametrize("close_mode", list(CloseMode))
def test_a_task_that_leaves_waits_for_its_engine_and_other_tasks_go_on_and_leave(close_mode: CloseMode) -> None:
    shop = Shop({}, {"waiting": 100, "record_ms": 0}, {})
    vars(shop.task).update(busy=3, applying=True)
    shop.scheduler.remove(A, close_mode)
    shop.scheduler.remove(shop.tasks[2].id, close_mode)
    shop.work(10)
    (other,) = shop.scheduler.take_removed()
    assert (other.task, shop.tasks[1].waiting) == (shop.tasks[2], 0)
    assert shop.slept[-1] == PAUSE_MS
    for _ in range(3):
        assert shop.scheduler.take_removed() == []
        shop.clock.advance(PAUSE_MS)
        shop.work(2)
    (removed,) = shop.scheduler.take_removed()
    assert (removed.task, removed.error) == (shop.task, None)
    assert "apply" in shop.task.done


def test_a_task_that_is_taken_away_while_it_waits_for_its_engine_still_waits_for_it() -> None:
    shop = Shop({})
    vars(shop.task).update(busy=2, applying=True)
    shop.work()
    shop.scheduler.remove(A, CloseMode.CLOSE)
    shop.work(2)
    assert shop.task.done == ["initialise", "busy"]
    shop.clock.advance(PAUSE_MS)
    shop.work(2)
    shop.clock.advance(PAUSE_MS)
    shop.work(2)
    assert shop.task.done[-2:] == ["apply", "close"]


@pytest.mark.parametrize("close_mode", list(CloseMode))
def test_a_task_that_leaves_waits_for_no_busy_engine_when_all_that_is_committed_waits_anyway(
    close_mode: CloseMode,
) -> None:
    shop = Shop({})
    vars(shop.task).update(applying=True, waits_ms=100)
    shop.work()
    shop.clock.advance(200)
    vars(shop.task).update(busy=FOR_EVER)
    shop.scheduler.remove(A, close_mode)
    shop.work(3)
    (removed,) = shop.scheduler.take_removed()
    assert (removed.task, removed.error) == (shop.task, None)


def test_the_end_waits_for_no_busy_engine_once_its_time_is_over() -> None:
    shop = Shop({})
    vars(shop.task).update(busy=FOR_EVER, applying=True)
    shop.scheduler._wait = lambda _, timeout_ms: shop.clock.advance(timeout_ms)  # type: ignore[assignment]
    shop.scheduler.remove(A, CloseMode.CLOSE)
    shop.work(2)
    assert not shop.scheduler.close(1_000)
    while shop.workers[0].run_once():
        pass
    assert shop.task.done[-1] == "stores closed"


def test_no_commit_but_the_last_waits_for_a_task_whose_engine_is_busy() -> None:
    shop = Shop({"waiting": 1}, {"waiting": 1}, cached=True)
    shop.work(2)
    vars(shop.task).update(busy=FOR_EVER, applying=True)
    shop.scheduler.apply(A)
    shop.work()
    assert not shop.scheduler.flush()
    shop.work()
    assert shop.scheduler.flush()
    assert shop.scheduler.places() == {A: SchedulerPlace.IDLE, B: SchedulerPlace.LOCKED}
    assert not shop.scheduler.flush(final=True)


# -- a stream thread


def go_on(r: RunningProcessing, times: int = 10, *, ms: int = INTERVAL_MS) -> None:
    """Turns of the stream thread; beside each one its processing threads take several tasks."""
    for _ in range(times):
        r.step(ms=ms)
        r.world.workers.step(len(r.tasks.processing) + 1)


def offset_of(r: RunningProcessing, partition: int) -> int:
    at = r.world.member.committed.get(TopicPartition("in", partition))
    return 0 if at is None else at.offset


def assert_exact(r: RunningProcessing, partition: int = 0) -> None:
    """The store has what the changelog has, whose last count is that of all records."""
    records = len(r.world.logs[TopicPartition("in", partition)].entries)
    assert r.world.written(partition)[-1] == ("k", records)
    store = r.world.state.content(TaskId(0, partition))
    assert store == {b"k": r.world.logs[TopicPartition(CHANGELOG, partition)].entries[-1].value()}


def assert_in_order(r: RunningProcessing) -> None:
    """No task's stores took a commit after a later one."""
    taken: dict[TaskId, int] = {}
    for id, offsets in r.world.state.writes:
        at = offsets.get("counts", 0)
        assert at >= taken.get(id, 0), r.world.state.writes
        taken[id] = max(at, taken.get(id, 0))


@both
def test_fifty_tasks_and_a_busy_engine_the_commits_of_the_others_go_on_in_every_interval(guarantee: str) -> None:
    everything = range(50)
    r = running(*everything, processing_guarantee=guarantee, commit_interval_ms=INTERVAL_MS)
    r.world.state.busy[A] = FOR_EVER
    for number in range(1, 11):
        for partition in everything:
            put(r.world, partition, "x")
        go_on(r, 10, ms=INTERVAL_MS // 5)
        assert {offset_of(r, partition) for partition in everything[1:]} == {number}
    assert (offset_of(r, 0), r.world.state.content(A)) == (1, {})
    r.world.state.busy[A] = 0
    r.step(30, ms=INTERVAL_MS // 2)
    assert {offset_of(r, partition) for partition in everything} == {10}
    for partition in everything:
        assert_exact(r, partition)
    assert_in_order(r)


@both
def test_a_busy_engine_takes_every_commit_in_order_whatever_it_refuses(guarantee: str) -> None:
    r = running(0, 1, processing_guarantee=guarantee, commit_interval_ms=INTERVAL_MS)
    for number in range(30):
        r.world.state.busy[A] += number % 4
        put(r.world, 0, "x")
        put(r.world, 1, "x")
        r.step(4, ms=INTERVAL_MS // 3)
    r.step(60, ms=INTERVAL_MS)
    assert (offset_of(r, 0), offset_of(r, 1)) == (30, 30)
    assert_exact(r, 0)
    assert_exact(r, 1)
    assert_in_order(r)


@both
def test_a_revoked_task_gives_its_stores_back_once_its_engine_has_taken_what_is_committed(guarantee: str) -> None:
    r = running(0, 1, processing_guarantee=guarantee, commit_interval_ms=INTERVAL_MS)
    r.world.state.busy[A] = FOR_EVER
    r.feed("a", "b", steps=10, ms=INTERVAL_MS)
    assert (offset_of(r, 0), r.world.state.content(A)) == (2, {})
    r.rebalance(1, steps=50, ms=INTERVAL_MS)
    assert (A in r.world.state.held, r.places[A]) == (True, "leaving")
    put(r.world, 1, "x")
    go_on(r)
    assert offset_of(r, 1) == 1
    r.world.state.busy[A] = 0
    r.step(10, ms=INTERVAL_MS)
    assert A not in r.world.state.held
    assert_exact(r)
    r.rebalance(0, 1, steps=20, ms=INTERVAL_MS)
    r.feed("c", steps=10, ms=INTERVAL_MS)
    assert_exact(r)
    assert_in_order(r)


def test_a_roll_back_waits_for_the_engine_that_is_busy_with_an_earlier_commit_and_loses_nothing() -> None:
    r = running(0, 1, commit_interval_ms=INTERVAL_MS)
    r.feed("a", steps=5, ms=INTERVAL_MS)
    r.world.state.busy[A] = 10
    r.feed("b", steps=5, ms=INTERVAL_MS // 5)
    put(r.world, 1, "x")
    r.world.producer.fail("commit", ILLEGAL_GENERATION)
    go_on(r, 5)
    assert r.places == {A: "returning", B: "processing"}
    assert offset_of(r, 1) == 1
    go_on(r, 50)
    r.feed("c", steps=30, ms=INTERVAL_MS)
    assert (offset_of(r, 0), offset_of(r, 1)) == (3, 1)
    assert_exact(r, 0)
    assert_exact(r, 1)
    assert_in_order(r)


@both
def test_what_an_engine_hasnt_taken_by_the_end_of_the_client_is_replayed_at_the_next_start(guarantee: str) -> None:
    r = running(0, processing_guarantee=guarantee, commit_interval_ms=INTERVAL_MS, close_timeout_ms=1_000)
    r.world.state.busy[A] = FOR_EVER
    r.feed("a", "b", steps=10, ms=INTERVAL_MS)
    with r.turn():
        r.loop.shut_down(leave_group=False)
    began_ms = r.world.clock.monotonic_ms()
    with r.turn():
        r.loop.close()
    assert r.world.clock.monotonic_ms() - began_ms <= 1_000 + 2 * BUSY_MS
    r.world.workers.step(5)
    assert (r.world.state.held, r.world.state.content(A)) == (set(), {})
    r.world.state.busy[A] = 0
    again: Any = RunningProcessing(r.world).run(0)
    again.feed("c", steps=20, ms=INTERVAL_MS)
    assert_exact(again)


def test_a_write_that_waits_is_told_once_and_once_more_when_it_is_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    r = running(0, commit_interval_ms=INTERVAL_MS)
    r.world.state.busy[A] = 2_000 // BUSY_MS
    r.feed("a", steps=400, ms=10)
    told = [record.message for record in caplog.records if "a write" in record.message]
    assert told == [
        "task 0_0, the stores of 0_0: a write waits, as the disk is full: make room",
        "task 0_0, a write that waited for 2 s is made",
    ]
    assert_exact(r)
