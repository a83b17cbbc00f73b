"""Random groups that change at random, and what docs/assignment.md promises of them.

Every rebalance of every example is checked by `check_round`; a failure prints the shrunk example, and how to get it
again (`@reproduce_failure`).
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milestones.common.assignment.model import SPARK
from milestones.common.assignment.rules import Rules
from tests.common.assignment.cluster import Cluster, check_balance, plan_of

ZONES = "abc"
SPARK_FROM = 100
MANY_ROUNDS = 2_000
MUCH = 1_000_000
"""Records that no process may lack of a task's state to be given the task."""


class Joins(NamedTuple):
    """`process`: those from `SPARK_FROM` on are runs on Spark."""

    process: int
    capacity: int


class Drops(NamedTuple):
    number: int


class Settles(NamedTuple):
    """Rebalances until nothing changes. `one_by_one`: of all warm-ups only one has caught up each time."""

    records: int
    one_by_one: bool


class Rebalances(NamedTuple):
    """A few rounds that lead nowhere yet; `blind`: the brokers don't tell where changelogs end."""

    rounds: int
    time_passes: bool
    blind: bool


class Restarts(NamedTuple):
    """An instance ends with all its members, and is there again at once with others, one for each capacity."""

    process: int
    capacities: list[int]


class Says(NamedTuple):
    """A member says another capacity at its next join: threads have come or gone, or its build is another one."""

    number: int
    capacity: int


def joins(processes: int) -> st.SearchStrategy[Joins]:
    return st.builds(Joins, st.integers(0, processes - 1), st.one_of(st.just(1), st.integers(1, 8)))


SPARK_JOINS = st.builds(Joins, st.integers(SPARK_FROM, SPARK_FROM + 1), st.integers(1, 8))
EVENTS = st.one_of(
    joins(8),
    st.builds(Drops, st.integers(0, 60)),
    st.builds(Settles, st.sampled_from([0, 7, 500]), st.booleans()),
    st.builds(Rebalances, st.integers(1, 3), st.booleans(), st.booleans()),
)
CAPACITIES = st.one_of(
    st.integers(1, 8).map(lambda capacity: [capacity]),  # one polling thread
    st.integers(1, 4).map(lambda threads: [1] * threads),  # stream threads, or an older build's
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
)
CHANGES = st.one_of(
    EVENTS,
    st.builds(Restarts, st.integers(0, 3), CAPACITIES),
    st.builds(Says, st.integers(0, 60), st.one_of(st.just(1), st.integers(1, 8))),
)
RULES = st.builds(
    Rules,
    acceptable_recovery_lag=st.sampled_from([0, 100, 10_000]),
    max_warmup_replicas=st.integers(1, 4),
    num_standby_replicas=st.integers(0, 2),
    rack_aware_assignment_tags=st.sampled_from([(), ("zone",), ("zone", "rack")]),
)
SMALL = st.lists(st.tuples(st.integers(1, 10), st.booleans()), min_size=1, max_size=5)
LARGE = st.lists(st.tuples(st.integers(1, 100), st.booleans()), min_size=1, max_size=5)
END = st.sampled_from([0, 60, 5_000, 1_000_000])


def cluster_of(subs: list[tuple[int, bool]], rules: Rules, end: int) -> Cluster:
    plan = plan_of([size for size, _ in subs], {number for number, (_, stateful) in enumerate(subs) if stateful})
    cluster = Cluster(plan, rules)
    cluster.ends = {task: end * (1 + task.partition % 2) for task in cluster.ends}
    return cluster


def join(cluster: Cluster, number: int | str, event: Joins) -> None:
    tags = {"zone": ZONES[event.process % 3], "rack": str(event.process % 2)}
    stage = SPARK if event.process >= SPARK_FROM else "baseline"
    cluster.join(f"m{number:0>2}", f"p{event.process:02}", event.capacity, tags, stage)


def restart(cluster: Cluster, number: int, process: int, capacities: list[int]) -> None:
    """A process that isn't there is a new one."""
    for name in [name for name, member in cluster.members.items() if member.process == f"p{process:02}"]:
        cluster.drop(name)
    for index, capacity in enumerate(capacities):
        join(cluster, f"{number:02}-{index}", Joins(process, capacity))


def play(cluster: Cluster, first: list[Joins], events: list[object]) -> None:
    for number, event in enumerate(first):
        join(cluster, number, event)
    for number, event in enumerate([*events, Settles(0, one_by_one=False)], start=len(first)):
        match event:
            case Joins():
                join(cluster, number, event)
            case Drops(index) if len(cluster.members) > 1:
                cluster.drop(sorted(cluster.members)[index % len(cluster.members)])
            case Restarts(process, capacities):
                restart(cluster, number, process, capacities)
            case Says(index, capacity):
                cluster.members[sorted(cluster.members)[index % len(cluster.members)]].capacity = capacity
            case Rebalances(rounds, time_passes, blind):
                cluster.lags_known = not blind
                for _ in range(rounds):
                    cluster.rebalance()
                    if time_passes:
                        cluster.pass_time()
                cluster.lags_known = True
            case Settles(records, one_by_one):
                settle(cluster, records, one_by_one=one_by_one)


