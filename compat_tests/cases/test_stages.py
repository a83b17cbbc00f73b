"""Rolling restarts from stage to stage, under load, and groups in which stages are mixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import bounce, loading
from compat_tests.harness.followers import METRICS
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.other_stages import EARLIER
from compat_tests.harness.world import World


def stall(world: World, one: Instance) -> None:
    """Longer than its session and its transaction, then a clean stop."""
    one.pause()
    world.gives_up(one)
    one.resume()
    one.stop()


ENDS: dict[str, Callable[[World, Instance], None]] = {
    "stops": lambda world, one: one.stop(),
    "kills": lambda world, one: one.kill(),
    "stalls": stall,
}
"""How an instance ends before it is started as another stage."""


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("end", ["stops", *(pytest.param(one, marks=pytest.mark.full) for one in ("kills", "stalls"))])
@pytest.mark.parametrize("other", [EARLIER[0], *(pytest.param(one, marks=pytest.mark.full) for one in EARLIER[1:])])
@pytest.mark.parametrize("members", ["dynamic", pytest.param("static", marks=pytest.mark.full)])
def test_a_live_group_goes_from_another_stage_to_this_one_and_back_and_the_output_stays_exact(
    world: World, members: str, other: Callable[[str], str], end: str
) -> None:
    start = other(world.stage)
    if start in (world.stage, *(nearer(world.stage) for nearer in EARLIER[: EARLIER.index(other)])):
        pytest.skip("it is there, or a nearer one")
    world.input("in", 6, out=4)
    settings: dict[str, Any] = {
        "num_stream_threads": 2, "num_processing_threads": 3, "num_standby_replicas": 1, **METRICS
    }  # fmt: skip
    ids = {name: name if members == "static" else None for name in ("one", "two", "three")}
    group = [world.instance("count-by-value", name, group_instance_id=id, **settings) for name, id in ids.items()]
    load = loading(world, 500, 300, 200)
    load()
    for one in group:
        one.start(milestones=start)
    world.group_is(*group)
    for stage in (world.stage, start):
        for one in group:
            bounce(world, one, load, partial(ENDS[end], world), milestones=stage)
    end_and_judge(
        world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION], crashed=end != "stops", zombies=end == "stalls"
    )
