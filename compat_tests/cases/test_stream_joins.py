"""Joins of two streams over restarts: a record meets those of before, also several of one key and time.

Kafka Streams numbers a store's values of one key and time anew in each process, so that one of them may take the place
of another. Here the numbers go on where the committed offsets say.
"""

from __future__ import annotations

import shutil

import pytest

from compat_tests.harness.feed import FIRST_TIMESTAMP, Feed, Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

LIVES = 4


def inputs(world: World) -> Feed:
    """The left side's."""
    world.input("other", 1)
    return world.input("in", 1, out=1)


def all_are_joined(world: World, *, crashed: bool) -> None:
    """One record of the right side meets each of the left one's."""
    world.feeds["other"].send([Sent(b"k", b"r", FIRST_TIMESTAMP)])
    end_and_judge(world, crashed=crashed)
    assert [row.value for row in world.cluster.read(world.topic("out"))] == [b"l%d+r" % life for life in range(LIVES)]


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("disk", ["kept", "empty"])
def test_records_of_one_key_and_time_are_all_joined_over_restarts(world: World, disk: str) -> None:
    left = inputs(world)
    app = world.instance("pairs").start()
    for life in range(LIVES):
        left.send([Sent(b"k", b"l%d" % life, FIRST_TIMESTAMP)])
        world.finish(app)
        if disk == "empty":
            shutil.rmtree(app.state_dir)
        app.start()
    all_are_joined(world, crashed=False)


def test_a_kill_lets_no_record_take_the_place_of_another(exact_world: World) -> None:
    world = exact_world
    left = inputs(world)
    app = world.instance("pairs")
    for life in range(LIVES):
        app.start(fault="commit.after-commit:kill:1")
        left.send([Sent(b"k", b"l%d" % life, FIRST_TIMESTAMP)])
        app.dies(-9)
    app.start()
    all_are_joined(world, crashed=True)
