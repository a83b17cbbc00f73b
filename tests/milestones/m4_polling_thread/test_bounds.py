"""Fifty tasks and sixteen processing threads on one polling thread: the bounds of memory are the instance's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones.common.kafka.membership import CommitRetriableError
from tests.milestones.fake_kafka import FakeProducer
from tests.milestones.fakes import put
from tests.milestones.m4_polling_thread.polling import RunningPolling

TASKS = range(50)
LIMIT = 200_000
RECORD = 600
"""More than the bytes of a record here, in a buffer or as an output and a changelog record."""


def running(*, cached: bool = False, **settings: Any) -> RunningPolling:
    r = RunningPolling(cached=cached, num_processing_threads=16, **settings)
    r.run(*TASKS)
    assert len(r.at_work) == 16
    return r


def most(r: RunningPolling, held: Callable[[RunningPolling], int], records: int = 40, turns: int = 60) -> int:
    """The most that was held while all partitions got records."""
    found = 0
    for partition in TASKS:
        for number in range(records):
            put(r.world, partition, "x" * 100, key=f"key-{number}")
    for _ in range(turns):
        r.step(ms=10)
        found = max(found, held(r))
    return found


def tasks(r: RunningPolling) -> Any:
    return r.tasks.processing.values()


def test_input_buffers_hold_the_bound_and_a_fetch_of_each_partition() -> None:
    r = running(input_buffer_max_bytes=LIMIT, max_poll_records=2)
    r.world.workers.stuck = True
    held = most(r, lambda r: sum(task.input.bytes() for task in tasks(r)))
    assert LIMIT // 2 < held <= LIMIT + len(TASKS) * 2 * RECORD
    r.world.workers.stuck = False
    r.step(400, ms=10)
    assert r.loop._processing.processed == len(TASKS) * 40


def test_outputs_that_have_no_room_hold_the_bound_and_a_record_of_each_task() -> None:
    r = running(output_buffer_max_bytes=LIMIT, commit_interval_ms=10_000)
    r.world.clients.producer = FakeProducer()
    r.world.clients.producer.room = 0
    held = most(r, lambda r: sum(task.output_bytes() for task in tasks(r)))
    assert 0 < held <= LIMIT + len(TASKS) * 2 * RECORD


def test_uncommitted_state_holds_the_bound_and_a_lease_of_each_thread_while_commits_fail() -> None:
    limit = 20_000
    r = running(statestore_uncommitted_max_bytes=limit, processing_guarantee="at_least_once", commit_interval_ms=100)

    def refuse(*_: Any) -> None:
        raise CommitRetriableError("the coordinator is away")

    r.world.member.commit_offsets = refuse  # type: ignore[method-assign]
    held = 0
    for number in range(200):
        for partition in TASKS:
            put(r.world, partition, "v", key=f"key-{number}")
        r.step(ms=50)
        held = max(held, sum(task.uncommitted_bytes() for task in tasks(r)))
    assert limit <= held < 2 * limit


@pytest.mark.parametrize("limit", [5_000, 100_000])
def test_caches_hold_the_bound(limit: int) -> None:
    r = running(cached=True, statestore_cache_max_bytes=limit, commit_interval_ms=10_000)
    caches = r.world.budget.record_caches
    held = most(r, lambda _: caches.taken)
    assert 0 < held <= limit
