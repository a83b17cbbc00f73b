"""`auto_offset_reset="latest"`: where the application began is where it goes on, whatever happens to it."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

SECOND_COMMIT = "commit.before-flush:kill:2"
"""The first one says where the only partition begins, the second one has the first records."""


@pytest.mark.short_under("at_least_once")
def test_a_crash_in_the_first_commit_of_records_skips_none_of_what_came_since(world: World) -> None:
    feed = world.input("in", 1, out=1)
    app = world.instance("count", auto_offset_reset="latest").start(fault=SECOND_COMMIT)
    world.processed()
    feed.send(world.records(200, keys=50))
    app.dies(-9)
    feed.send(world.records(200, keys=50))
    app.start()
    end_and_judge(world, COUNT, crashed=True)
