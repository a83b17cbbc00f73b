"""The benchmark `moves`: what it reads out of logs and outputs."""

from __future__ import annotations

import pytest

from benchmarks.moves.timeline import (
    Given,
    Parts,
    assignments,
    gap_around,
    longest_gap,
    owners,
    parts,
    restored,
    settled,
    worst,
)
from benchmarks.moves.traffic import Values, state

LOG = """\
100.500 INFO milestones.stream_thread.rebalance: two-StreamThread-1: joins the group: the member starts
101.000 INFO milestones.stream_thread.rebalance: two-StreamThread-1: generation 2, tasks ['0_1', '0_2'], \
standbys ['0_3'], warm-ups ['0_4'], revoked []
101.100 INFO milestones.baseline.restoration: task 0_1 has restored 7 records
103.000 INFO milestones.stream_thread.rebalance: two-StreamThread-1: generation 3, tasks [], standbys [], warm-ups [], \
revoked ['0_1', '0_2']
104.000 INFO milestones.baseline.restoration: task 0_1 has restored 5 records
105.000 INFO milestones.baseline.restoration: task 0_1 has restored 6 records
"""


def given(generation: int, active: set[int], standby: set[int] | None = None, warmup: set[int] | None = None) -> Given:
    return Given(1.0, generation, frozenset(active), frozenset(standby or ()), frozenset(warmup or ()))


def test_a_log_says_what_an_instance_was_given_and_when() -> None:
    first, second = assignments(LOG)
    assert first == Given(101.0, 2, frozenset({1, 2}), frozenset({3}), frozenset({4}))
    assert (second.at, second.generation, second.active) == (103.0, 3, frozenset())


def test_what_a_task_has_restored_counts_from_a_time_on() -> None:
    assert restored(LOG, 0.0) == {1: 18}
    assert restored(LOG, 104.0) == {1: 11}
    assert restored(LOG, 106.0) == {}


def test_a_group_is_settled_once_all_have_their_share_in_one_generation() -> None:
    assert settled({"a": given(2, {0, 1}), "b": given(2, {2})}, 3, 0)
    assert not settled({"a": given(2, {0, 1}), "b": None}, 3, 0)
    assert not settled({"a": given(2, {0, 1}), "b": given(1, {2})}, 3, 0)
    assert not settled({"a": given(2, {0, 1, 2}), "b": given(2, set())}, 3, 0)
    assert not settled({"a": given(2, {0, 1}), "b": given(2, set(), warmup={2})}, 3, 0)
    assert not settled({"a": given(2, {0}), "b": given(2, {2})}, 3, 0)


def test_a_group_with_standbys_is_settled_once_each_task_has_them_as_far_as_there_are_instances() -> None:
    assert not settled({"a": given(2, {0}), "b": given(2, {1})}, 2, 1)
    assert settled({"a": given(2, {0}, {1}), "b": given(2, {1}, {0})}, 2, 1)
    assert settled({"a": given(2, {0, 1})}, 2, 1)


def test_owners_are_those_of_the_last_assignment() -> None:
    assert owners({"a": given(2, {0, 1}), "b": given(2, {2}), "c": None}) == {0: "a", 1: "a", 2: "b"}


def test_the_longest_gap_includes_the_edges() -> None:
    times = [1.0, 2.0, 2.5, 6.0]
    assert longest_gap(times, 0.0, 7.0) == 3.5
    assert longest_gap(times, 2.0, 3.0) == 0.5
    assert longest_gap(times, 2.6, 5.0) == pytest.approx(2.4)


def test_a_gap_lies_between_two_outputs() -> None:
    assert gap_around([1.0, 2.0, 9.0], 5.0) == (2.0, 9.0)
    with pytest.raises(ValueError, match="both sides"):
        gap_around([1.0, 2.0], 5.0)


def test_the_parts_of_a_killed_tasks_gap_are_the_gap() -> None:
    open_transaction = parts(last=0.0, assigned=10.0, ended=16.0, first=16.5)
    assert open_transaction == Parts(10.0, 6.0, 0.5)
    assert open_transaction.gap == 16.5
    assert parts(last=0.0, assigned=10.0, ended=3.0, first=10.5) == Parts(10.0, 0.0, 0.5)
    assert (worst([1.0, 2.0]), worst([])) == (2.0, 0.0)


def test_the_state_has_each_key_once_in_the_partition_that_it_names() -> None:
    rows = list(state("in", 60, Values(16, 1)))
    keys = [key for _, _, key, *_ in rows]
    assert len(set(keys)) == 60
    assert all(key is not None and key.startswith(b"%d-" % partition) for _, partition, key, *_ in rows)
    assert {len(value or b"") for _, _, _, value, *_ in rows} == {16}
