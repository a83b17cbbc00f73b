"""Rolling restarts from stage to stage, under load, and groups in which stages are mixed."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.harness.followers import METRICS
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World, stop_all

BASELINE = "baseline"


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("kills", [False, pytest.param(True, marks=pytest.mark.full)], ids=["stops", "kills"])
def test_a_live_group_goes_from_the_baseline_to_this_stage_and_back_and_the_output_stays_exact(
    world: World, kills: bool
) -> None:
    if world.stage == BASELINE:
        pytest.skip("it is there")
    world.create(out=4)
    feed = world.input("in", 6)
    settings = {"num_stream_threads": 2, "num_standby_replicas": 1, **METRICS}
    group = [world.instance("count-by-value", name, **settings) for name in ("one", "two", "three")]

    def load() -> None:
        feed.send(world.records(500, keys=300, value=lambda _: f"g{world.rng.randrange(200)}"))

    def bounce(one: Instance, stage: str) -> None:
        load()
        one.kill() if kills else one.stop()
        load()
        one.start(milestones=stage)
        world.group_is(*group)
        load()

    load()
    for one in group:
        one.start(milestones=BASELINE)
    world.group_is(*group)
    for stage in (world.stage, BASELINE):
        for one in group:
            bounce(one, stage)
    world.processed([BY_VALUE_REPARTITION])
    stop_all(group)
    judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION], crashed=kills)
