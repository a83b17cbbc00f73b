"""Rolling restarts from stage to stage, under load, and groups in which stages are mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.harness.followers import METRICS
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World, stop_all
from milestones.flags import STAGES

BASELINE = "baseline"


def the_one_before(stage: str) -> str:
    """Its neighbour on the way from the baseline; the baseline's and any other set of flags' is the baseline."""
    names = [one.name for one in STAGES]
    return names[max(0, names.index(stage) - 1)] if stage in names else BASELINE


def the_baseline(_: str) -> str:
    return BASELINE


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("kills", [False, pytest.param(True, marks=pytest.mark.full)], ids=["stops", "kills"])
@pytest.mark.parametrize("other", [the_one_before, pytest.param(the_baseline, marks=pytest.mark.full)])
def test_a_live_group_goes_from_another_stage_to_this_one_and_back_and_the_output_stays_exact(
    world: World, other: Callable[[str], str], kills: bool
) -> None:
    start = other(world.stage)
    if start == world.stage:
        pytest.skip("it is there")
    if other is the_baseline and start == the_one_before(world.stage):
        pytest.skip("it is the one before")
    world.create(out=4)
    feed = world.input("in", 6)
    settings: dict[str, Any] = {
        "num_stream_threads": 2, "num_processing_threads": 3, "num_standby_replicas": 1, **METRICS
    }  # fmt: skip
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
        one.start(milestones=start)
    world.group_is(*group)
    for stage in (world.stage, start):
        for one in group:
            bounce(one, stage)
    world.processed([BY_VALUE_REPARTITION])
    stop_all(group)
    judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION], crashed=kills)
