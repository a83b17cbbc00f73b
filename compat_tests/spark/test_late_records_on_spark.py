"""Operators and stores that decide by time do in micro-batches what one process does with all records: what is late in
a later batch is late, and a window is emitted once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from compat_tests.apps.times import expected, late_records
from compat_tests.harness.world import World
from compat_tests.spark.running import END_S, MICRO_BATCH, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.last_stage
@pytest.mark.timeout(600)
@pytest.mark.short_under("exactly_once_v2")
def test_what_is_late_in_a_later_micro_batch_is_late(world: World, spark: SparkSession) -> None:
    feed = world.input("in", 1, out=1)
    rounds = late_records(int(time.time() * 1_000) - 60_000)
    with on_spark(world, "times", spark, mode=MICRO_BATCH, interval_ms=100) as run:
        for some in rounds:
            feed.send(some)
            world.work_done((), END_S)
        assert run.stop(END_S)
    assert run.progress.jobs >= len(rounds), "each in a micro-batch of its own"
    found = [(row.key, row.value, row.timestamp) for row in world.cluster.read(world.topic("out"))]
    assert found == expected([sent for some in rounds for sent in some])
