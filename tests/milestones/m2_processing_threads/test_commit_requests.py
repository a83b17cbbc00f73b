"""What user code asks to be committed, where processing threads work: when it is, and when it can't be."""

from __future__ import annotations

from typing import Any

from milestones.common.records import TaskId, TopicPartition
from tests.milestones.fakes import put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing


def running(**more: Any) -> RunningProcessing:
    settings = {"statestore_cache_max_bytes": 10_000_000, "commit_interval_ms": 10_000, **more}
    world = ProcessingWorld(cached=True, **settings)
    r: Any = RunningProcessing(world).run(0, 1)
    assert isinstance(r, RunningProcessing)
    return r


def test_a_request_of_a_task_in_quarantine_has_one_commit_made_of_what_came_before_and_none_each_turn() -> None:
    r = running()
    r.world.user_code.refused = {"poison"}
    put(r.world, 0, "commit", "poison")
    r.step(3)
    commits = r.loop._commits.commits
    for _ in range(50):
        put(r.world, 1, "a")
        r.step(ms=10)
    assert r.loop._commits.commits - commits <= 1
    assert r.world.member.committed[TopicPartition("in", 0)].offset == 1
    r.world.user_code.refused = set()
    r.step(50, ms=300)
    assert r.world.member.committed[TopicPartition("in", 0)].offset == 2


def test_under_exactly_once_a_full_output_buffer_of_a_task_with_a_cache_asks_for_a_commit_which_empties_it() -> None:
    r = running(output_buffer_max_bytes=40_000)
    put(r.world, 0, *["a"] * 500)
    r.step(100, ms=10)
    task = r.world.state.tasks[TaskId(0, 0)]
    assert task.input.waiting() == 0
    assert r.loop._commits.commits > 1


def test_at_least_once_it_doesnt_since_its_outputs_are_sent_at_any_time() -> None:
    r = running(output_buffer_max_bytes=40_000, processing_guarantee="at_least_once")
    put(r.world, 0, *["a"] * 500)
    r.step(100, ms=10)
    task = r.world.state.tasks[TaskId(0, 0)]
    assert task.input.waiting() == 0
    assert r.loop._commits.commits <= 1
