"""Clean stops and starts: nothing is repeated under either guarantee, and a group shares its work."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT, COUNT_BY_VALUE
from compat_tests.cases.steps import await_outputs, loading
from compat_tests.harness.judge import end_and_judge, judge
from compat_tests.harness.world import World, stop_all
from compat_tests.oracles.findings import hold
from compat_tests.oracles.group import all_owned, at_most_generations


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("cache", [0, pytest.param(10_000_000, marks=pytest.mark.full)], ids=["uncached", "cached"])
def test_a_restart_goes_on_where_it_stopped(world: World, cache: int) -> None:
    feed = world.input("in", 3, out=3)
    app = world.instance("count", statestore_cache_max_bytes=cache)
    for _ in range(3):
        feed.send(world.records(1_000, keys=100))
        app.start()
        world.finish(app)
    judge(world, replace(COUNT, thinned=world.thins(cache)))
    hold(at_most_generations(world.history().generations, 3))


def test_a_stop_in_the_middle_of_the_work_loses_and_repeats_nothing(world: World) -> None:
    feed = world.input("in", 3, out=3)
    feed.send(world.records(20_000, keys=100))
    app = world.instance("count")
    with world.outputs() as outputs:
        for part in (0.1, 0.4):
            app.start()
            await_outputs(world, outputs, int(part * len(feed.rows)))
            app.stop()
    app.start()
    end_and_judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
def test_a_restart_on_an_empty_disk_restores_the_state(world: World) -> None:
    feed = world.input("in", 3, out=3)
    feed.send(world.records(3_000, keys=300))
    app = world.instance("count").start()
    world.finish(app)
    shutil.rmtree(app.state_dir)
    feed.send(world.records(500, keys=300))
    app.start()
    end_and_judge(world, COUNT)


def test_instances_come_and_go_and_the_output_stays_exact(world: World) -> None:
    feed = world.input("in", 6, out=4)
    a, b, c = (world.instance("count-by-value", name, num_stream_threads=1) for name in "abc")
    more = loading(world, 1_500, 300, 200)
    more()
    a.start()
    more()
    b.start()
    world.group_is(a, b)
    more()
    c.start()
    world.group_is(a, b, c)
    more()
    a.stop()
    world.group_is(b, c)
    more()
    b.stop()
    a.start()
    world.group_is(a, c)
    more()
    world.processed([BY_VALUE_REPARTITION])
    hold(all_owned(world.history().generations, world.cluster.places([feed.topic])))
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])


def test_two_instances_share_the_tasks_evenly(plain_world: World) -> None:
    world = plain_world
    world.input("in", 6, out=4).send(world.records(500, keys=300))
    one, two = world.instance("copy", "one").start(), world.instance("copy", "two").start()
    world.group_is(one, two)
    shares = sorted(len(assigned) for assigned in world.members().values())
    stop_all([one, two])
    assert shares == [3, 3]
