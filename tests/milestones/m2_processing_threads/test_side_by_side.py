"""What comes together where processing threads work beside the stream thread: pauses, damage, commits, other tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import StateCorruptError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.records import Record, StoreId, TopicPartition
from milestones.common.task.lifecycle import Lifecycle, TaskState
from milestones.common.task.task import Task
from tests.milestones.fakes import CHANGELOG, ILLEGAL_GENERATION, A, B, Counting, put
from tests.milestones.m2_processing_threads.test_commit_requests import running as with_a_cache
from tests.milestones.m2_processing_threads.test_processing import running
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing


def turn(r: RunningProcessing, *, ms: int = 1) -> None:
    """A turn of the stream thread alone."""
    r.world.clock.advance(ms)
    with r.turn():
        r.loop.run_once(r.world.clock.monotonic_ms())


def test_a_paused_task_that_begins_at_the_end_has_no_commit_made_each_turn_and_begins_when_it_goes_on() -> None:
    r = RunningProcessing(ProcessingWorld(auto_offset_reset="latest", commit_interval_ms=10_000))
    put(r.world, 0, "before")
    r.world.context.thread_registry.pause(frozenset({0}))
    r.rebalance(0)
    prepare = r.loop._processing.prepare_commit = Mock(wraps=r.loop._processing.prepare_commit)  # type: ignore[method-assign]
    r.step(100, ms=10)
    assert prepare.call_count <= 1
    r.world.context.thread_registry.resume(frozenset({0}))
    r.step(10, ms=10)
    assert r.world.member.committed[TopicPartition("in", 0)].offset == 1
    r.feed("after", steps=10, ms=10)
    r.loop._last_commit.commit()
    assert r.world.written() == [("k", 1)]


def test_a_damaged_task_that_is_committed_before_it_is_known_is_opened_anew_however_long_its_close_takes() -> None:
    r = running(0, commit_interval_ms=10)
    world = r.world

    def damage(record: Record) -> None:
        if record.value == "damage":
            world.user_code.at = lambda _: None
            raise StateCorruptError("bad block", [StoreId(A, "counts")])

    def work_and_collect(tasks: Iterable[Task]) -> bool:
        r.loop._collection.collect = collect  # type: ignore[method-assign]
        world.workers.step()
        return collect(tasks)

    collect = r.loop._collection.collect
    r.loop._collection.collect = work_and_collect  # type: ignore[method-assign]
    world.user_code.at = damage
    put(world, 0, "a", "damage")
    turn(r, ms=50)
    assert r.tasks.processing[A].applying, "committed, and damaged"
    turn(r)
    world.workers.step()
    for _ in range(4):
        turn(r)
    r.step(30, ms=20)
    assert r.tasks.processing.keys() == {A}
    assert world.written() == [("k", 1), ("k", 2)]


def test_at_least_once_offsets_of_a_changelog_outlive_the_producer_that_told_outputs_apart() -> None:
    """A commit that takes one task only ends that producer; what it has flushed of the other task counts."""
    r = running(0, 1, processing_guarantee="at_least_once", commit_interval_ms=60_000, num_processing_threads=2)
    world = r.world

    def commit_and_work_on_the_other(record: Record) -> None:
        if record.value == "b":
            world.user_code.at = lambda _: None
            with r.turn():
                r.loop._last_commit.commit()
            put(world, 1, "c")
            turn(r)
            world.workers.step()

    world.user_code.at = commit_and_work_on_the_other
    put(world, 0, "a", "b")
    turn(r)
    world.workers.all[0].step()
    assert (r.tasks.processing[A].applying, r.tasks.processing[B].commit_needed()) == (True, True)
    world.producer.isolation = BatchIsolation()
    with r.turn():
        r.loop._last_commit.commit()
    assert not world.producer.isolation
    world.workers.step()
    with r.turn():
        r.loop._last_commit.commit()
    world.workers.step()
    assert world.state.content(A) == {b"k": world.logs[TopicPartition(CHANGELOG, 0)].entries[-1].value()}
    assert world.state.offset(A) == 2


def test_an_error_of_a_tasks_close_at_the_end_of_the_thread_keeps_no_stores_of_another_task_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r = running(0, 1, close_timeout_ms=1_000)
    workers = r.world.workers
    monkeypatch.setattr(Counting, "close_error", ValueError("user's close"))
    r.loop.fail(shut_application_down=None)
    workers.all[0].step()
    workers.stuck = True  # the other task is in a long call
    with pytest.raises(ValueError, match="user's close"):
        r.loop.close()
    workers.stuck = False
    workers.step()
    r.world.openers.step()
    assert r.world.state.held == set()
    assert all(one.worker.over for one in workers.all)


def test_a_commit_that_is_made_just_as_a_task_becomes_ready_leaves_it_out_or_takes_it_whole() -> None:
    world = ProcessingWorld()
    task = world.task()
    task.start(dict.fromkeys(task.partitions, 0), {}, initialise=False)
    looks: list[bool] = []

    class Watched(Lifecycle):
        """The stream thread looks at the task whenever the processing thread has moved it, or is about to."""

        def move(self, target: TaskState) -> None:
            self.look()
            super().move(target)
            self.look()

        def look(self) -> None:
            looks.append(task.committable)
            if task.committable:
                task.thaw(task.freeze())

    lifecycle = Watched(task.id)
    lifecycle.state = task.state
    task.lifecycle = lifecycle
    task.initialise()
    assert (len(looks) >= 2, task.committable) == (True, True)


def committing(call: str, guarantee: str) -> RunningProcessing:
    """A task with a cache, whose commit of one record waits for this call's answer; a second record has come since."""
    r = with_a_cache(processing_guarantee=guarantee, commit_interval_ms=100)
    r.world.member.withholds = call == "OffsetCommit"
    r.world.producer.withheld = {call}
    put(r.world, 0, "a")
    r.step(10, ms=5)
    r.step(30, ms=10)
    assert r.loop._commits.under_way
    put(r.world, 0, "b")
    r.step(5)
    return r


