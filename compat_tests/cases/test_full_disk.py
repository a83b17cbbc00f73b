"""A full disk under the state directory: the application stops and says so; with room again nothing is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.small_disks import ROOM_FOR_A_WHILE, STATE_UNUSABLE, SmallDisk
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

pytestmark = pytest.mark.full

WAITS = "state_manager"
"""The flag from which on tasks wait for room, unless the client is to stop."""


def send_until(world: World, condition: Callable[[], bool], what: str) -> None:
    """Inputs with long keys, so that state grows, until `condition` holds."""

    def sent() -> object:
        records = [one._replace(key=(one.key or b"") * 20) for one in world.records(500, keys=100_000)]
        world.feeds["in"].send(records)
        return condition() or NotYet(f"after {len(world.feeds['in'].rows)} inputs")

    world.wait(sent, what)


def counting(world: World, disk: SmallDisk) -> Instance:
    """An application with some input, which isn't started yet."""
    world.input("in", 2, out=2).send(world.records(1_000, keys=100))
    stops = {"state_full": "stop"} if world.has(WAITS) else {}
    app = world.instance("count", state_dir=str(disk.path / "state"), **stops)
    app.state_dir = disk.path / "state"
    return app


def assert_says_full(app: Instance, disk: SmallDisk) -> None:
    """The last error names what happened and where."""
    errors = [line for line in app.log().splitlines() if " ERROR " in line]
    assert errors, app.log_tail()
    assert "disk full" in errors[-1], app.log_tail()
    assert str(disk.path) in errors[-1], app.log_tail()


def test_a_disk_that_fills_up_stops_the_application_and_with_room_it_goes_on(world: World, disk: SmallDisk) -> None:
    app = counting(world, disk)
    app.start()
    world.processed()
    disk.leave(ROOM_FOR_A_WHILE)
    world.instances.remove(app)  # it may die
    send_until(world, lambda: not app.running, "the disk is full")
    world.instances.append(app)
    app.dies(STATE_UNUSABLE)
    assert_says_full(app, disk)
    disk.make_room()
    app.start()
    end_and_judge(world, COUNT, crashed=True)


def test_a_disk_that_is_full_from_the_start_is_named_and_nothing_is_processed(
    plain_world: World, disk: SmallDisk
) -> None:
    world = plain_world
    app = counting(world, disk)
    disk.leave(0)
    app.start()
    app.dies(STATE_UNUSABLE)
    assert_says_full(app, disk)
    assert not world.committed()
    disk.make_room()
    app.start()
    end_and_judge(world, COUNT)
