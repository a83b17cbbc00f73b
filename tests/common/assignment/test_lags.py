from __future__ import annotations

from milestones.common.assignment.lags import with_lags
from milestones.common.records import TaskId
from tests.common.assignment.cluster import member

A, B = TaskId(0, 0), TaskId(0, 1)


def test_a_position_becomes_the_lag_behind_the_end() -> None:
    members = with_lags({"a": member(positions={A: 70})}, {A: 100})
    assert members["a"].lags == {A: 30}


def test_a_process_that_has_nothing_lags_by_everything_and_says_so_once() -> None:
    members = with_lags({"a1": member("a"), "a2": member("a"), "b": member("b", positions={A: 1})}, {A: 100})
    assert [m.lags for m in members.values()] == [{A: 100}, {}, {A: 99}]


def test_who_runs_a_task_is_not_said_to_lag_but_who_still_restores_it_is() -> None:
    running = member("a", active=frozenset({A}))
    restoring = member("b", active=frozenset({B}), positions={B: 10})
    members = with_lags({"a": running, "b": restoring}, {A: 100, B: 100})
    assert (members["a"].lags, members["b"].lags) == ({B: 100}, {A: 100, B: 90})


def test_a_position_beyond_the_end_is_of_another_topic_and_counts_for_nothing() -> None:
    assert with_lags({"a": member(positions={A: 101})}, {A: 100})["a"].lags == {A: 100}


def test_what_a_member_knows_of_its_lag_counts_when_it_is_less() -> None:
    members = {"a": member("a", positions={A: 50}, lags={A: 2}), "b": member("b", positions={A: 50}, lags={A: 99})}
    assert [m.lags for m in with_lags(members, {A: 100}).values()] == [{A: 2}, {A: 50}]


def test_without_ends_nothing_is_known() -> None:
    assert with_lags({"a": member(positions={A: 70})}, {})["a"].lags == {}
