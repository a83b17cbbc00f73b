"""A global table on Spark: each task finds the rows that were there when it began, in a batch and in micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.cases.flows import EVERYWHERE
from compat_tests.cases.test_global import names, row_feed, rows
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World
from compat_tests.spark.running import END_S, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.last_stage


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["batch", "micro_batch"])
def test_every_record_finds_its_row(world: World, spark: SparkSession, mode: str) -> None:
    feed = row_feed(world)
    feed.send([*rows("old "), *rows()])
    inputs = world.input("in", 6, out=6)
    inputs.send(names(world, 1_000))
    run = on_spark(world, "everywhere", spark, mode=mode)
    if mode == "batch":
        assert run.wait(END_S)
        inputs.send(names(world, 1_000))
        assert on_spark(world, "everywhere", spark, mode=mode).wait(END_S)
    else:
        world.work_done(timeout_s=END_S)
        inputs.send(names(world, 1_000))
        world.work_done(timeout_s=END_S)
        run.stop()
    judge(world, EVERYWHERE)
    feed.close()
