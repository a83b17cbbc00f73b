"""Processing threads, as the loop of a stream thread sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from milestones.cli.observing import read_metrics
from milestones.common.errors import ProcessingError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import JoinNeeded, StaleGenerationError
from milestones.common.metrics import PrometheusCollector
from milestones.common.records import Record, TaskId, TopicPartition
from milestones.instance.capacity import processing_threads
from milestones.instance.states import ThreadState
from milestones.m2_processing_threads.commit_preparation import LONG_CALL_MS
from milestones.m2_processing_threads.processing import LONGEST_LOOK_MS
from milestones.m2_processing_threads.scheduler import SLICE_MS
from milestones.stream_thread.task_registry import Phase
from tests.milestones.fakes import CHANGELOG, ILLEGAL_GENERATION, A, B, Counting, counting, put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing, running


def in_the_midst(r: RunningProcessing, act: Callable[[], object]) -> None:
    """Have the stream thread do something while user code is called, at the next record."""

    def once(_: Record) -> None:
        r.world.user_code.at = lambda _: None
        with r.turn():
            act()

    r.world.user_code.at = once


def test_no_thread_is_started_before_there_is_a_task() -> None:
    r = RunningProcessing()
    r.rebalance()
    assert r.world.workers.all == []
    r.run(0)
    assert len(r.world.workers.all) == 1


def names_at_work(r: RunningProcessing) -> list[str]:
    """Threads that haven't left."""
    return [one.worker.name.partition("ProcessingThread-")[2] for one in r.world.workers.all if not one.worker.ended]


def test_an_instances_processing_threads_stay_as_many_as_its_config_says_while_stream_threads_come_and_go() -> None:
    r = running(0, num_processing_threads=8)
    assert len(names_at_work(r)) == 8
    r.world.context.thread_registry.add()
    r.step(3, ms=1_000)
    assert names_at_work(r) == ["1-1", "1-2", "1-3", "1-4"]
    assert processing_threads(r.world.config, r.world.context.thread_registry, 2) == 4
    r.world.context.thread_registry.remove(2)
    r.step(3, ms=1_000)
    assert names_at_work(r) == [f"1-{number}" for number in range(1, 9)]


def test_a_thread_that_is_not_wanted_any_more_leaves_once_its_call_returns_and_what_it_did_counts() -> None:
    r = running(0, num_processing_threads=2)
    put(r.world, 0, "a", "b")
    caller: list[str] = []

    def while_it_is_called() -> None:
        caller.extend(one.worker.name for one in r.world.workers.all if one.inside)
        r.world.context.thread_registry.add()
        r.step(2, ms=1_000)
        assert set(caller) <= {one.worker.name for one in r.world.workers.all if not one.worker.ended}

    r.world.workers.all.reverse()  # the second thread gets the task
    in_the_midst(r, while_it_is_called)
    r.step(10, ms=100)
    r.loop._last_commit.commit()
    assert (len(caller), len(names_at_work(r))) == (1, 1)
    assert caller[0].endswith("-2")
    assert r.world.written() == [("k", 1), ("k", 2)]


def test_a_thread_has_no_name_that_one_still_has_whose_call_does_not_return() -> None:
    r = running(0, num_processing_threads=2)
    r.world.workers.stuck = True
    r.world.context.thread_registry.add()
    r.step(2, ms=1_000)
    r.world.context.thread_registry.remove(2)
    r.step(2, ms=1_000)
    assert sorted(names_at_work(r)) == ["1-1", "1-2", "1-3"]


def test_one_task_of_fifty_has_three_quarters_of_the_room_of_its_stream_thread_while_no_other_needs_it() -> None:
    r = running(*range(50), output_buffer_max_bytes=1_000_000)
    scheduler, task = r.loop._processing._scheduler, r.loop._processing._tasks[TaskId(0, 0)]
    assert scheduler.most_output_bytes(task) == 750_000
    others = [r.world.budget.join() for _ in range(3)]
    assert scheduler.most_output_bytes(task) == 750_000 // 4
    for other in others:
        other.leave()
    assert scheduler.most_output_bytes(task) == 750_000


def test_a_commit_in_the_midst_of_a_call_is_of_the_record_before_it() -> None:
    r = running(0)
    put(r.world, 0, "a", "b", "c")
    seen: list[Any] = []

    def commit(record: Record) -> None:
        if record.value == "c":
            with r.turn():
                r.loop._last_commit.commit()
            seen.append((r.world.member.committed[TopicPartition("in", 0)].offset, r.world.written()))

    r.world.user_code.at = commit
    r.step(3)
    assert seen == [(2, [("k", 1), ("k", 2)])]


