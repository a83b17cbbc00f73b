"""Static members: whoever is back within the session time-out was never away, for the group."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import Not

RESTARTS = {"short": 6, "full": 30, "soak": 30}


@pytest.mark.short_under("exactly_once_v2")
def test_rolling_restarts_of_a_static_group_under_load_are_no_rebalance(
    world: World, request: pytest.FixtureRequest
) -> None:
    feed = world.input("in", 6, out=4)
    group = [
        world.instance("count", name, group_instance_id=name, num_stream_threads=2, session_timeout_ms=25_000).start()
        for name in ("one", "two", "three")
    ]

    even = [2] * 3 if world.has("polling_thread") else [1] * 6

    def one_each() -> object:
        shares = sorted(map(len, world.members().values()))
        return shares == even or Not(str(shares))

    def load() -> None:
        feed.send(world.records(300, keys=100))

    load()
    world.wait(one_each, "each of six threads has one partition")
    world.all_run()
    before = world.history().generations[-1]
    restarts = RESTARTS[request.config.option.selection]
    for number in range(restarts):
        one = group[number % len(group)]
        load()
        one.stop()
        load()
        one.start()
        load()
        world.all_run()
    world.processed()
    after = world.history().generations[-1]
    print(f"{restarts} restarts: generation {before.number} before, {after.number} after")
    assert (after.number, len(after.members)) == (before.number, len(even))
    end_and_judge(world, COUNT)