def answer(r: RunningProcessing) -> None:
    r.world.member.withholds = False
    r.world.producer.withheld.clear()
    r.step(30, ms=20)


@pytest.mark.parametrize(("call", "guarantee"), [
    ("flush", "exactly_once_v2"), ("send_offsets", "exactly_once_v2"), ("commit", "exactly_once_v2"),
    ("flush", "at_least_once"), ("OffsetCommit", "at_least_once"),
])  # fmt: skip
def test_a_task_with_a_cache_is_processed_beside_its_commit_as_others_are(call: str, guarantee: str) -> None:
    r = committing(call, guarantee)
    assert (r.world.user_code.seen, r.loop._commits.under_way) == (["a", "b"], True)
    answer(r)
    assert r.world.member.committed[TopicPartition("in", 0)].offset == 2
    assert (r.world.written(), r.world.state.offset(A)) == ([("k", 1), ("k", 2)], 2)


def test_what_a_task_with_a_cache_did_beside_a_commit_that_failed_is_in_the_next_one() -> None:
    r = committing("OffsetCommit", "at_least_once")
    member, commit = r.world.member, r.world.member.commit_offsets

    def refused(offsets: Any, timeout_ms: int) -> None:
        member.commit_offsets = commit  # type: ignore[method-assign]
        raise CommitRetriableError("a test")

    member.commit_offsets = refused  # type: ignore[method-assign]
    answer(r)
    assert r.world.member.committed[TopicPartition("in", 0)].offset == 2
    assert (r.world.written(), r.world.state.content(A)[b"k"][-1]) == ([("k", 1), ("k", 2)], 2)


def test_what_a_task_with_a_cache_did_beside_a_transaction_that_was_aborted_comes_again() -> None:
    r = committing("commit", "exactly_once_v2")
    r.world.producer.fail("commit", ILLEGAL_GENERATION)
    answer(r)
    assert r.world.user_code.seen == ["a", "b", "a", "b"]
    assert (r.world.written()[-1], r.world.state.content(A)[b"k"][-1]) == (("k", 2), 2)
