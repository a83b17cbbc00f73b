"""A query over Kafka whose driver is killed in a micro-batch and started again from its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.world import World
from compat_tests.spark.processes import SparkProcess
from compat_tests.spark.source_app import HALF, HELD, WHOLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS, RATE = 1_200, 500
END_S = 240.0


class Query(SparkProcess):
    """The driver's process; Spark runs in it."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.topic("in"), "")
        self.entry = ("compat_tests.spark.source_app",)
        self.rows = world.directory / "rows"
        self.config = {
            "bootstrap_servers": world.cluster.bootstrap_servers, "folder": str(world.directory), "rate": RATE,
        }  # fmt: skip


@pytest.mark.last_stage
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hold", [HALF, pytest.param(WHOLE, marks=pytest.mark.full)])
def test_with_an_idempotent_sink_a_killed_query_keeps_each_record_once(
    plain_world: World, spark: SparkSession, hold: str
) -> None:
    world = plain_world
    feed = world.input("in", 3)
    feed.send(world.records(RECORDS, keys=100))
    query = Query(world).start(hold=hold)
    query.says(HELD, END_S)
    query.executors()  # so that its processes are known at the end
    query.kill()
    feed.send(world.records(RECORDS, keys=100))
    query.start()
    query.dies(0, END_S)
    kept = spark.read.parquet(str(query.rows)).select("partition", "offset", "key", "value").collect()
    found = sorted((row["partition"], row["offset"], bytes(row["key"]), bytes(row["value"])) for row in kept)
    assert found == sorted((row.partition, row.offset, row.key, row.value) for row in feed.rows)
