"""Stages and a run on Spark in one group: rolling restarts from stage to stage beside it, under load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.cases.steps import bounce, loading
from compat_tests.harness.instance import Instance
from compat_tests.harness.world import World
from compat_tests.spark.running import END_S, MICRO_BATCH, judge_all, on_spark
from compat_tests.spark.shapes import shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = shape_of("count-by-value")
OLDER = ("baseline", "m3")
SHIFTS = (1, 2, 1, 0)
"""How far along these and the case's own stage each instance is in each round of restarts: the three of them go from
each stage to each other one."""
GROUP: dict[str, Any] = {"num_stream_threads": 2, "num_processing_threads": 3, "num_standby_replicas": 1}
SESSION_MS = {Instance.stop: 30_000, Instance.kill: 6_000}
"""By how instances end. A machine that is busy with Spark may be silent for long; a killed member is waited for."""


@pytest.mark.last_stage
@pytest.mark.timeout(1_200)
@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize(("members", "end"), [
    ("dynamic", Instance.stop),
    pytest.param("static", Instance.stop, marks=pytest.mark.full),
    pytest.param("dynamic", Instance.kill, marks=pytest.mark.full),
    pytest.param("static", Instance.kill, marks=pytest.mark.full),
])  # fmt: skip
def test_baseline_m3_the_newest_stage_and_spark_are_one_group_that_stays_exact_through_rolling_restarts(
    world: World, spark: SparkSession, members: str, end: Any
) -> None:
    world.create(**dict.fromkeys(SHAPE.outputs, 2))
    world.input("in", 8)
    load, stages = loading(world, 500, 300, 60), [*OLDER, world.stage]

    def settings(name: str) -> dict[str, Any]:
        static_id = name if members == "static" else None
        return {**GROUP, "client_id": name, "group_instance_id": static_id, "session_timeout_ms": SESSION_MS[end]}

    group = [world.instance(SHAPE.topology, name, **settings(name)) for name in ("one", "two", "three")]
    load()
    for one, stage in zip(group, stages, strict=True):
        one.start(milestones=stage)
    with on_spark(world, SHAPE.topology, spark, mode=MICRO_BATCH, interval_ms=100, **settings("spark")) as run:
        world.group_is(*world.instances, timeout_s=END_S)
        for shift in SHIFTS:
            for number, one in enumerate(group):
                bounce(world, one, load, end, milestones=stages[(number + shift) % len(stages)])
        world.work_done(SHAPE.repartitions, END_S)
        assert run.progress.records > 0
        assert run.stop(END_S)
    world.finish(*group, repartitions=SHAPE.repartitions)
    judge_all(world, SHAPE, crashed=end is Instance.kill)
