"""An assignor of the user's that is wrong."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

BAD_CONFIG = 2
REMEMBERING = "compat_tests.apps.assignors:remembering"


@pytest.mark.full
def test_an_assignor_that_gives_tasks_to_members_that_an_instance_had_once_ends_the_leader_and_loses_nothing(
    world: World,
) -> None:
    """The instance was one of the baseline with a member for each thread."""
    feed = world.input("in", 8, out=4)
    leader, other = (world.instance("count", name, task_assignor=REMEMBERING) for name in ("leader", "other"))
    leader.start(num_stream_threads=1)
    world.group_is(leader)
    other.start(milestones="baseline", num_stream_threads=2)
    world.group_is(leader, other)
    feed.send(world.records(300, keys=100))
    world.processed()
    other.stop()
    feed.send(world.records(300, keys=100))
    other.start(num_stream_threads=1)
    leader.dies(BAD_CONFIG, "task_assignor", "which is no member of the group now")
    leader.start(task_assignor="high_availability", num_stream_threads=1)
    world.group_is(leader, other)
    end_and_judge(world, COUNT, crashed=True)