def test_a_call_that_was_overtaken_by_a_roll_back_leaves_nothing_and_its_record_is_processed_again() -> None:
    r = running(0)
    put(r.world, 0, "a")
    in_the_midst(r, lambda: r.loop._recoveries.recover(ILLEGAL_GENERATION, 0))
    r.step(20, ms=20)
    r.loop._last_commit.commit()
    assert r.world.user_code.seen == ["a", "a"]
    assert r.world.written() == [("k", 1)]


def test_a_roll_back_has_the_old_processor_closed_and_the_new_one_initialised_by_processing_threads_only() -> None:
    calls: list[tuple[str, bool]] = []

    class Seen(Counting):
        def init(self, context: Any) -> None:
            super().init(context)
            calls.append(("init", r.inside))

        def close(self) -> None:
            calls.append(("close", r.inside))

    r = RunningProcessing(ProcessingWorld(topology=counting(processor=Seen)))
    r.run(0)
    r.feed("a", steps=10, ms=20)
    with r.turn():
        r.loop._recoveries.recover(ILLEGAL_GENERATION, 0)
    r.step(20, ms=20)
    r.loop._last_commit.commit()
    assert calls == [("init", False), ("close", False), ("init", False)]
    assert r.world.written() == [("k", 1)]


def test_at_least_once_a_commit_that_was_made_without_an_answer_loses_no_write_when_its_tasks_are_rolled_back() -> None:
    r = running(0, processing_guarantee="at_least_once")
    r.feed("a", steps=10, ms=5)
    member, commit = r.world.member, r.world.member.commit_offsets

    def without_an_answer(offsets: Any, timeout_ms: int) -> None:
        commit(offsets, timeout_ms)
        raise StaleGenerationError("the answer was lost, then the generation was over")

    member.commit_offsets = without_an_answer  # type: ignore[method-assign]
    r.hear(JoinNeeded("a test"))
    member.commit_offsets = commit  # type: ignore[method-assign]
    r.step(30, ms=20)
    r.feed("b", steps=30, ms=20)
    assert r.world.written() == [("k", 1), ("k", 2)]


def test_a_wall_clock_that_is_put_back_holds_no_task_with_several_inputs_up() -> None:
    r = RunningProcessing(ProcessingWorld(topology=counting(("in", "other")))).run(0)
    r.feed("a", steps=3, ms=1)
    r.world.clock.set_wall_ms(0)
    r.feed("b", steps=20, ms=20)
    r.loop._last_commit.commit()
    assert r.world.written() == [("k", 1), ("k", 2)]


def test_wall_clock_punctuations_go_on_when_the_clock_is_put_back() -> None:
    calls: list[int] = []

    class Punctuating(Counting):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(1_000, "wall-clock-time", calls.append)

    r = RunningProcessing(ProcessingWorld(topology=counting(processor=Punctuating))).run(0)
    r.step(20, ms=100)
    before = len(calls)
    r.world.clock.set_wall_ms(5_000)
    r.step(30, ms=100)
    assert (before > 0, len(calls) >= before + 2) == (True, True)


def test_a_record_in_work_of_a_task_that_is_given_away_is_committed_unless_its_call_is_long() -> None:
    r = running(0, 1)
    put(r.world, 0, "a")
    in_the_midst(r, lambda: r.assign(1))
    r.step(5)
    assert r.world.state.held == {B}
    assert r.world.written() == [("k", 1)]


def test_a_long_call_whose_task_was_revoked_leaves_nothing_and_its_directory_is_locked_until_it_returns() -> None:
    r = running(0, 1)
    held: list[set[TaskId]] = []

    def revoke() -> None:
        r.world.clock.advance(SLICE_MS + LONG_CALL_MS)
        r.assign(1)
        held.append(set(r.world.state.held))

    put(r.world, 0, "a")
    in_the_midst(r, revoke)
    r.step(5)
    assert held == [{A, B}]
    assert r.world.state.held == {B}
    assert r.world.member.rejoins == ["tasks were released to their new owners"]
    assert r.world.written() == []