def settle(cluster: Cluster, records: int, *, one_by_one: bool) -> None:
    """Rebalances until nothing changes, and then what must hold: the bound, the balance, and that it stays so."""
    warmed: set[object] = set()
    rounds = 0
    while cluster.rebalance() or any(m.warming for m in cluster.members.values()):
        rounds += 1
        assert rounds < MANY_ROUNDS, "it doesn't converge"
        warming = sorted({task for m in cluster.members.values() for task in m.warming})
        warmed |= {(task, m.process) for m in cluster.members.values() for task in m.warming}
        cluster.grow(records)
        cluster.pass_time(slow=warming[1:] if one_by_one else ())
    at_a_time = 1 if one_by_one else cluster.rules.max_warmup_replicas
    bound = 4 + 2 * -(-len(warmed) // at_a_time)
    assert rounds <= bound, f"{rounds} rebalances, {len(warmed)} warm-ups, {at_a_time} at a time"
    check_balance(cluster)
    before = cluster.table()
    cluster.grow(records)
    cluster.pass_time()
    assert not cluster.rebalance(), f"it was\n{before}\nand is\n{cluster.table()}"


@settings(max_examples=120, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL, RULES, END, st.lists(joins(4), min_size=1, max_size=6), st.lists(EVENTS, max_size=8))
def test_small_groups_keep_every_promise_through_joins_and_drops(subs, rules, end, first, events):
    play(cluster_of(subs, rules, end), first, events)


@settings(max_examples=120, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL, RULES, END, st.lists(st.one_of(joins(4), SPARK_JOINS), min_size=1, max_size=6),
       st.lists(st.one_of(EVENTS, SPARK_JOINS), max_size=8))  # fmt: skip
def test_groups_with_runs_on_spark_keep_every_promise_through_joins_and_drops(subs, rules, end, first, events):
    play(cluster_of(subs, rules, end), first, events)


@settings(max_examples=120, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL, RULES, END, st.lists(st.one_of(joins(4), SPARK_JOINS), min_size=1, max_size=6),
       st.lists(CHANGES, max_size=8))  # fmt: skip
def test_groups_of_stream_threads_and_of_instances_keep_every_promise_through_restarts_as_the_other_kind(
    subs, rules, end, first, events
):
    play(cluster_of(subs, rules, end), first, events)


@settings(max_examples=120, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["high_availability", "sticky"]), st.lists(st.integers(1, 10), min_size=1, max_size=5),
       st.lists(CAPACITIES, min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=6),
       st.booleans())  # fmt: skip
def test_instances_that_restart_as_one_member_and_as_several_of_the_same_capacity_keep_all_tasks(
    assignor, sizes, groups, restarts, begins_as_one
):
    """A rolling restart to one polling thread per instance, and back. No other process has their state."""
    cluster = cluster_of([(size, True) for size in sizes], Rules(), 0)
    cluster.assignor = assignor
    kinds = [([sum(capacities)], capacities) for capacities in groups]
    for process, kind in enumerate(kinds):
        restart(cluster, process, process, kind[not begins_as_one])
    settle(cluster, MUCH, one_by_one=False)
    home = cluster.home()
    for number, process in enumerate(restarts, start=len(groups)):
        at = process % len(groups)
        restart(cluster, number, at, kinds[at][(number + begins_as_one) % 2])
        settle(cluster, MUCH, one_by_one=False)
        assert cluster.home() == home


@settings(max_examples=12, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(LARGE, RULES, st.sampled_from([0, 1_000_000]), st.lists(joins(30), min_size=10, max_size=50),
       st.lists(EVENTS, max_size=2))  # fmt: skip
def test_large_groups_keep_every_promise_through_joins_and_drops(subs, rules, end, first, events):
    play(cluster_of(subs, rules, end), first, events)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(SMALL, st.integers(0, 2), st.lists(joins(4), min_size=1, max_size=6), st.lists(joins(6), max_size=3),
       st.lists(st.integers(0, 60), max_size=3))  # fmt: skip
def test_the_sticky_assignor_is_balanced_after_one_hand_over(subs, standbys, first, later, dropped):
    cluster = cluster_of(subs, Rules(num_standby_replicas=standbys), 1_000_000)
    cluster.assignor = "sticky"
    for number, event in enumerate(first):
        join(cluster, number, event)
    cluster.rebalance()
    cluster.pass_time()
    for number, event in enumerate(later, start=len(first)):
        join(cluster, number, event)
    for index in dropped[: len(cluster.members) - 1]:
        cluster.drop(sorted(cluster.members)[index % len(cluster.members)])
    cluster.rebalance()
    cluster.rebalance()
    check_balance(cluster)
    assert not cluster.rebalance()


@pytest.mark.parametrize("assignor", ["high_availability", "sticky"])
def test_an_assignor_gives_the_same_answer_for_members_in_any_order(assignor):
    cluster = cluster_of([(7, True), (5, False)], Rules(num_standby_replicas=1), 1_000_000)
    cluster.assignor = assignor
    for number in range(5):
        join(cluster, number, Joins(number % 3, 1 + number % 2))
    straight = cluster.ask()[1]
    cluster.members = dict(reversed(cluster.members.items()))
    assert cluster.ask()[1] == straight
