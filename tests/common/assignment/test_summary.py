"""The record of a rebalance that goes to the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from milestones.common.assignment.handover import assign
from milestones.common.assignment.lags import with_lags
from milestones.common.assignment.model import Assignment, AssignmentOrigin
from milestones.common.assignment.plan import TaskPlan
from milestones.common.assignment.rules import Members, Rules
from milestones.common.assignment.summary import names_of, short_name, summary
from milestones.common.records import TaskId
from tests.common.assignment.cluster import member, plan_of

A, B = TaskId(0, 0), TaskId(0, 1)
UUID = "8989a9d8-efe5-4304-b1bc-069494dbfde6"
RULES = Rules(acceptable_recovery_lag=10)


def told(members: Members, plan: TaskPlan, rules: Rules = RULES, **given: Assignment) -> dict[str, Any]:
    return (
        summary(members, given or assign(members, plan, rules), plan, rules, "words", AssignmentOrigin(7, "old", 1_000))
    )


def test_a_member_is_called_as_its_thread_is_in_the_logs() -> None:
    assert short_name(f"alpha-StreamThread-1-consumer-{UUID}") == "alpha-StreamThread-1"
    assert short_name("of another shape") == "of another shape"


def test_two_members_of_one_name_keep_their_ids() -> None:
    first, second = f"a-{UUID}", f"a-{UUID[::-1].replace('-', '0')[:8]}-0000-0000-0000-000000000000"
    assert names_of([first, second, f"b-{UUID}"]) == {first: first, second: second, f"b-{UUID}": "b"}


def test_a_move_is_withheld_until_its_owner_lets_go_and_then_released() -> None:
    plan = plan_of([2])
    members = {"old": member("p1", active=frozenset({A, B})), "new": member("p2")}
    first = told(members, plan)
    assert first["moves"] == [{"task": "0_1", "from": "old", "to": "new", "is": "withheld"}]
    assert (first["tasks"]["active"], first["tasks"]["withheld"], first["followup"]) == (1, 1, True)
    after = {
        "old": replace(members["old"], active=frozenset({A})), "new": replace(members["new"], promised=frozenset({B}))
    }  # fmt: skip
    second = told(after, plan)
    assert second["moves"] == [{"task": "0_1", "from": None, "to": "new", "is": "released"}]
    assert not second["followup"]


def test_tasks_that_nobody_had_are_told_as_unowned() -> None:
    moves = told({"old": member("p1")}, plan_of([1]))["moves"]
    assert moves == [{"task": "0_0", "from": None, "to": "old", "is": "unowned"}]


def test_warm_ups_and_what_lags_are_told_with_their_lags_what_is_caught_up_is_not() -> None:
    plan = plan_of([2], stateful=[0])
    old = member("p1", active=frozenset({A, B}))
    members = with_lags({"old": old, "new": member("p2", positions={B: 400})}, {A: 1_000, B: 1_000})
    (warm_up,) = told(members, plan)["warmups"]
    assert warm_up in [{"task": "0_0", "on": "new", "lag": 1_000}, {"task": "0_1", "on": "new", "lag": 600}]
    given = {"old": Assignment(active=frozenset({A, B})), "new": Assignment(standby=frozenset({A, B}))}
    assert told(members, plan, **given)["lagging"] == [
        {"task": "0_0", "on": "new", "lag": 1_000, "as": "standby"},
        {"task": "0_1", "on": "new", "lag": 600, "as": "standby"},
    ]


def test_reasons_are_grouped_the_rarest_first_and_name_a_few_members() -> None:
    members = {f"m{number}": member("p", reason="follows") for number in range(5)}
    members["m9"] = member("q", reason="starts")
    assert list(told(members, plan_of([1]))["why"].items()) == [
        ("starts", ["m9"]),
        ("follows", ["m0", "m1", "m2", "and 2 more"]),
    ]


def test_the_line_of_500_tasks_on_50_members_stays_below_20_kb() -> None:
    plan = plan_of([250, 250], stateful=[0])
    long = "a-name-of-an-application-11111111-2222-3333-4444-555555555555-StreamThread"
    members = {f"{long}-{number}-consumer-{UUID}": member(f"p{number}", reason="x" * 1_000) for number in range(50)}
    line = orjson.dumps(told(members, plan))
    assert len(line) < 20_000
    assert b"and 480 more" in line


def test_a_member_that_is_refused_is_named() -> None:
    plan = plan_of([1])
    members = {"old": member("p1", active=frozenset({A})), "new": member("p2", fingerprint="other")}
    assert told(members, plan)["refused"] == ["new"]
