"""From a placement to assignments, and what is said to whom can't have any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.assignment.handover import assign
from milestones.common.assignment.model import SPARK
from milestones.common.assignment.rules import Placement
from milestones.common.errors import ConfigError, MembershipError
from milestones.common.records import TaskId
from tests.common.assignment.cluster import member, plan_of

A, B, C = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)


def both(*tasks: TaskId) -> frozenset[TaskId]:
    return frozenset(tasks)


def placing(**kinds: dict[str, Any]) -> Any:
    return lambda members, plan, rules: Placement(**{"active": {}, **kinds})


def test_a_task_moves_in_two_steps() -> None:
    plan = plan_of([2])
    members = {"old": member("p1", active=both(A, B)), "new": member("p2")}
    first = assign(members, plan, assignor=placing(active={"old": {A}, "new": {B}}))
    assert (first["old"].active, first["new"].active) == ({A}, frozenset())
    assert first["new"].promised == {B}
    assert all(a.followup for a in first.values())
    released = {**members, "old": replace(members["old"], active=both(A))}
    second = assign(released, plan, assignor=placing(active={"old": {A}, "new": {B}}))
    assert second["new"].active == {B}
    assert not any(a.followup or a.promised for a in second.values())


def test_a_promised_task_goes_to_whom_it_was_promised() -> None:
    plan = plan_of([2])
    members = {"a": member("a"), "b": member("b", promised=both(A), generation=2)}
    assert assign(members, plan)["b"].active == {A}


def test_who_is_to_get_a_task_keeps_its_standby_open_until_then() -> None:
    plan = plan_of([1], {0})
    members = {"old": member("p1", active=both(A)), "new": member("p2", standby=both(A), lags={A: 0})}
    result = assign(members, plan, assignor=placing(active={"new": {A}}, standby={"old": {A}}))
    assert (result["new"].active, result["new"].standby) == (frozenset(), {A})
    assert (result["old"].active, result["old"].standby) == (frozenset(), {A})


def test_a_run_on_spark_is_given_no_copies_whatever_an_assignor_says() -> None:
    members = {"a": member("p1", active=both(A, B)), "s": member("p2", stage=SPARK)}
    placement = placing(active={"a": {A, B}}, standby={"s": {A}}, warmup={"s": {B}})
    result = assign(members, plan_of([2], {0}), assignor=placement)
    assert (result["s"].standby, result["s"].warmup) == (frozenset(), frozenset())


def test_of_two_claims_the_later_generation_holds() -> None:
    members = {
        "a": member("a", active=both(A), generation=7),
        "b": member("b", active=both(A), generation=3),
    }
    result = assign(members, plan_of([1]))
    assert result["a"].active == {A}
    assert result["b"].active == frozenset()


def test_a_task_that_is_no_longer_planned_is_taken_away_with_a_followup() -> None:
    result = assign({"a": member("a", active=both(TaskId(3, 0)))}, plan_of([1]))
    assert result["a"].active == {A}
    assert result["a"].followup


def test_what_is_wrong_with_the_topics_is_told_to_every_member() -> None:
    plan = replace(plan_of([1]), missing_topics=frozenset({"lines"}))
    result = assign({"a": member("a"), "b": member("b")}, plan)
    assert all("lines" in (a.error or "") and not a.active for a in result.values())


def test_a_newcomer_with_another_topology_is_refused_and_the_others_go_on() -> None:
    plan = plan_of([2])
    members = {"old": member("a", active=frozenset(plan.tasks)), "new": member("b", fingerprint="other")}
    result = assign(members, plan)
    assert result["old"].active == frozenset(plan.tasks)
    assert result["old"].error is None
    assert "topology" in (result["new"].error or "")


def test_a_leader_with_another_topology_than_the_running_members_must_leave() -> None:
    members = {"old": member("a", active=both(A)), "new": member("b", fingerprint="other")}
    with pytest.raises(MembershipError, match="another application_id"):
        assign(members, plan_of([2], fingerprint="other"))


@pytest.mark.parametrize(
    ("placement", "why"),
    [
        ({"active": {"a": {A}}}, "left 0_1 without an active member"),
        ({"active": {"a": {A, B}, "b": {B}}}, "made 0_1 active on two members, a and b"),
        ({"active": {"a": {A, B, C}}}, "gave 0_2 to member a, which is no task"),
        ({"active": {"z": {A, B}}}, "gave active tasks to 'z', which is no member"),
        ({"active": {"a": {A, B}}, "standby": {"b": {A}}}, "twice on the process p1"),
        ({"active": {"a": {A, B}}, "standby": {"c": {A}}, "warmup": {"c": {A}}}, "twice on the process p2"),
        ({"active": {"a": {A, B}}, "standby": {"c": {B}}}, "0_1 a standby on member c.*no changelog"),
    ],
)
def test_a_placement_that_cannot_be_is_an_error_that_names_the_assignor_and_the_rule(
    placement: dict[str, Any], why: str
) -> None:
    def my_assignor(members: Any, plan: Any, rules: Any) -> Placement:
        return Placement(**placement)

    plan = plan_of([2], {0})
    plan = replace(plan, changelogs={A: plan.changelogs[A]})
    members = {"a": member("p1"), "b": member("p1"), "c": member("p2")}
    with pytest.raises(ConfigError, match=why) as raised:
        assign(members, plan, assignor=my_assignor)
    assert raised.value.key == "task_assignor"
    assert "my_assignor" in str(raised.value.value)


def test_an_assignor_that_still_splits_an_instance_s_tasks_over_its_former_members_is_told_who_there_is() -> None:
    """The instance has started again with one member. A member that runs a task keeps it: nothing is assigned."""

    class Remembering:
        def __init__(self) -> None:
            self.names: set[str] = set()

        def __call__(self, members: Any, plan: Any, rules: Any) -> Placement:
            self.names |= members.keys()
            return Placement(active={name: {task} for name, task in zip(sorted(self.names), (A, B, C), strict=True)})

    assignor, plan = Remembering(), plan_of([3])
    assign({"a-1": member("a"), "a-2": member("a"), "b-1": member("b")}, plan, assignor=assignor)
    left = {"a-1": member("a"), "b-1": member("b", active=frozenset({C}))}
    with pytest.raises(ConfigError, match=r"'a-2', which is no member of the group now \(a-1, b-1 are\).*correct"):
        assign(left, plan, assignor=assignor)


EVER = ["a-1", "a-2", "b-1", "b-2"]
"""Members of two instances, of which some are left."""


@given(st.sets(st.sampled_from(EVER), min_size=1), st.lists(st.sampled_from(EVER), min_size=1, max_size=6))
def test_what_an_assignor_says_is_followed_where_all_its_members_are_there_and_else_refused_as_a_whole(
    left: set[str], homes: list[str]
) -> None:
    plan = plan_of([len(homes)])
    at_home = dict(zip(sorted(plan.tasks), homes, strict=True))
    placed = {name: {task for task, home in at_home.items() if home == name} for name in EVER}
    placement = placing(active={name: tasks for name, tasks in placed.items() if tasks})
    members = {name: member(name[0]) for name in left}
    gone = sorted(set(homes) - left)
    if gone:
        with pytest.raises(ConfigError, match=f"'{gone[0]}', which is no member of the group now"):
            assign(members, plan, assignor=placement)
    else:
        result = assign(members, plan, assignor=placement)
        assert {name: result[name].active for name in left} == {name: placed[name] for name in left}


@pytest.mark.parametrize("answer", [None, {"a": {A}}])
def test_an_assignor_that_returns_no_placement_is_told_so(answer: Any) -> None:
    with pytest.raises(ConfigError, match="not a Placement"):
        assign({"a": member()}, plan_of([1]), assignor=lambda *_: answer)


def test_an_assignor_that_raises_is_named_with_what_it_raised() -> None:
    class Mine:
        def __call__(self, members: Any, plan: Any, rules: Any) -> Placement:
            raise KeyError("zone")

    with pytest.raises(ConfigError, match=r"Mine.*KeyError: 'zone'"):
        assign({"a": member()}, plan_of([1]), assignor=Mine())
