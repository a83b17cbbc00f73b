"""`kill -9`: whatever was going on, exactly once stays exact, and at least once loses nothing."""

from __future__ import annotations

import shutil

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT, COUNT_BY_VALUE, SLOTS
from compat_tests.cases.steps import await_outputs, feed_until_it_dies, nothing_read_twice, offsets_on_disk
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.stores import identities
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import kept


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("step", ["restore.batch", pytest.param("restore.complete", marks=pytest.mark.full)])
def test_a_crash_during_restoration_is_survived(world: World, step: str) -> None:
    feed = world.input("in", 2, out=2)
    feed.send(world.records(4_000, keys=3_000))
    app = world.instance("count", group_instance_id="one").start()
    world.finish(app)
    shutil.rmtree(app.state_dir)
    feed.send(world.records(200, keys=3_000))
    app.start(fault=f"{step}:kill:2")
    app.dies(-9)
    app.start()
    end_and_judge(world, COUNT, crashed=True)


WAIT_MS = 1_000


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("idle", [False, True], ids=["at work", "idle"])
def test_a_crash_costs_the_commits_that_waited_for_the_disk_and_after_a_while_none(world: World, idle: bool) -> None:
    feed = world.input("in", 2, out=2)
    app = world.instance("count", group_instance_id="one", state_write_interval_ms=WAIT_MS if idle else 600_000).start()
    for _ in range(5):
        feed.send(world.records(500, keys=300))
        world.processed()
    if idle:
        world.let_pass(2 * WAIT_MS / 1000, "nothing comes")
    app.kill()
    had, stores = offsets_on_disk(world, app), identities(app.state_dir, world.application_id)
    app.start()
    world.processed()
    nothing_read_twice(world, had, app)
    restored = app.restored()
    assert bool(sum(restored.values())) is not idle, f"the disk had {had}, restored {restored}"
    end_and_judge(world, COUNT, crashed=True)
    hold(kept(stores, identities(app.state_dir, world.application_id)))


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("rebalance.before-join:2", marks=pytest.mark.full),
        pytest.param("rebalance.assigned:2", marks=pytest.mark.full),
        "rebalance.revoked:1",
    ],
)
def test_a_crash_during_a_rebalance_is_survived(world: World, step: str) -> None:
    feed = world.input("in", 4, out=4)
    feed.send(world.records(2_000, keys=300))
    first, second = world.instance("count", "first"), world.instance("count", "second")
    point, nth = step.split(":")
    first.start(fault=f"{point}:kill:{nth}")
    world.group_is(first)
    second.start()
    feed_until_it_dies(world, first)
    first.start()
    world.group_is(first, second)
    feed.send(world.records(500, keys=300))
    end_and_judge(world, COUNT, crashed=True)


def test_crashes_at_random_moments_of_a_live_group_are_survived(world: World) -> None:
    feed = world.input("in", 4, out=3)
    group = [world.instance("count-by-value", name).start() for name in ("one", "two")]
    with world.outputs() as outputs:
        for _ in range(3):
            sent = len(feed.rows)
            feed.send(world.groups(3_000, 300, 300))
            await_outputs(world, outputs, sent + world.rng.randrange(2_000))
            victim = world.rng.choice(group)
            victim.kill()
            victim.start()
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, repartitions=[BY_VALUE_REPARTITION])


@pytest.mark.short_under("exactly_once_v2")
def test_scans_of_a_store_give_their_rows_on_both_sides_of_a_crash(world: World) -> None:
    feed = world.input("in", 3, out=3)
    app = world.instance("slots")
    with world.outputs() as outputs:
        for _ in range(2):
            sent = len(feed.rows)
            feed.send(world.records(2_000, keys=60, value=lambda _: f"v{world.rng.randrange(20)}"))
            app.start()
            await_outputs(world, outputs, sent + world.rng.randrange(500, 1_500))
            app.kill()
    app.start()
    end_and_judge(world, SLOTS, crashed=True)


def test_a_killed_instance_is_replaced_by_the_others(world: World) -> None:
    feed = world.input("in", 4, out=3)
    feed.send(world.records(1_000, keys=300))
    survivor, victim = world.instance("count", "survivor").start(), world.instance("count", "victim").start()
    world.group_is(survivor, victim)
    victim.kill()
    feed.send(world.records(1_000, keys=300))
    world.group_is(survivor)
    end_and_judge(world, COUNT, crashed=True)
