"""The long one: a count behind a repartition, three instances that are started, stopped and killed all the while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import TIDY, await_outputs
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

RECORDS, EVENTS, KILLS = 100_000, 20, 10


@pytest.mark.timeout(900)
def test_a_hundred_thousand_records_ten_kills_three_instances(plain_world: World) -> None:
    """Output exact, changelog folded equals the store, committed offset equals the end."""
    endure(replace(plain_world, guarantee="exactly_once_v2"))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_same_at_least_once_loses_nothing(plain_world: World) -> None:
    endure(plain_world)


def endure(world: World, **settings: Any) -> None:
    """`settings`: of the instances, besides the usual ones."""
    feed = world.input("in", 6, out=4)
    group = [world.instance("count-by-value", name, **TIDY, **settings) for name in "abc"]
    events = ["kill"] * KILLS + ["stop"] * (EVENTS - KILLS)
    world.rng.shuffle(events)
    for one in group:
        one.start()
    with world.outputs() as outputs:
        for event in events:
            sent, batch = len(feed.rows), RECORDS // EVENTS
            feed.send(world.groups(batch, 5_000, 1_000))
            await_outputs(world, outputs, sent + world.rng.randrange(batch * 9 // 10))
            disturb(world, group, event)
    for one in group:
        if not one.running:
            one.start()
    assert len(feed.rows) == RECORDS
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, repartitions=[BY_VALUE_REPARTITION])


def disturb(world: World, group: list[Instance], event: str) -> None:
    """Kill or stop one that runs; start one that doesn't, so that one or two are left and it is never the same one."""
    victim = world.rng.choice([one for one in group if one.running])
    absent = [one for one in group if not one.running]
    if event == "kill":
        victim.kill()
    else:
        victim.stop()
    for one in absent or [victim]:
        one.start()