@pytest.mark.parametrize("phase", [Phase.POSITIONING, Phase.RESTORING])
def test_a_task_that_was_never_initialised_is_closed_while_all_threads_are_in_long_calls_of_other_tasks(
    phase: Phase,
) -> None:
    r = running(1)
    r.world.logs[TopicPartition(CHANGELOG, 0)].add("1", key="k")
    r.world.restorer.next.extend([Fetched()] * 50)
    r.world.member.holds = phase is Phase.POSITIONING
    r.rebalance(0, 1)
    r.step(3)
    assert r.tasks.places()[A] is phase
    r.world.workers.stuck = True
    r.assign(1)
    r.step(3)
    assert (r.tasks.places(), r.world.state.held) == ({B: Phase.PROCESSING}, {B})


def test_the_end_of_a_thread_closes_all_other_tasks_while_a_write_of_its_updater_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = running(1, 2)
    r.world.logs[TopicPartition(CHANGELOG, 0)].add("1", key="k")
    r.world.restorer.next.extend([Fetched()] * 50)
    r.rebalance(0, 1, 2)
    r.step(3)
    r.world.updaters.newest.hangs = True
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert "ends without tasks 0_0:" in caplog.text
    assert (r.tasks.places(), r.world.state.held) == ({A: Phase.LEAVING}, {A})


def test_what_kafka_has_confirmed_is_applied_although_the_task_is_given_away_in_the_midst_of_a_long_call() -> None:
    r = running(0)
    put(r.world, 0, "a", "b")

    def revoke(record: Record) -> None:
        if record.value == "b":
            r.world.clock.advance(SLICE_MS + LONG_CALL_MS)
            with r.turn():
                r.rebalance()

    r.world.user_code.at = revoke
    r.step(5)
    assert r.world.state.held == set()
    assert r.world.state.content(A) != {}
    assert r.world.state.offset(A) == 1


def test_a_task_isnt_given_away_before_what_was_confirmed_last_is_applied_so_that_its_last_commit_takes_all() -> None:
    r = running(0, processing_guarantee="at_least_once")
    put(r.world, 0, "a", "b", "c")

    def commit(record: Record) -> None:
        if record.value == "b":
            with r.turn():
                r.loop._last_commit.commit()
            r.world.workers.stuck = True

    r.world.user_code.at = commit
    while not r.world.workers.stuck:
        r.step()
    r.assign()
    assert r.world.state.held == {A}
    r.world.workers.stuck = False
    r.step(5)
    assert r.world.state.held == set()
    assert r.world.member.committed[TopicPartition("in", 0)].offset == len(r.world.written())


def test_an_error_that_lasts_ends_the_thread_and_names_the_others_that_fail() -> None:
    r = running(0, 1, task_timeout_ms=1_000)
    r.world.user_code.refused = {"a", "b"}
    put(r.world, 0, "a")
    put(r.world, 1, "b")
    with pytest.raises(ProcessingError, match="user code refuses"):
        r.step(100, ms=50)
    r.loop.fail(shut_application_down=None)
    r.loop.close()
    assert r.world.state.held == set()


def test_a_task_that_is_in_quarantine_commits_what_came_before_and_the_others_go_on() -> None:
    r = running(0, 1)
    r.world.user_code.refused = {"poison"}
    put(r.world, 0, "a", "poison", "b")
    put(r.world, 1, "a", "b")
    r.step(30, ms=50)
    assert [r.world.member.committed[TopicPartition("in", p)].offset for p in (0, 1)] == [1, 2]
    assert r.tasks.place_labels() == {TaskId(0, 0): "quarantined", TaskId(0, 1): "processing"}
    r.world.user_code.refused = set()
    r.step(100, ms=50)
    assert [r.world.member.committed[TopicPartition("in", p)].offset for p in (0, 1)] == [3, 2]


def test_user_code_of_the_start_and_the_end_isnt_called_by_the_stream_thread() -> None:
    callers: list[str] = []

    class Watching(Counting):
        def __init__(self) -> None:
            callers.append(f"made {r.inside}")

        def init(self, context: Any) -> None:
            callers.append(f"init {r.inside}")
            super().init(context)

        def close(self) -> None:
            callers.append(f"close {r.inside}")

    r = RunningProcessing(ProcessingWorld(counting(processor=Watching)))
    r.run(0)
    r.step(3)
    r.rebalance(steps=3)
    assert callers == ["made False", "init False", "close False"]


def test_an_error_of_init_ends_the_thread_at_once() -> None:
    class Failing(Counting):
        init_error = ValueError("user's init")

    r = RunningProcessing(ProcessingWorld(counting(processor=Failing)))
    r.run(0)
    with pytest.raises(ProcessingError, match="user's init"):
        r.step(3)
    r.loop.fail(shut_application_down=None)
    r.loop.close()
    assert r.world.state.held == set()


