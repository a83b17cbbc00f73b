"""Processing threads that come and go under the polling thread."""

from __future__ import annotations

from milestones.common.records import Record
from tests.milestones.fakes import put
from tests.milestones.m4_polling_thread.polling import RunningPolling


def test_the_threads_of_an_instance_run_from_the_first_turn_on_whether_there_are_tasks_or_not() -> None:
    r = RunningPolling(num_stream_threads=2)
    r.step()
    assert r.at_work == ["app-ProcessingThread-1", "app-ProcessingThread-2"]
    assert r.told() == [("1", "RUNNING"), ("2", "RUNNING")]
    r.step(3)
    assert r.told() == []


def test_a_thread_that_is_added_runs_after_the_next_turn_and_the_group_hears_nothing_of_it() -> None:
    r = RunningPolling()
    r.run(0)
    joins = len(r.world.member.joins)
    r.registry.add()
    r.step()
    assert r.at_work == ["app-ProcessingThread-1", "app-ProcessingThread-2"]
    assert ("2", "RUNNING") in r.told()
    assert len(r.world.member.joins) == joins


def test_a_removed_thread_is_told_once_it_has_ended_and_the_supervisor_frees_its_number() -> None:
    r = RunningPolling(num_processing_threads=3)
    r.run(0)
    r.told()
    r.registry.remove(2)
    r.step(2)
    assert set(r.told()) == {("2", "DEAD")}
    assert r.at_work == ["app-ProcessingThread-1", "app-ProcessingThread-3"]
    r.registry.gone(2)
    r.registry.add()
    r.step(2)
    assert r.told() == [("2", "RUNNING")]


def test_a_removed_thread_in_a_long_call_is_told_when_the_call_returns_and_keeps_up_no_other() -> None:
    r = RunningPolling(num_processing_threads=2)
    r.run(0, 1)
    r.told()
    put(r.world, 0, "slow")
    put(r.world, 1, "quick")
    caller: list[str] = []

    def removed(record: Record) -> None:
        r.world.user_code.at = lambda _: None
        caller.append(next(one.worker.name for one in r.world.workers.all if one.inside))
        number = int(caller[0].rpartition("-")[2])
        r.registry.remove(number)
        with r.turn():
            r.step(5, ms=1_000)
        assert r.told() == []
        assert len(r.world.user_code.seen) == 2

    r.world.user_code.at = removed
    r.step(4)
    assert set(r.told()) == {(caller[0].rpartition("-")[2], "DEAD")}
    assert caller[0] not in r.at_work


def test_a_thread_that_is_removed_before_it_was_started_is_told_at_once() -> None:
    r = RunningPolling(num_processing_threads=2)
    r.registry.remove(2)
    r.step()
    assert set(r.told()) == {("1", "RUNNING"), ("2", "DEAD")}


def test_the_last_thread_closes_the_tasks_so_it_stays_until_the_polling_thread_is_asked_to_end() -> None:
    r = RunningPolling()
    r.run(0)
    r.registry.remove()
    r.step(5, ms=1_000)
    assert r.at_work == ["app-ProcessingThread-1"]


def test_a_task_is_given_back_though_all_threads_were_removed_before_it_came() -> None:
    r = RunningPolling()
    r.registry.remove()
    r.run(0)
    assert r.at_work == []
    r.rebalance(steps=10)
    assert r.places == {}
    assert r.world.state.held == set()


def test_the_capacity_is_that_of_every_stage_and_follows_threads_that_come_and_go() -> None:
    for stream, processing, capacity in ((1, 1, 1), (1, 8, 8), (4, 2, 4), (3, 3, 3)):
        r = RunningPolling(num_stream_threads=stream, num_processing_threads=processing)
        identity = r.world.context.identity
        assert identity.capacity() == capacity
        r.registry.add()
        assert identity.capacity() == capacity + 1
        r.registry.remove()
        r.registry.remove()
        assert identity.capacity() == max(1, capacity - 1)


def test_a_thread_that_the_system_does_not_start_ends_no_polling_thread_and_comes_when_it_does() -> None:
    r = RunningPolling(num_processing_threads=2)
    launch = r.loop._processing._threads._launch  # type: ignore[attr-defined]

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    r.loop._processing._threads._launch = refuse  # type: ignore[attr-defined]
    r.step(3, ms=1_000)
    assert r.told() == []
    r.loop._processing._threads._launch = launch  # type: ignore[attr-defined]
    r.step(2, ms=1_000)
    assert set(r.told()) == {("1", "RUNNING"), ("2", "RUNNING")}
