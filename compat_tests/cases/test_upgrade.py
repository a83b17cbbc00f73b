"""Rolling restarts through versions of the group's protocol, under load: to the newest, and back."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import bounce, loading
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

OLD, NEW = "milestones-v1", "milestones-v2"


@pytest.mark.short_under("exactly_once_v2")
def test_a_live_group_goes_to_the_newest_protocol_and_back_and_the_output_stays_exact(world: World) -> None:
    world.input("in", 6, out=4)
    group = [world.instance("count-by-value", name, num_stream_threads=2) for name in ("one", "two", "three")]
    load = loading(world, 500, 300, 200)

    def speaks(protocol: str) -> object:
        spoken = world.history().generations[-1].protocol
        return spoken == protocol or NotYet(spoken)

    def protocols() -> list[str]:
        return [generation.protocol for generation in world.history().generations]

    load()
    for one in group:
        one.start(upgrade_from="v1")
    world.group_is(*group)
    assert set(protocols()) == {OLD}
    for number, one in enumerate(group):
        assert protocols()[-1] == OLD, f"{number} instances know the newest protocol, the others don't"
        bounce(world, one, load)
    world.wait(lambda: speaks(NEW), "the group speaks the newest protocol")
    for one in group:
        bounce(world, one, load, upgrade_from="v1")
        world.wait(lambda: speaks(OLD), "the group speaks the old protocol")
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])
