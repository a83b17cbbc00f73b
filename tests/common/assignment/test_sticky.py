"""What the plain assignor promises, of groups in which each member does as it is told."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from milestones.common.assignment import handover
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Rules
from milestones.common.records import TaskId
from tests.common.assignment.cluster import Cluster, groups_of, member, plan_of

assign = partial(handover.assign, assignor="sticky")


def group_of(plan: TaskPlan, shapes: list[tuple[str, int]]) -> Cluster:
    """A member for each of these processes and capacities."""
    cluster = Cluster(plan, Rules(), "sticky")
    for index, (process, capacity) in enumerate(shapes):
        cluster.join(f"m{index}", process, capacity)
    return cluster


def settle(cluster: Cluster) -> int:
    """The rebalances until nothing changes; all tasks are balanced over all members then."""
    rounds = 0
    while cluster.rebalance():
        rounds += 1
        assert rounds < 6, "the assignment does not settle"
    for group in groups_of(cluster.plan):
        loads = [len(m.active & group) / m.capacity for m in cluster.members.values()]
        assert max(loads) - min(loads) <= 1, (group, loads)
    return rounds


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=5)
STATEFUL = st.sets(st.integers(0, 4))
SHAPES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 4)), min_size=1, max_size=7)


@settings(max_examples=150, deadline=None)
@given(SIZES, STATEFUL, SHAPES)
def test_a_new_group_gets_every_task_once_and_balanced(sizes, stateful, shapes):
    cluster = group_of(plan_of(sizes, stateful), shapes)
    assert not any(a.followup for a in cluster.ask()[1].values())
    assert settle(cluster) == 1


@settings(max_examples=250, deadline=None)
@given(SIZES, STATEFUL, SHAPES, st.data())
def test_any_ownership_settles_balanced_within_three_rounds_and_then_stays(sizes, stateful, shapes, data):
    cluster = group_of(plan_of(sizes, stateful), shapes)
    for task in cluster.plan.tasks:
        owner = data.draw(st.sampled_from([None, *cluster.members]))
        if owner is not None:
            cluster.members[owner].active |= {task}
    assert settle(cluster) <= 2


@settings(max_examples=150, deadline=None)
@given(SIZES, STATEFUL, SHAPES, st.tuples(st.sampled_from("abcde"), st.integers(1, 4)))
def test_a_newcomer_takes_its_share_with_few_other_moves(sizes, stateful, shapes, newcomer):
    cluster = group_of(plan_of(sizes, stateful), shapes)
    settle(cluster)
    before = {name: m.active for name, m in cluster.members.items()}
    cluster.join("new", *newcomer)
    assert settle(cluster) <= 2
    share = -(-len(cluster.plan.tasks) * newcomer[1] // sum(m.capacity for m in cluster.members.values()))
    moved = sum(len(before[name] - cluster.members[name].active) for name in before)
    assert moved <= share + len(sizes) * len(shapes)


def test_a_leaving_member_s_tasks_are_spread_and_no_other_moves():
    cluster = group_of(plan_of([12]), [(name, 1) for name in "abcd"])
    settle(cluster)
    cluster.drop("m1")
    result = cluster.ask()[1]
    assert all(result[name].active > m.active for name, m in cluster.members.items())
    assert not any(a.followup for a in result.values())


def test_fewer_tasks_than_threads_go_to_different_instances():
    members = {"a1": member("a"), "a2": member("a"), "b1": member("b"), "b2": member("b")}
    result = assign(members, plan_of([2]))
    assert len(result["a1"].active | result["a2"].active) == 1


def test_a_homeless_task_goes_to_who_has_its_state():
    members = {"a": member("a"), "b": member("b", lags={TaskId(0, 0): 5})}
    assert TaskId(0, 0) in assign(members, plan_of([2], {0}))["b"].active


def test_a_stateful_task_moves_at_once_although_its_state_does_not() -> None:
    cluster = group_of(plan_of([2], {0}), [("old", 1)])
    cluster.ends = dict.fromkeys(cluster.ends, 1_000_000)
    settle(cluster)
    cluster.pass_time()
    cluster.join("new", "new")
    cluster.rebalance()
    assert [len(m.active) for m in cluster.members.values()] == [1, 0]
    assert not any(m.warming for m in cluster.members.values())
    cluster.rebalance()
    assert [len(m.active) for m in cluster.members.values()] == [1, 1]


def test_standbys_are_given_out_too() -> None:
    plan = plan_of([4], {0})
    result = assign({"a": member("a"), "b": member("b")}, plan, Rules(num_standby_replicas=1))
    assert result["a"].standby == result["b"].active
    assert result["b"].standby == result["a"].active
