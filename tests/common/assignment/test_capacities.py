"""Groups in which members say another capacity than before: more threads, or a newer version of this package.

Earlier versions said 1 for each stream thread, however many processing threads there were.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milestones.common.assignment.balance import QuotaDealer
from milestones.common.assignment.rules import Rules
from tests.common.assignment.cluster import Cluster, plan_of, settle

TASKS, MUCH = 48, 1_000_000
ASSIGNORS = ["high_availability", "sticky"]


def group(assignor: str, *threads: int) -> Cluster:
    """Three instances whose members say these capacities; everything has settled."""
    cluster = Cluster(plan_of([TASKS], {0}), Rules(max_warmup_replicas=4), assignor)
    cluster.ends = dict.fromkeys(cluster.ends, MUCH)
    for process in "abc":
        for number, capacity in enumerate(threads):
            cluster.join(f"{process}{number}", process, capacity)
    settle(cluster)
    return cluster


def restarted(cluster: Cluster, process: str, capacity: int) -> None:
    """Its members say `capacity` when they join again, with what they have."""
    for member in cluster.members.values():
        if member.process == process:
            member.capacity = capacity
    settle(cluster)


def sizes(cluster: Cluster) -> list[int]:
    return [sum(len(m.active) for m in cluster.members.values() if m.process == process) for process in "abc"]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_an_upgrade_of_instances_with_as_many_processing_threads_as_stream_threads_moves_nothing(assignor: str) -> None:
    cluster = group(assignor, 1, 1)
    before = cluster.home()
    for process in "abc":
        restarted(cluster, process, 1)
        assert cluster.home() == before


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_while_such_with_more_processing_threads_are_upgraded_each_has_its_share_by_what_it_says(assignor: str) -> None:
    """This is what an upgrade from a version that said 1 costs once: state moves, to the new ones and back."""
    cluster = group(assignor, 1)
    seen = [sizes(cluster)]
    for process in "abc":
        restarted(cluster, process, 8)
        seen.append(sizes(cluster))
    assert seen[0] == seen[3] == [16, 16, 16]
    assert seen[1][0] >= 36
    assert min(seen[2][:2]) >= 20


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_group_of_equal_instances_is_given_the_same_whatever_their_capacity(assignor: str) -> None:
    assert sizes(group(assignor, 1)) == sizes(group(assignor, 8)) == sizes(group(assignor, 4, 4)) == [16, 16, 16]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_thread_that_comes_to_an_instance_with_more_processing_threads_moves_nothing_between_instances(
    assignor: str,
) -> None:
    cluster = group(assignor, 8)
    before = cluster.home()
    for process in "abc":
        cluster.members[f"{process}0"].capacity = 4
        cluster.join(f"{process}1", process, 4)
        settle(cluster)
        assert cluster.home() == before
    assert sorted(len(m.active) for m in cluster.members.values()) == [8] * 6


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize(("size", "capacities", "shares"), [
    (14, {"a1": 1, "b1": 1, "c1": 1, "d1": 4}, [2, 2, 2, 8]),
    (9, {"a1": 1, "a2": 1, "b1": 1}, [3, 3, 3]),
    (12, {"a1": 1, "a2": 1, "b1": 4}, [2, 2, 8]),
])  # fmt: skip
def test_the_threads_of_one_instance_share_its_tasks_evenly_and_instances_get_by_threads(
    assignor: str, size: int, capacities: dict[str, int], shares: list[int]
) -> None:
    cluster = Cluster(plan_of([size], {0}), Rules(), assignor)
    for name, capacity in capacities.items():
        cluster.join(name, name[0], capacity)
    settle(cluster)
    assert [len(m.active) for m in cluster.members.values()] == shares


def started_with(cluster: Cluster, process: str, *threads: int) -> None:
    """The instance has ended with all its members, and joins with others; what it ran lies on its disk."""
    for name in [name for name, member in cluster.members.items() if member.process == process]:
        cluster.drop(name)
    for number, capacity in enumerate(threads):
        cluster.join(f"{process}{number}", process, capacity)
    settle(cluster)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_instances_whose_members_become_one_and_several_again_keep_their_tasks(assignor: str) -> None:
    """A rolling restart to one polling thread per instance, and back."""
    cluster = group(assignor, 1, 1, 1, 1)
    before = cluster.home()
    for threads in ([4], [1, 1, 1, 1]):
        for process in "abc":
            started_with(cluster, process, *threads)
            assert cluster.home() == before


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_one_member_that_says_1_for_many_threads_has_the_share_of_one_thread_until_it_says_so(assignor: str) -> None:
    cluster = group(assignor, 8)
    started_with(cluster, "a", 1)
    share = sizes(cluster)
    assert 1 <= share[0] <= 3
    assert abs(share[1] - share[2]) <= 1
    started_with(cluster, "a", 8)
    assert sizes(cluster) == [16, 16, 16]


def of_subtopology(cluster: Cluster, number: int) -> list[int]:
    """How many tasks of a sub-topology each process has."""
    of_process = dict.fromkeys(sorted(m.process for m in cluster.members.values()), 0)
    for member in cluster.members.values():
        of_process[member.process] += sum(task.subtopology == number for task in member.active)
    return list(of_process.values())


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("capacity", [2, 4, 8])
def test_a_rolling_restart_gathers_no_subtopology_on_one_of_equal_instances(assignor: str, capacity: int) -> None:
    """However many threads each has: as many as there are partitions would do for all."""
    cluster = Cluster(plan_of([4, 4, 4], {0, 2}), Rules(), assignor)
    for process in "abc":
        cluster.join(f"{process}0", process, capacity)
    settle(cluster)
    for process in "abcabc":
        cluster.drop(f"{process}0")
        settle(cluster)
        assert [max(of_subtopology(cluster, number)) for number in range(3)] == [2, 2, 2]
        cluster.join(f"{process}0", process, capacity)
        settle(cluster)
        assert [sorted(of_subtopology(cluster, number)) for number in range(3)] == [[1, 1, 2]] * 3


@given(
    st.integers(1, 8), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(2, 5), st.randoms()
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_shares_of_equal_holders_differ_by_at_most_one_in_each_deal_and_in_all(
    capacity: int, counts: list[int], holders: int, chance: random.Random
) -> None:
    names = [f"h{number}" for number in range(holders)]
    dealer = QuotaDealer(dict.fromkeys(names, capacity))
    total = dict.fromkeys(names, 0)
    for count in counts:
        held = Counter(chance.choice(names) for _ in range(count))
        shares = dealer.deal(count, held)
        assert sum(shares.values()) == count
        assert max(shares.values()) - min(shares.values()) <= 1
        total = {name: total[name] + share for name, share in shares.items()}
    assert max(total.values()) - min(total.values()) <= 1


@given(st.integers(1, 8), st.integers(1, 12), st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_who_holds_more_keeps_the_remainder(capacity: int, count: int, holders: int) -> None:
    names = [f"h{number}" for number in range(holders)]
    held = QuotaDealer(dict.fromkeys(names, capacity)).deal(count, {names[-1]: count})
    assert held[names[-1]] == max(held.values())
    assert QuotaDealer(dict.fromkeys(names, capacity)).deal(count, held) == held
