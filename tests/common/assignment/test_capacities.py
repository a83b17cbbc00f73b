"""Groups in which members say another capacity than before: more threads, or a newer version of this package.

Earlier versions said 1 for each stream thread, however many processing threads there were.
"""

from __future__ import annotations

import pytest

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
