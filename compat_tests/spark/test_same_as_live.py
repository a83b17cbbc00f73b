"""Every topology of the suite commits the same on Spark, in a batch and in micro-batches, as on live stages."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.apps.topologies import TOPOLOGIES
from compat_tests.cases.flows import COUNT
from compat_tests.cases.test_every_operator import SHAPES
from compat_tests.harness.brokers import Broker
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.random_topologies.cases import random_case
from compat_tests.spark.running import (
    END_S,
    differences,
    gather,
    in_batch,
    in_micro_batches,
    live,
    on_spark,
    outputs_of,
)
from compat_tests.spark.shapes import records, shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.last_stage

RECORDS = 1_500
WITH_GLOBAL_TABLES = {"everywhere"}
"""Nobody commits their rows: see `test_global_tables.py`."""
EXECUTIONS = {"batch": in_batch, "micro-batches": in_micro_batches}


def compare(
    topology: str, broker: Broker, spark: SparkSession, stage: str, guarantee: str, seed: int, directory: Path
) -> None:
    shape = shape_of(topology)
    inputs = records(shape, random.Random(f"{seed}:{topology}"), RECORDS)
    ways = {
        "baseline": (live, "baseline"),
        stage: (live, stage),
        "batch": (in_batch(spark), "baseline"),
        "micro-batch": (in_micro_batches(spark), "baseline"),
    }
    found = {
        name: outputs_of(execute, broker, shape, inputs, guarantee, its_stage, directory / name)
        for name, (execute, its_stage) in ways.items()
    }
    assert any(found["baseline"].values()), "there is something to compare"
    hold(*(differences(shape, name, found["baseline"], found[name]) for name in ways))


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES.keys() - WITH_GLOBAL_TABLES))
def test_a_topology_commits_the_same_as_live(
    topology: str, request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, stage: str, guarantee: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    compare(topology, broker, spark, stage, guarantee, request.config.option.seed, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_a_random_topology_commits_the_same_as_live(
    number: int, request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, stage: str, tmp_path: Path
) -> None:
    seed = request.config.option.seed + number
    topology = f"plan:{random_case(seed, 'exactly_once_v2', quick=True).plan.text()}"
    compare(topology, broker, spark, stage, "exactly_once_v2", seed, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("mode", EXECUTIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_windows_and_joins_are_as_defined(
    name: str, mode: str, request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, stage: str,
    guarantee: str, tmp_path: Path,
) -> None:  # fmt: skip
    shape = shape_of(f"plan:{SHAPES[name].text()}")
    inputs = records(shape, random.Random(request.config.option.seed), RECORDS)
    outputs_of(EXECUTIONS[mode](spark), broker, shape, inputs, guarantee, stage, tmp_path / "world")


@pytest.mark.short_under("exactly_once_v2")
def test_behind_a_cache_every_key_ends_with_the_right_value(world: World, spark: SparkSession) -> None:
    feed = world.input("in", 3, out=2)
    for _ in range(2):
        feed.send(world.records(2_000, keys=20))
        assert on_spark(world, "count", spark, statestore_cache_max_bytes=1_000_000).wait(END_S)
    gather(world)
    judge(world, replace(COUNT, thinned=True))
    assert len(world.cluster.read(world.topic("out"))) < len(feed.rows)
