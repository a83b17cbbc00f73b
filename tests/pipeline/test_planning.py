"""From offsets to ranges."""

from __future__ import annotations

from milestones.common.kafka.membership import LentMembership
from milestones.common.records import TaskId, TopicPartition
from milestones.pipeline.driving.planning import KnownPunctuations, RunLimits, capped, plan
from milestones.pipeline.hosting.ranges import TaskRange

LOAN = LentMembership("member", 3)
A, B = TaskId(0, 0), TaskId(0, 1)
A0, B0, B1 = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("other", 1)
TASKS = {A: [A0], B: [B0, B1]}


def ranges(
    committed: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    known: dict[TaskId, KnownPunctuations] | None = None,
    limits: RunLimits | None = None,
    now_ms: int = 1_000,
) -> dict[TaskId, TaskRange]:
    made = plan(TASKS, committed, ends, known or {}, LOAN, limits or RunLimits(), now_ms)
    return {range_.task: range_ for range_ in made}


def test_a_task_with_something_left_gets_all_its_partitions() -> None:
    made = ranges({A0: 5, B0: 7, B1: 0}, {A0: 5, B0: 9, B1: 0})
    assert made.keys() == {B}
    assert (made[B].begins, made[B].ends, made[B].lent) == ({B0: 7, B1: 0}, {B0: 9, B1: 0}, LOAN)
    assert made[B].size == 2


def test_a_partition_of_which_nothing_was_ever_committed_is_left_even_when_empty() -> None:
    assert ranges({B0: 0, B1: 0}, {A0: 0, B0: 0, B1: 0}).keys() == {A}


def test_the_largest_range_comes_first() -> None:
    made = plan(TASKS, {A0: 0, B0: 0, B1: 0}, {A0: 5, B0: 9, B1: 9}, {}, LOAN, RunLimits(), 0)
    assert [range_.task for range_ in made] == [B, A]


def test_what_others_have_committed_beyond_a_batchs_end_isnt_read_again() -> None:
    made = ranges({A0: 9, B0: 1, B1: 8}, {A0: 5, B0: 3, B1: 5})
    assert made.keys() == {B}
    assert made[B].ends == {B0: 3, B1: 8}


def limits(left_of_a: int, left_of_b: int, most: int) -> dict[TaskId, int | None]:
    made = ranges({A0: 0, B0: 0, B1: 0}, {A0: left_of_a, B0: left_of_b, B1: 0}, limits=RunLimits(limit=most))
    return {task: range_.limit for task, range_ in made.items()}


def test_a_limit_is_shared_by_what_the_tasks_have_left() -> None:
    assert limits(500, 1_500, 100) == {A: 25, B: 75}
    assert limits(0, 1_500, 100) == {B: 100}
    assert limits(1, 1_500, 100) == {A: 1, B: 99}
    assert limits(50, 50, 100) == {A: None, B: None}


def test_with_punctuations_a_task_runs_for_a_first_time_and_when_one_is_due() -> None:
    done = {A0: 5, B0: 5, B1: 5}
    assert ranges(done, done).keys() == set()
    assert ranges(done, done, limits=RunLimits(punctuate=True)).keys() == {A, B}
    known = {A: KnownPunctuations(({}, {1: 2_000}), 2_000), B: KnownPunctuations(({}, {}), None)}
    assert ranges(done, done, known, RunLimits(punctuate=True), now_ms=1_999).keys() == set()
    due = ranges(done, done, known, RunLimits(punctuate=True), now_ms=2_000)
    assert due.keys() == {A}
    assert due[A].anyway
    assert due[A].schedule == ({}, {1: 2_000})


def test_ends_are_capped_where_a_cap_is_known() -> None:
    assert capped({A0: 9, B0: 9}, {A0: 5, B1: 1}) == {A0: 5, B0: 9}
