"""The benchmark `moves`: what it reads out of logs and outputs."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from benchmarks.cli import main
from benchmarks.errors import BenchmarkError
from benchmarks.moves.timeline import (
    Given,
    Parts,
    assignments,
    gap_around,
    joined,
    longest_gap,
    owners,
    parts,
    restored,
    settled,
    share,
    worst,
)
from benchmarks.moves.traffic import Values, state
from benchmarks.moves.upgrade import HEADINGS, Restart, check, ghosts, split, table

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
    assert first == Given(101.0, 2, frozenset({1, 2}), frozenset({3}), frozenset({4}), "two-StreamThread-1")
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


def joins(thread: str, at: float = 100.0) -> str:
    return f"{at:.3f} INFO milestones.stream_thread.rebalance: {thread}: joins the group: the member starts\n"


def told(thread: str, generation: int, *tasks: int, at: float = 101.0) -> str:
    names = [f"0_{task}" for task in tasks]
    rest = "standbys [], warm-ups [], revoked []"
    return (
        f"{at:.3f} INFO milestones.stream_thread.rebalance: {thread}: generation {generation}, tasks {names}, {rest}\n"
    )


def test_an_instances_share_is_that_of_all_its_threads_once_they_know_the_same_generation() -> None:
    first, second = "one-StreamThread-1", "one-StreamThread-2"
    both = joins(first) + joins(second)
    assert share("") is None
    assert share(both + told(first, 2, 0)) is None, "a thread hasn't been given anything yet"
    assert share(both + told(first, 3, 0) + told(second, 2, 1)) is None, "a thread doesn't know the newest generation"
    found = share(both + told(first, 2, 0, 1) + told(first, 3, 0) + told(second, 3, 1, at=102.0))
    assert found == Given(102.0, 3, frozenset({0, 1}), frozenset(), frozenset())
    assert share(joins("one-PollingThread") + told("one-PollingThread", 4, 0, 1, 2)) == Given(
        101.0, 4, frozenset({0, 1, 2}), frozenset(), frozenset()
    )


def test_a_thread_has_joined_when_it_did_so_first() -> None:
    assert joined(joins("one-StreamThread-1", 5.0) + joins("one-StreamThread-1", 9.0)) == {"one-StreamThread-1": 5.0}


THREADS = {"one": ["one-PollingThread"], "two": ["two-StreamThread-1", "two-StreamThread-2"]}


def test_a_ghost_is_a_member_that_no_thread_is_and_one_of_two_members_with_one_name() -> None:
    members = [f"{name}-consumer" for names in THREADS.values() for name in names]
    assert ghosts(members, THREADS) == 0
    assert ghosts(members[1:], THREADS) == 0
    assert ghosts([*members, "one-StreamThread-2-consumer", "two-StreamThread-1-consumer"], THREADS) == 2


def test_a_static_ghost_is_an_id_that_no_thread_has_any_more() -> None:
    assert ghosts(["one-1", "two-1", "two-2"], THREADS) == 0
    assert ghosts(["one-1", "one-2", "one-3", "two-1", "two-2", "three-1"], THREADS) == 3


def test_what_a_task_restores_above_its_tail_is_no_tail() -> None:
    assert split([{0: 90, 1: 250}, {0: 100}], tail=100.4) == (290, 150)
    assert split([], tail=10) == (0, 0)


def test_missing_outputs_are_an_error_always_and_too_many_under_exactly_once() -> None:
    check(10, 10, "exactly_once_v2")
    check(11, 10, "at_least_once")
    for outputs, guarantee in ((9, "at_least_once"), (11, "exactly_once_v2")):
        with pytest.raises(BenchmarkError, match=f"{outputs} outputs of 10 inputs"):
            check(outputs, 10, guarantee)


def test_the_table_of_an_upgrade_has_a_row_for_each_restart_and_a_heading_for_each_figure() -> None:
    restart = Restart("m3", "one", "at_least_once", 2.5, 4, 0.1, 2.9, 0.2, 2, 0, 0, 0, 17, 0)
    out = StringIO()
    Console(file=out, width=200).print(table("moves", [restart]))
    (row,) = [line.split() for line in out.getvalue().splitlines() if "at_least_once" in line]
    assert len(row) == len(HEADINGS)


@pytest.mark.parametrize("stages", ["m2", "m2,m3,m3", "m2,m99"])
def test_an_upgrade_needs_two_stages_that_there_are(stages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "moves", "--upgrade", stages])
    assert main() in (1, 2)
