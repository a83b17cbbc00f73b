"""Spark and live instances of one application, one after the other and at the same time: still one application."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.instance import Instance
from compat_tests.harness.world import World
from compat_tests.spark.running import BATCH, END_S, MICRO_BATCH, judge_all, on_spark
from compat_tests.spark.shapes import shape_of
from milestones.testing import NotYet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milestones.pipeline import SparkRun

SHAPE = shape_of("count-by-value")
VALUES = 60


def begin(world: World) -> None:
    world.create(**dict.fromkeys(SHAPE.outputs, 2))
    world.input("in", 4)


def feed(world: World, count: int = 2_000) -> None:
    world.feeds["in"].send(world.groups(count, 50, VALUES))


def both_own_inputs(world: World) -> None:
    def shared() -> object:
        members = world.members()
        return (len(members) == 2 and all(members.values())) or NotYet(str(members))

    world.wait(shared, "two members have inputs", END_S)


@pytest.mark.last_stage
def test_a_batch_run_twice_processes_nothing_the_second_time(world: World, spark: SparkSession) -> None:
    begin(world)
    feed(world)
    first = on_spark(world, SHAPE.topology, spark)
    assert first.wait(END_S)
    assert first.progress.records == 4_000  # each record once on either side of the repartition
    again = on_spark(world, SHAPE.topology, spark)
    assert again.wait(END_S)
    assert (again.progress.records, again.progress.jobs) == (0, 0)
    judge_all(world, SHAPE)


@pytest.mark.short_under("exactly_once_v2")
def test_live_instances_go_on_where_a_batch_has_ended_and_a_batch_where_they_have(
    world: World, spark: SparkSession
) -> None:
    begin(world)
    feed(world)
    assert on_spark(world, SHAPE.topology, spark).wait(END_S)
    app = world.instance(SHAPE.topology).start()
    feed(world)
    world.work_done(SHAPE.repartitions, END_S)
    app.stop()
    feed(world)
    last = on_spark(world, SHAPE.topology, spark)
    assert last.wait(END_S)
    assert last.progress.records == 4_000
    judge_all(world, SHAPE)


@pytest.mark.short_under("exactly_once_v2")
def test_a_live_instance_joins_micro_batches_and_takes_over_from_them(world: World, spark: SparkSession) -> None:
    begin(world)
    feed(world)
    with on_spark(world, SHAPE.topology, spark, mode=MICRO_BATCH, interval_ms=100) as run:
        world.work_done(SHAPE.repartitions, END_S)
        app = world.instance(SHAPE.topology).start()
        feed(world)
        both_own_inputs(world)
        feed(world)
        world.work_done(SHAPE.repartitions, END_S)
        feed(world)
        assert run.stop(END_S)
    world.finish(app, repartitions=SHAPE.repartitions)
    judge_all(world, SHAPE)


def batch_beside_live(world: World, spark: SparkSession) -> tuple[Instance, SparkRun]:
    """A live instance that has done all there was, and a batch over what came then."""
    begin(world)
    feed(world)
    app = world.instance(SHAPE.topology).start()
    world.processed(SHAPE.repartitions)
    feed(world)
    return app, on_spark(world, SHAPE.topology, spark, mode=BATCH)


def both_had_their_share(world: World, app: Instance, run: SparkRun) -> None:
    assert run.progress.elsewhere > 0
    world.finish(app, repartitions=SHAPE.repartitions)
    judge_all(world, SHAPE)


@pytest.mark.short_under("exactly_once_v2")
def test_a_batch_takes_what_a_live_group_gives_it(world: World, spark: SparkSession) -> None:
    app, run = batch_beside_live(world, spark)
    feed(world)
    assert run.wait(END_S)
    both_had_their_share(world, app, run)


@pytest.mark.short_under("exactly_once_v2")
def test_a_batch_ends_though_a_live_instance_gets_more_and_more_to_do(world: World, spark: SparkSession) -> None:
    app, run = batch_beside_live(world, spark)
    until_s = time.monotonic() + END_S
    while not run.wait(0.2):
        feed(world, 100)
        assert time.monotonic() < until_s, f"the batch goes on: {run.progress}"
    both_had_their_share(world, app, run)
