"""More and fewer instances and threads, under load: a task runs where its state is, until the state is elsewhere."""

from __future__ import annotations

from collections import Counter

import pytest

from compat_tests.cases.arrivals import Gaps
from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT, COUNT_BY_VALUE
from compat_tests.cases.steps import bounce, loading
from compat_tests.harness.followers import METRICS, caught_up
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.group import at_most_warming
from milestones.testing import NotYet, TopicTail

PARTITIONS = 6
STATE = 30_000
KEYS = 20_000
LAG = 100
MOST_S = 5.0
"""Of a gap, on a loaded machine: `benchmarks/moves` measures what it is on a calm one."""


class Load:
    """A little input for each partition, again and again, and a look at what comes out."""

    def __init__(self, world: World, tail: TopicTail) -> None:
        self._world, self.gaps = world, Gaps(tail)

    def __call__(self) -> bool:
        """Never true, so that it may stand before a condition."""
        self._world.feeds["in"].send(self._world.records(60, KEYS))
        self.gaps.look()
        return False


def is_spread(world: World, load: Load, group: list[Instance]) -> None:
    """Load until each of the group has its share of the tasks, and nobody warms up any more."""

    def spread() -> object:
        load()
        generation = world.history().generations[-1]
        shares = Counter[str]()  # one that was just stopped may still be a member
        for member in generation.members:
            shares[member.client_id.partition("-")[0]] += len(member.active)
        warming = [task for member in generation.members for task in member.warmup]
        return (shares == share and not warming) or NotYet(f"{shares}, {warming=}")

    share = Counter({one.name: PARTITIONS // len(group) for one in group})
    world.wait(spread, f"{[one.name for one in group]} share the tasks")


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("most", [2, pytest.param(1, marks=pytest.mark.full)])
def test_on_the_way_from_one_to_three_instances_tasks_move_to_where_their_state_is_already(
    world: World, most: int
) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    settings = {"acceptable_recovery_lag": LAG, "max_warmup_replicas": most, "num_stream_threads": 1}
    one, two, three = (world.instance("count", name, **settings) for name in ("one", "two", "three"))
    feed.send(world.records(STATE, KEYS))
    one.start()
    world.processed()
    with world.outputs() as tail:
        load = Load(world, tail)
        world.wait(lambda: load() or len(load.gaps.longest) == PARTITIONS, "outputs flow")
        load.gaps.forget()
        two.start()
        three.start()
        is_spread(world, load, [one, two, three])
        longest = load.gaps.of(world.cluster.places([feed.topic]))
    world.processed()
    restored = two.restored() + three.restored()
    past = world.history().generations
    warmed = {task for generation in past for member in generation.members for task in member.warmup}
    print(f"longest gap {longest:.2f} s; restored at the take-over {dict(restored)}, of {STATE // PARTITIONS} each")
    assert len(warmed) >= 4, f"only {warmed} were warmed up"
    assert max(restored.values(), default=0) < STATE // PARTITIONS // 4
    assert longest < MOST_S
    end_and_judge(world, COUNT)
    hold(at_most_warming(past, most))


@pytest.mark.short_under("exactly_once_v2")
def test_on_the_way_from_three_instances_to_one_standbys_take_over(world: World) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    settings = {"num_standby_replicas": 1, "num_stream_threads": 1, "acceptable_recovery_lag": LAG, **METRICS}
    group = [world.instance("count", name, **settings).start() for name in ("one", "two", "three")]
    feed.send(world.records(STATE, KEYS))
    world.processed()
    tasks = [f"0_{number}" for number in range(PARTITIONS)]
    with world.outputs() as tail:
        load = Load(world, tail)
        world.wait(lambda: load() or len(load.gaps.longest) == PARTITIONS, "outputs flow")
        while len(group) > 1:
            world.wait(lambda: load() or True, "a little input")
            known, before = len(feed.rows), [one.restored() for one in group[1:]]
            caught_up(world, tasks, *group)
            load.gaps.forget()
            group.pop(0).stop()
            is_spread(world, load, group)
            longest = load.gaps.of(world.cluster.places([feed.topic]))
            restored = sum(((one.restored() - was) for one, was in zip(group, before, strict=True)), Counter[str]())
            print(f"{len(group)} left: longest gap {longest:.2f} s, restored {dict(restored)}")
            assert longest < MOST_S
            assert max(restored.values(), default=0) <= LAG + len(feed.rows) - known
    end_and_judge(world, COUNT)


@pytest.mark.full
def test_other_numbers_of_threads_by_a_rolling_restart(world: World) -> None:
    world.input("in", PARTITIONS, out=4)
    group = [world.instance("count-by-value", name, num_standby_replicas=1) for name in ("one", "two", "three")]
    load = loading(world, 500, KEYS, 200)
    for one in group:
        one.start(num_stream_threads=1)
    world.group_is(*group)
    for numbers in ((3, 1, 2), (1, 4, 1)):
        for one, threads in zip(group, numbers, strict=True):
            bounce(world, one, load, num_stream_threads=threads)
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])
