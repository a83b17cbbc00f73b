"""Faults planted in committed offsets, the group's history and what a process leaves; known values of formulas."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from compat_tests.harness.judge import judge_history
from compat_tests.oracles.findings import Finding, Findings, PromiseBrokenError, hold, kinds
from compat_tests.oracles.group import (
    Generation,
    History,
    Member,
    all_owned,
    at_most_generations,
    at_most_warming,
    copies_apart,
    history,
    no_ghosts,
    one_owner,
)
from compat_tests.oracles.leftovers import Census, keeps_memory, nothing_left
from compat_tests.oracles.offsets import at_the_end, exactly_the_end, never_back
from compat_tests.oracles.placement import java_hash
from compat_tests.oracles.rows import Place, Row
from compat_tests.planted.samples import inputs

ROWS = inputs()
P0, P1 = Place("in", 0), Place("in", 1)
ENDS = {place: sum(row.place == place for row in ROWS) for place in (P0, P1)}


def test_offsets_at_the_end_pass_with_and_without_control_records() -> None:
    assert at_the_end(ENDS, ENDS, ROWS) == []
    assert at_the_end(ENDS, {place: end + 3 for place, end in ENDS.items()}, ROWS) == []
    assert exactly_the_end(ENDS, ENDS) == []
    assert at_the_end({}, {Place("empty", 0): 0}, []) == []


@pytest.mark.parametrize(
    ("offset", "kind"), [(ENDS[P0] - 1, "unprocessed"), (ENDS[P0] + 1, "beyond-end"), (None, "not-committed")]
)
def test_an_offset_that_is_not_the_end_is_found(offset: int | None, kind: str) -> None:
    committed = {**ENDS, P0: offset}
    assert kinds(at_the_end(committed, ENDS, ROWS)) == {kind}
    assert kinds(exactly_the_end(committed, ENDS)) == {kind}


def test_a_commit_that_goes_back_is_found() -> None:
    assert never_back([(P0, 1), (P1, 9), (P0, 1), (P0, 3)]) == []
    assert kinds(never_back([(P0, 1), (P1, 9), (P0, 3), (P0, 2)])) == {"went-back"}


def member(id: str, assigned: set[Place], owned: set[Place] | None = None) -> Member:
    return Member(id, id, frozenset(assigned), frozenset(owned or ()))


def test_a_move_in_two_steps_passes() -> None:
    steps = [
        Generation(1, (member("a", {P0, P1}),)),
        Generation(2, (member("a", {P0}, {P0, P1}), member("b", set()))),
        Generation(3, (member("a", {P0}, {P0}), member("b", {P1}))),
    ]
    assert one_owner(steps) == []
    assert all_owned(steps, ENDS) == []


@pytest.mark.parametrize(
    ("generations", "check", "kind"),
    [
        ([Generation(1, (member("a", {P0}), member("b", {P0})))], one_owner, "two-owners"),
        ([Generation(2, (member("a", {P0}, {P0, P1}), member("b", {P1})))], one_owner, "too-early"),
        ([Generation(1, (member("a", {P0}),))], partial(all_owned, places=ENDS), "unassigned"),
        ([], partial(all_owned, places=ENDS), "unassigned"),
    ],
    ids=["two owners", "a move in one step", "a partition that nobody has", "no generation"],
)
def test_a_wrong_assignment_is_found(
    generations: list[Generation], check: Callable[[list[Generation]], Findings], kind: str
) -> None:
    assert kinds(check(generations)) == {kind}


ALONE = Generation(1, (Member("a", "a", frozenset({P0}), frozenset()),))


def world_of(history: History) -> Any:
    feeds = {"in": SimpleNamespace(rows=inputs())}
    return SimpleNamespace(application_id="app", feeds=feeds, history=lambda: history)


def test_a_group_with_generations_and_commits_passes() -> None:
    assert judge_history(world_of(History([ALONE], [(P0, 3)]))) == []


def test_a_group_of_which_the_broker_knows_nothing_is_found() -> None:
    assert kinds(judge_history(world_of(History([], [(P0, 3)])))) == {"no-history"}
    assert kinds(judge_history(world_of(History([ALONE], [])))) == {"no-history"}


def test_what_the_history_says_is_judged() -> None:
    assert kinds(judge_history(world_of(History([ALONE], [(P0, 3), (P0, 2)])))) == {"went-back"}


def test_a_rebalance_that_nothing_accounts_for_is_found() -> None:
    steps = [Generation(number, (member("a", {P0}),)) for number in (1, 1, 2, 3)]
    assert at_most_generations(steps, 3) == []
    assert kinds(at_most_generations(steps, 2)) == {"rebalanced"}


def test_a_member_whose_thread_is_gone_is_found() -> None:
    both = Generation(1, (member("one-StreamThread-1", {P0}), member("one-StreamThread-2", set())))
    other = Generation(1, (member("one-StreamThread-1", {P0}), member("oneself-StreamThread-1", set())))
    assert no_ghosts([both], "one", 2) == no_ghosts([other], "one", 1) == []
    assert kinds(no_ghosts([both], "one", 1)) == {"ghost"}


def test_two_copies_of_a_task_in_one_process_are_found() -> None:
    active = replace(member("a-1", {P0}), process="a", active=frozenset({"0_0"}))
    standby = replace(member("b-1", set()), process="b", standby=frozenset({"0_0"}))
    assert copies_apart([Generation(1, (active, standby))]) == []
    beside = replace(member("a-2", set()), process="a")
    for bad in (replace(beside, standby=frozenset({"0_0"})), replace(beside, warmup=frozenset({"0_0"}))):
        assert kinds(copies_apart([Generation(1, (active, bad))])) == {"together"}


def test_more_warm_ups_than_are_allowed_are_found() -> None:
    owner = replace(member("c", set()), process="c", active=frozenset({"0_0", "0_1", "0_2"}))
    one = replace(member("a", set()), process="a", warmup=frozenset({"0_0", "0_1"}))
    other = replace(member("b", set()), process="b", warmup=frozenset({"0_2"}))
    assert at_most_warming([Generation(1, (owner, one, other))], 3) == []
    assert kinds(at_most_warming([Generation(1, (owner, one, other))], 2)) == {"warming"}


def test_of_warm_ups_only_those_beyond_the_standbys_count() -> None:
    owner = replace(member("c", set()), process="c", active=frozenset({"0_0", "0_1"}))
    one = replace(member("a", set()), process="a", warmup=frozenset({"0_0", "0_1"}))
    beside = replace(member("b", set()), process="b", standby=frozenset({"0_0"}))
    assert at_most_warming([Generation(1, (owner, one, beside))], 1, standbys=1) == []
    assert kinds(at_most_warming([Generation(1, (owner, one, beside))], 0, standbys=1)) == {"warming"}


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def places(topic: str, *partitions: int) -> bytes:
    return struct.pack(">i", 1) + text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)


def offsets_row(key: bytes, value: bytes | None) -> Row:
    return Row("__consumer_offsets", 0, 0, key, value, 0)


def test_the_history_of_a_group_is_read_from_the_bytes_that_the_broker_writes() -> None:
    said = b'{"process": "p", "reason": "because", "tags": {"zone": "a"}}'
    given = b'{"active": {"0": [0, 1]}, "standby": {"1": [0]}, "warmup": {"1": [2]}}'
    subscription = struct.pack(">h", 3) + struct.pack(">i", 1) + text("in") + blob(said) + places("in", 1)
    assignment = struct.pack(">h", 3) + places("in", 0, 1) + blob(given)
    one = text("m-1") + text(None) + text("client") + text("/host") + struct.pack(">ii", 1, 2)
    one += blob(subscription) + blob(assignment)
    metadata = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 7) + text("v1") + text("m-1")
    metadata += struct.pack(">qi", 99, 1) + one
    commit_key = struct.pack(">h", 1) + text("g") + text("in") + struct.pack(">i", 1)
    first, commit = (struct.pack(">hqi", 3, 42, -1) + text(said) + struct.pack(">q", 99) for said in ("", "ours"))
    rows = [
        offsets_row(struct.pack(">h", 2) + text("g"), metadata),
        offsets_row(commit_key, first),
        offsets_row(commit_key, commit),
        offsets_row(commit_key, None),
        offsets_row(struct.pack(">h", 2) + text("other"), metadata),
    ]
    found = history("g", rows)
    member_read = Member(
        "m-1", "client", frozenset({P0, P1}), frozenset({P1}), "p", "because", {"zone": "a"},
        frozenset({"0_0", "0_1"}), frozenset({"1_0"}), frozenset({"1_2"}),
    )  # fmt: skip
    assert found.generations == [Generation(7, (member_read,), protocol="v1")]
    assert found.commits == [(P1, 42)]


BEFORE = Census(("MainThread",), ("python",), ("/logs/app.log",), 0)


def test_a_clean_process_passes() -> None:
    assert nothing_left(BEFORE, BEFORE, "/state") == []
    pool = replace(BEFORE, native_threads=("python", "rocksdb:low", "rocksdb:high"))
    assert nothing_left(BEFORE, pool, "/state") == []
    runtime = replace(BEFORE, native_threads=("python", "tokio-rt-worker", "tokio-rt-worker"))
    assert nothing_left(BEFORE, runtime, "/state") == []


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (replace(BEFORE, threads=("MainThread", "stream-1")), "thread"),
        (replace(BEFORE, native_threads=("python", "rdk:main")), "thread"),
        (replace(BEFORE, native_threads=("python", "python")), "thread"),
        (replace(BEFORE, files=(*BEFORE.files, "/state/app/0_0/LOCK")), "file"),
        (replace(BEFORE, connections=1), "connection"),
        (replace(BEFORE, objects={"milestones.common.task.task.Task": 2}), "memory"),
    ],
)
def test_what_a_process_leaves_behind_is_found(after: Census, kind: str) -> None:
    assert kinds(nothing_left(BEFORE, after, "/state")) == {kind}


def test_a_census_counts_what_a_client_is_made_of_and_nothing_that_belongs_to_the_process() -> None:
    ours = ["milestones.common.task.task.Task", "milestones.client.streams.Streams", "cimpl.Message"]
    assert all(map(keeps_memory, ours))
    of_others = ["builtins.dict", "cimpl.Uuid", "compat_tests.apps.Words", "confluent_kafka.cimpl.KafkaError"]
    assert not any(map(keeps_memory, of_others))


def test_javas_hash_gives_the_values_that_java_prints() -> None:
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == 0  # Integer.MIN_VALUE, which has no absolute value


def test_findings_fail_a_test_and_are_counted_by_kind() -> None:
    hold([], [])
    with pytest.raises(PromiseBrokenError, match=r"lost \(7\)[\s\S]*and 2 more"):
        hold([], [Finding("lost", str(number)) for number in range(7)])
