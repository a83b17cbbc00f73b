"""What is late stays late, whatever ends a process, and whichever one continues: a record that comes after its window
has closed goes where late records go, and no window, session, join or time to live begins anew."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import chain, cycle
from typing import Any

import pytest

from compat_tests.apps.times import expected, late_records, random_records
from compat_tests.harness.feed import Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.other_stages import the_baseline, the_one_before
from compat_tests.harness.world import World

ONE_THREAD: dict[str, Any] = {"num_stream_threads": 1}


def stopped(world: World) -> Iterator[Instance]:
    """The same instance, which is stopped and started."""
    app = world.instance("times", **ONE_THREAD)
    while True:
        yield app.start()
        app.stop()


def killed(world: World) -> Iterator[Instance]:
    """The same instance, by `kill -9`."""
    app = world.instance("times", **ONE_THREAD)
    while True:
        yield app.start()
        app.kill()
        app.dies(-9)


def moved(world: World) -> Iterator[Instance]:
    """Instances in turn, each of which finds on its disk what it had, or nothing."""
    for app in cycle([world.instance("times", name, **ONE_THREAD) for name in ("one", "two", "three")]):
        yield app.start()
        app.stop()


def promoted(world: World) -> Iterator[Instance]:
    """The standby of the one that was killed."""
    active, standby = (
        world.instance("times", name, num_standby_replicas=1, **ONE_THREAD) for name in ("one", "two")
    )
    active.start()
    while True:
        standby.start()
        world.group_is(active, standby)
        yield active
        active.kill()
        active.dies(-9)
        world.group_is(standby)
        active, standby = standby, active


def from_stage_to_stage(world: World) -> Iterator[Instance]:
    """The same instance at other stages."""
    stages = [world.stage, the_one_before(world.stage), the_baseline(world.stage)]
    app = world.instance("times", **ONE_THREAD)
    for stage in cycle(stages):
        yield app.start(milestones=stage)
        app.stop()


def from_snapshots(world: World) -> Iterator[Instance]:
    """The same instance, whose disk is lost each time, from the snapshots that it has made."""
    if not world.has("state_manager"):
        pytest.skip("instances make snapshots from m6 on")
    live: dict[str, Any] = {"snapshot_url": f"file://{world.directory}/snapshots", "snapshot_interval_ms": 1_000}
    app = world.instance("times", **live, **ONE_THREAD).start()
    yield app
    app.says("a snapshot of store")
    while True:
        app.stop()
        shutil.rmtree(app.state_dir)
        yield app.start()
        app.says("begins with the")


ENDS = {
    stopped: pytest.mark.full,
    killed: pytest.mark.short_under("exactly_once_v2"),
    moved: pytest.mark.full,
    promoted: pytest.mark.short_under("at_least_once"),
    from_stage_to_stage: pytest.mark.full,
    from_snapshots: pytest.mark.short_under("exactly_once_v2"),
}
EVERY_END = [pytest.param(end, marks=mark, id=end.__name__.replace("_", " ")) for end, mark in ENDS.items()]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("goes_on", EVERY_END)
def test_what_is_late_is_late_for_whoever_goes_on(
    world: World, goes_on: Callable[[World], Iterator[Instance]]
) -> None:
    feed = world.input("in", 1, out=1)
    now = int(time.time() * 1_000) - 60_000
    rounds = [*late_records(now), *([one] for one in random_records(world.rng, now + 10_000, 2))]
    owners = goes_on(world)
    for some in rounds:
        next(owners)
        feed.send(some)
        world.processed()
        world.must_live()
    found = [(row.key, row.value, row.timestamp) for row in world.cluster.read(world.topic("out"))]
    assert found == expected([*chain.from_iterable(rounds)])


LEAP_MS = 600_000
"""By which time moves on: beyond the retention of all windows."""


@pytest.mark.parametrize("disk", ["kept", pytest.param("empty", marks=pytest.mark.full)])
def test_a_crash_behind_a_leap_of_time_costs_no_window(plain_world: World, disk: str) -> None:
    """At least once: the changelogs have what the killed process did, the committed offsets haven't, and the records
    between them are those of windows that have gone by the time of the changelogs."""
    world, now = plain_world, int(time.time() * 1_000) - 2 * LEAP_MS
    feed = world.input("in", 1, out=1)
    app = world.instance("times", **ONE_THREAD).start()
    feed.send([Sent(b"a", b"%d" % number, now) for number in range(2)])
    world.finish(app)
    app.start(fault="commit.after-flush:kill:1")
    feed.send([*(Sent(b"a", b"%d" % number, now) for number in (3, 4)), Sent(b"b", b"later", now + LEAP_MS)])
    app.dies(-9)
    if disk == "empty":
        shutil.rmtree(app.state_dir)
    app.start()
    world.processed()
    world.must_live()
    results = [(str(row.key), row.value) for row in world.cluster.read(world.topic("out"))]
    for window in ("tumbling", "sliding", "session"):
        values = [value for key, value in results if f"{window} a@" in key and value not in (None, b"None")]
        assert int(values[-1] or 0) >= 4, (window, values)
