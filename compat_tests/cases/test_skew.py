"""A backlog in one partition beside partitions with little input, read by one client with one queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from compat_tests.cases.flows import CALLS
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

PARTITIONS = 4
THREADS: dict[str, Any] = {"num_stream_threads": 1, "num_processing_threads": 1}
BACKLOG = 8_000
"""Records of one partition whose calls take a millisecond each: the machine's pace is no matter."""
AHEAD = 4_000
"""The records of the backlog that may be processed at most between the arrival of a record in another partition and
the commit after it. All of the backlog is prefetched."""
QUIET = 20
"""Records at once in each of the other partitions."""


def into(partition: int, count: int, value: bytes) -> Iterable[Sent]:
    return (Sent(b"%d-%d" % (partition, number % 50), value, FIRST_TIMESTAMP, partition) for number in range(count))


@pytest.mark.short_under("exactly_once_v2")
def test_what_comes_into_a_quiet_partition_is_processed_beside_a_backlog_and_not_after_it(world: World) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    feed.send(into(0, BACKLOG, b"slow 1"))
    world.instance("calls", **THREADS).start()
    hot, *quiet = sorted(world.cluster.places([feed.topic]))
    world.wait(lambda: world.committed().get(hot, 0) > 0 or NotYet("nothing"), "the backlog is being processed")
    ahead: list[int] = []
    while world.committed()[hot] < BACKLOG - AHEAD:
        before = world.committed()[hot]
        feed.send(record for place in quiet for record in into(place.partition, QUIET, b"quick"))
        world.wait(lambda: world.inputs_committed(quiet), "the quiet partitions are processed")
        ahead.append(world.committed()[hot] - before)
    print(f"{len(ahead)} times; records of the backlog that were processed meanwhile: {ahead}")
    assert max(ahead) < AHEAD
    end_and_judge(world, CALLS)
