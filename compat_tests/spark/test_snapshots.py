"""Snapshots made on Spark, from which instances of every stage restore: whatever happens meanwhile, all stays exact."""

from __future__ import annotations

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from compat_tests.apps.topologies import named
from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import counted, feed_until_it_says
from compat_tests.cases.test_live_snapshots import DELTA, MANY, begins_with_snapshots, lose, maker, with_input
from compat_tests.harness.followers import METRICS, caught_up
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge, judge_disks
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.spark.running import END_S, WRITTEN, judge_all, on_spark
from compat_tests.spark.shapes import shape_of
from milestones import StreamsConfig
from milestones.pipeline.snapshots import CompactionRun, compact_changelog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOTS, UPDATES, FEW_KEYS, BEHIND, LONG_S = 3, 200_000, 1_000, 20_000, 900
"""How often the changelog is compacted while at least so many updates of so many keys come; how far behind their
inputs are; what it takes at most."""
BEGINS = "begins with the"
READ = "is restored from its changelog"


def url_of(world: World) -> str:
    return f"file://{world.directory}/snapshots"


def compact(world: World, spark: SparkSession) -> CompactionRun:
    config = StreamsConfig(
        application_id=world.application_id, bootstrap_servers=world.cluster.bootstrap_servers, milestones=world.stage
    )
    return compact_changelog(named("count")(world.application_id), spark, url_of(world), config=config)


def more(world: World) -> None:
    world.feeds["in"].send(world.records(500, keys=300))


def logged(world: World) -> int:
    """How many records the changelog has."""
    return len(world.cluster.read(f"{world.application_id}-counts-changelog"))


def without_its_disk(world: World, spark: SparkSession) -> tuple[Instance, int]:
    """An application that has ended, with snapshots and no state; how many newer records its changelog has."""
    app = counted(world)
    assert compact(world, spark).entries == 200
    before = logged(world)
    more(world)
    app.start()
    world.finish(app)
    shutil.rmtree(app.state_dir)
    return app, logged(world) - before


def goes_on(world: World) -> None:
    more(world)
    end_and_judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
def test_an_instance_that_lost_its_disk_reads_only_what_came_after_the_snapshot(
    world: World, spark: SparkSession
) -> None:
    app, newer = without_its_disk(world, spark)
    app.start(snapshot_url=url_of(world))
    world.processed()
    assert app.log().count(BEGINS) == 2
    assert newer == 500 or world.logs_at_commits
    assert sum(app.restored().values()) == newer
    goes_on(world)


@pytest.mark.short_under("exactly_once_v2")
def test_a_kill_between_the_files_and_their_offset_costs_nothing(world: World, spark: SparkSession) -> None:
    app, _ = without_its_disk(world, spark)
    for nth in (1, 2):
        app.start(fault=f"snapshot.ingested:kill:{nth}", snapshot_url=url_of(world))
        app.dies(-signal.SIGKILL)
    app.start(snapshot_url=url_of(world))
    goes_on(world)


@pytest.mark.full
def test_standbys_begin_with_snapshots_and_take_over(world: World, spark: SparkSession) -> None:
    first, _ = without_its_disk(world, spark)
    second = world.instance("count", "two")
    settings: Settings = {"snapshot_url": url_of(world), "num_standby_replicas": 1, "acceptable_recovery_lag": 10}
    for one in (first, second):
        one.start(**settings)
    world.group_is(first, second)
    world.processed()
    more(world)
    world.processed()
    first.kill()
    more(world)
    world.processed()
    assert BEGINS in second.log()
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("trouble", ["away", pytest.param("damaged", marks=pytest.mark.full)])
def test_a_snapshot_that_is_no_use_is_a_warning(world: World, spark: SparkSession, trouble: str) -> None:
    app, _ = without_its_disk(world, spark)
    for file in (world.directory / "snapshots").rglob("*.sst"):
        file.write_bytes(b"damaged")
    app.start(snapshot_url=url_of(world) if trouble == "damaged" else "http://127.0.0.1:9/snapshots")
    world.processed()
    assert READ in app.log()
    goes_on(world)


@pytest.mark.full
def test_a_snapshot_made_while_the_application_runs_is_exact(world: World, spark: SparkSession) -> None:
    app = counted(world)
    app.start()
    for _ in range(3):
        more(world)
        compact(world, spark)
    world.finish(app)
    shutil.rmtree(app.state_dir)
    app.start(snapshot_url=url_of(world))
    world.processed()
    assert app.log().count(BEGINS) == 2
    goes_on(world)


@pytest.mark.full
@pytest.mark.timeout(LONG_S)
def test_a_standby_and_a_snapshot_made_while_each_commit_changes_each_key_are_exact(
    world: World, spark: SparkSession
) -> None:
    feed, settings = world.input("in", 2, out=2), {"commit_interval_ms": 1_000, "num_standby_replicas": 1, **METRICS}
    one, other = (world.instance("count", name, **settings).start() for name in ("one", "other"))
    world.group_is(one, other)
    with ThreadPoolExecutor(1, "snapshots") as pool:
        runs = pool.submit(lambda: [compact(world, spark) for _ in range(SNAPSHOTS)])
        while not runs.done() or len(feed.rows) < UPDATES:
            feed.send(world.records(BEHIND // 2, keys=FEW_KEYS))
            world.wait(lambda: world.inputs_committed(but=BEHIND), "few inputs wait")
    assert [run.entries for run in runs.result()][-1] == FEW_KEYS
    world.processed()
    caught_up(world, ("0_0", "0_1"), one, other)
    for instance in (one, other):
        instance.kill()
    hold(judge_disks(world, "counts"))
    log = logged(world)
    third = world.instance("count", "third", snapshot_url=url_of(world), **settings).start()
    world.processed()
    assert third.log().count(BEGINS) == 2
    print(f"{len(feed.rows)} updates, {log} changelog records, {third.restored().total()} of them restored")
    assert third.restored().total() < log
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.last_stage
@pytest.mark.short_under("exactly_once_v2")
def test_instances_and_spark_build_on_each_others_snapshots(world: World, spark: SparkSession) -> None:
    with_input(world).feeds["in"].send(world.records(MANY, keys=MANY))
    app = maker(world).start()
    for _ in range(2):
        feed_until_it_says(world, app, DELTA, times=2)
        app.stop()
        for made in compact(world, spark).snapshots:
            assert made.new
            assert (made.base or 0) > 0
            assert made.manifest.key_prefix
        lose(app)
        app.start()
        for task in ("0_0", "0_1"):
            app.says(f"task {task}: store counts begins with")
    app.stop()
    begins_with_snapshots(world, app, lost=True)


@pytest.mark.last_stage
@pytest.mark.short_under("exactly_once_v2")
def test_a_spark_task_without_state_reads_only_what_came_after_the_snapshot(world: World, spark: SparkSession) -> None:
    world.input("in", 2, out=2).send(world.records(2_000, keys=200))
    assert on_spark(world, "count", spark).wait(END_S)
    compact(world, spark)
    more(world)
    assert on_spark(world, "count", spark).wait(END_S)
    shutil.rmtree(world.directory / WRITTEN)
    more(world)
    run = on_spark(world, "count", spark, snapshot_url=url_of(world))
    assert run.wait(END_S)
    assert (run.progress.records, run.progress.restored) == (500, 500)
    judge_all(world, shape_of("count"))