def test_the_end_waits_for_a_call_and_closes_its_task() -> None:
    r = running(0)
    r.feed("a")
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert r.world.state.held == set()
    assert r.world.states[-1] is ThreadState.RUNNING


def test_the_stream_thread_looks_after_working_tasks_often_and_less_often_in_long_calls() -> None:
    r = running(0)
    part = r.loop._processing
    assert part.wake_up_ms(0) is None
    put(r.world, 0, "a")
    looks: list[int | None] = []

    def look(_: Record) -> None:
        looks.extend(part.wake_up_ms(0) for _ in range(7))

    r.world.user_code.at = look
    r.step(2)
    assert looks == [1, 2, 4, 8, 16, LONGEST_LOOK_MS, LONGEST_LOOK_MS]


def test_metrics_tell_how_the_scheduler_stands() -> None:
    r = running(0, 1)
    r.world.user_code.refused = {"poison"}
    put(r.world, 0, "poison")
    put(r.world, 1, *["a"] * 10)
    r.step(3)
    r.world.clock.advance(2_000)
    r.world.workers.stuck = True
    r.step()
    snapshot = r.world.context.metrics.snapshot()
    (scheduler,) = snapshot["stream-scheduler-metrics"]
    assert scheduler["metrics"]["processing-threads"] == 1
    assert scheduler["metrics"]["quarantined-tasks"] == 1
    assert scheduler["metrics"]["task-wait-total"] > 0
    r.world.workers.stuck = False
    r.step()
    (thread,) = r.world.context.metrics.snapshot()["stream-processing-thread-metrics"]
    assert thread["tags"] == {"thread-id": "app-ProcessingThread-1-1"}
    assert thread["metrics"]["process-total"] == 10


@pytest.mark.parametrize("waits_for", ["a thread", "its last commit"])
def test_metrics_tell_for_how_long_a_task_with_input_waits_whatever_for(waits_for: str) -> None:
    r = running(0)
    keep, let = {
        "a thread": (lambda: setattr(r.world.workers, "stuck", True), lambda: setattr(r.world.workers, "stuck", False)),
        "its last commit": (
            lambda: setattr(r.loop._answering, "leaving", {A}), lambda: setattr(r.loop._answering, "leaving", set())
        ),
    }[waits_for]  # fmt: skip
    keep()
    put(r.world, 0, "a")
    r.step(2)
    r.world.clock.advance(700)
    let()
    r.step(2)
    r.world.clock.advance(2_000)
    r.step(2)
    (scheduler,) = r.world.context.metrics.snapshot()["stream-scheduler-metrics"]
    assert r.world.user_code.seen == ["a"]
    assert 700 <= scheduler["metrics"]["task-pause-latency-max"] < 1_000


def test_a_pause_that_the_user_asks_for_is_none_of_the_tasks() -> None:
    r = running(0)
    r.loop._answering.leaving = {A}
    put(r.world, 0, "a")
    r.step(2)
    registry = r.world.context.thread_registry
    registry.pause([0])
    r.step(2)
    r.world.clock.advance(5_000)
    r.loop._answering.leaving = frozenset()
    registry.resume([0])
    r.step(2)
    r.world.clock.advance(2_000)
    r.step(2)
    (scheduler,) = r.world.context.metrics.snapshot()["stream-scheduler-metrics"]
    assert r.world.user_code.seen == ["a"]
    assert scheduler["metrics"]["task-pause-latency-max"] < 1_000


def test_metrics_name_the_errors_class_of_a_task_in_quarantine_as_long_as_it_is_there_and_never_its_text() -> None:
    r = running(0, 1)
    r.world.user_code.refused = {"poison"}
    put(r.world, 0, "poison")
    texts: list[str] = []

    def failing() -> list[tuple[str, str]]:
        r.world.clock.advance(2_000)
        r.step(3)
        texts.append(generate_latest(registry).decode())
        found = read_metrics(texts[-1])
        return [(str(task), error) for task, error in found.classes.items() if 0 < found.seconds_left[task] <= 300]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(PrometheusCollector(r.world.context.metrics))
    r.step(3)
    assert failing() == [("0_0", "RuntimeError")]
    ((task, text),) = r.loop._processing.failing().items()
    assert (str(task), "poison" in text) == ("0_0", True)
    assert "poison" not in texts[-1]
    r.world.user_code.refused = set()
    r.world.clock.advance(10_000)
    r.step(3)
    assert failing() == []
