"""A whole history on Spark, whatever happens meanwhile; then live instances go on with exactly what came since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.apps.topologies import named
from compat_tests.cases.flows import COUNT
from compat_tests.harness.world import World
from compat_tests.spark.app import BACKFILL
from compat_tests.spark.processes import SparkProcess
from compat_tests.spark.running import END_S, amid, judge_all
from compat_tests.spark.shapes import shape_of
from milestones import StreamsConfig
from milestones.pipeline.backfill import archive_inputs
from milestones.testing import NotYet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = shape_of("count")
RECORDS, MORE, PARTITIONS = 120_000, 500, 4
START_S = 240.0

assert SHAPE.flows == (COUNT,)


class Backfill(SparkProcess):
    """The driver's process; Spark runs in it."""

    def __init__(self, world: World, history: str = "") -> None:
        super().__init__(world, SHAPE.topology, "")
        self.entry = ("compat_tests.spark.app", f"{BACKFILL}{history}", "local[2]")


def begin(world: World) -> None:
    world.create(**dict.fromkeys(SHAPE.outputs, 2))
    world.input("in", PARTITIONS)
    more(world, RECORDS)


def more(world: World, count: int = MORE) -> None:
    world.feeds["in"].send(world.records(count, keys=500))


def archived(world: World, spark: SparkSession) -> str:
    """Most of the input lies in an archive, and Kafka no longer has it; the archive's URL."""
    url = f"file://{world.directory}/history"
    config = StreamsConfig(application_id=world.application_id, bootstrap_servers=world.cluster.bootstrap_servers)
    topology = named(SHAPE.topology)(world.application_id)
    assert archive_inputs(topology, spark, url, config=config).records == RECORDS
    ends = world.cluster.ends(world.cluster.places([world.topic("in")]))
    more(world)
    world.cluster.truncate(ends)
    return url


def members(world: World, count: int) -> None:
    """Wait until the group has so many."""

    def there() -> object:
        found = world.members()
        return len(found) == count or NotYet(str(found))

    world.wait(there, f"the group has {count} members", START_S)


def hands_over(world: World, *, crashed: bool) -> None:
    """A live instance processes exactly what came since, and all of it is right."""
    more(world)
    app = world.instance(SHAPE.topology, "live").start()
    world.finish(app)
    judge_all(world, SHAPE, crashed=crashed)


@pytest.mark.timeout(900)
@pytest.mark.short_under("exactly_once_v2")
def test_a_backfill_from_an_archive_that_was_killed_goes_on_when_it_is_run_again(
    world: World, spark: SparkSession
) -> None:
    begin(world)
    run = Backfill(world, archived(world, spark)).start()
    amid(world, RECORDS, START_S)
    run.executors()  # so that its processes are known at the end
    run.kill()
    run.start()
    run.dies(0, timeout_s=START_S + END_S)
    assert sum(world.committed().values()) >= RECORDS + MORE
    hands_over(world, crashed=True)


@pytest.mark.timeout(900)
@pytest.mark.short_under("exactly_once_v2")
def test_a_live_instance_that_joins_a_backfill_shares_it_and_goes_on(world: World) -> None:
    begin(world)
    run = Backfill(world).start()
    members(world, 1)
    early = world.instance(SHAPE.topology, "early").start()
    members(world, 2)
    run.dies(0, timeout_s=START_S + END_S)
    world.finish(early)
    hands_over(world, crashed=False)
