"""What the plain assignor promises, of groups in which each member does as it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from milestones.common.assignment import handover
from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Rules
from milestones.common.records import TaskId
from tests.common.assignment.cluster import member, plan_of

Members = Mapping[str, Subscription]


def assign(members: Members, plan: TaskPlan) -> dict[str, Assignment]:
    return handover.assign(members, plan, Rules(), "sticky")


def release(members: Members, result: Mapping[str, Assignment]) -> dict[str, Subscription]:
    """Every member does as told, and joins again with exactly what it then owns."""
    return {
        name: replace(m, active=result[name].active, promised=result[name].promised, generation=m.generation + 1)
        for name, m in members.items()
    }


def settle(members: Members, plan: TaskPlan, rounds: int = 6) -> tuple[dict[str, Subscription], int]:
    for number in range(rounds):
        result = assign(members, plan)
        if not any(a.followup for a in result.values()) and all(result[n].active == members[n].active for n in members):
            return dict(members), number
        members = release(members, result)
    raise AssertionError("the assignment does not settle")


def check_invariants(members: Members, plan: TaskPlan, result: Mapping[str, Assignment]) -> None:
    given_out = Counter(task for a in result.values() for task in a.active)
    assert all(count == 1 for count in given_out.values())
    owned = {task: name for name, m in members.items() for task in m.active}
    for task in plan.tasks:
        if task not in given_out:
            assert task in owned
            assert all(a.followup for a in result.values())
    for name, a in result.items():
        assert all(owned.get(task, name) == name for task in a.active)
        assert a.partitions == {task: plan.tasks[task] for task in a.active}


def check_balance(members: Members, plan: TaskPlan) -> None:
    groups = [set(plan.tasks), set(plan.stateful), set(plan.tasks) - plan.stateful]
    groups += [{t for t in plan.tasks if t.subtopology == s} for s in {t.subtopology for t in plan.tasks}]
    for group in groups:
        loads = [len(m.active & group) / m.capacity for m in members.values()]
        assert max(loads) - min(loads) <= 1, (group, loads)


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=5)
STATEFUL = st.sets(st.integers(0, 4))
SHAPES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 4)), min_size=1, max_size=7)


def group_of(shapes: list[tuple[str, int]]) -> dict[str, Subscription]:
    return {f"m{index}": member(process, capacity) for index, (process, capacity) in enumerate(shapes)}


@settings(max_examples=150, deadline=None)
@given(SIZES, STATEFUL, SHAPES)
def test_a_new_group_gets_every_task_once_and_balanced(sizes, stateful, shapes):
    plan, members = plan_of(sizes, stateful), group_of(shapes)
    result = assign(members, plan)
    check_invariants(members, plan, result)
    assert not any(a.followup for a in result.values())
    check_balance(release(members, result), plan)


@settings(max_examples=250, deadline=None)
@given(SIZES, STATEFUL, SHAPES, st.data())
def test_any_ownership_settles_balanced_within_three_rounds_and_then_stays(sizes, stateful, shapes, data):
    plan, members = plan_of(sizes, stateful), group_of(shapes)
    for task in plan.tasks:
        owner = data.draw(st.sampled_from([None, *members]))
        if owner is not None:
            members[owner] = replace(members[owner], active=members[owner].active | {task})
    check_invariants(members, plan, assign(members, plan))
    settled, rounds = settle(members, plan)
    assert rounds <= 2
    check_balance(settled, plan)
    again = assign(settled, plan)
    assert {name: a.active for name, a in again.items()} == {name: m.active for name, m in settled.items()}


@settings(max_examples=150, deadline=None)
@given(SIZES, STATEFUL, SHAPES, st.tuples(st.sampled_from("abcde"), st.integers(1, 4)))
def test_a_newcomer_takes_its_share_with_few_other_moves(sizes, stateful, shapes, newcomer):
    plan = plan_of(sizes, stateful)
    before, _ = settle(group_of(shapes), plan)
    after, rounds = settle({**before, "new": member(*newcomer)}, plan)
    assert rounds <= 2
    check_balance(after, plan)
    share = -(-len(plan.tasks) * newcomer[1] // sum(m.capacity for m in after.values()))
    moved = sum(len(before[name].active - after[name].active) for name in before)
    assert moved <= share + len(sizes) * len(shapes)


def test_a_leaving_member_s_tasks_are_spread_and_no_other_moves():
    plan = plan_of([12])
    members, _ = settle({name: member(name) for name in "abcd"}, plan)
    left = {name: m for name, m in members.items() if name != "b"}
    result = assign(left, plan)
    assert all(result[name].active > left[name].active for name in left)
    assert not any(a.followup for a in result.values())


def test_a_task_moves_in_two_steps():
    plan = plan_of([2])
    both = frozenset(plan.tasks)
    members = {"old": member("p1", active=both), "new": member("p2")}
    first = assign(members, plan)
    assert first["new"].active == frozenset()
    assert first["new"].followup
    assert first["old"].followup
    second = assign(release(members, first), plan)
    assert [len(second[name].active) for name in ("old", "new")] == [1, 1]
    assert not second["old"].followup


def test_the_threads_of_one_instance_share_its_tasks_evenly_and_instances_get_by_threads():
    plan = plan_of([9], {0})
    members = {"a1": member("a"), "a2": member("a"), "b": member("b", capacity=1)}
    assert sorted(len(a.active) for a in assign(members, plan).values()) == [3, 3, 3]
    uneven = assign({"a1": member("a"), "a2": member("a"), "b": member("b", capacity=4)}, plan_of([12]))
    assert {name: len(a.active) for name, a in uneven.items()} == {"a1": 2, "a2": 2, "b": 8}


def test_fewer_tasks_than_threads_go_to_different_instances():
    members = {"a1": member("a"), "a2": member("a"), "b1": member("b"), "b2": member("b")}
    result = assign(members, plan_of([2]))
    assert len(result["a1"].active | result["a2"].active) == 1


def test_a_homeless_task_goes_to_who_has_its_state():
    members = {"a": member("a"), "b": member("b", lags={TaskId(0, 0): 5})}
    assert TaskId(0, 0) in assign(members, plan_of([2], {0}))["b"].active


def test_a_stateful_task_moves_at_once_although_its_state_does_not() -> None:
    plan = plan_of([2], {0})
    members = {"old": member("p1", active=frozenset(plan.tasks)), "new": member("p2")}
    first = assign(members, plan)
    assert [len(first[name].active) for name in ("old", "new")] == [1, 0]
    assert not any(a.warmup for a in first.values())
    assert len(assign(release(members, first), plan)["new"].active) == 1


def test_standbys_are_given_out_too() -> None:
    plan = plan_of([4], {0})
    result = handover.assign({"a": member("a"), "b": member("b")}, plan, Rules(num_standby_replicas=1), "sticky")
    assert result["a"].standby == result["b"].active
    assert result["b"].standby == result["a"].active
