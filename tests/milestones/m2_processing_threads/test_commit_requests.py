"""What user code asks to be committed, where processing threads work: when it is, and when it can't be."""

from __future__ import annotations

from typing import Any

from milestones.common.records import TopicPartition
from tests.milestones.fakes import put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing


def running() -> RunningProcessing:
    world = ProcessingWorld(cached=True, statestore_cache_max_bytes=10_000_000, commit_interval_ms=10_000)
    r: Any = RunningProcessing(world).run(0, 1)
    assert isinstance(r, RunningProcessing)
    return r


def test_a_request_of_a_task_in_quarantine_whose_cache_cant_be_flushed_has_no_commit_made_each_turn() -> None:
    r = running()
    r.world.user_code.refused = {"poison"}
    put(r.world, 0, "commit", "poison")
    r.step(3)
    commits = r.loop._commits.commits
    for _ in range(50):
        put(r.world, 1, "a")
        r.step(ms=10)
    assert r.loop._commits.commits - commits <= 1
    r.world.user_code.refused = set()
    r.step(50, ms=20)
    assert r.world.member.committed[TopicPartition("in", 0)].offset == 2
