"""When a thread commits, and when it must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.errors import TaskCorruptedError, TimeoutExceededError
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.records import TaskId
from milestones.parts.transaction import CommitStage
from tests.milestones.fakes import A, B
from tests.milestones.stream_thread.commits.scheduled import FakeTask, Scheduled


def test_a_commit_is_due_every_commit_interval() -> None:
    s = Scheduled()
    assert [s.after(99), s.after(1), s.after(99), s.after(1)] == [0, 1, 1, 2]


@pytest.mark.parametrize(("took_ms", "rest_ms"), [(20, 80), (50, 50), (80, 80), (2_000, 100)])
def test_a_slow_commit_is_followed_by_a_rest_as_long_and_of_a_commit_interval_at_most(
    took_ms: int, rest_ms: int
) -> None:
    s = Scheduled()
    s.withheld = True
    assert s.after(100) == 0
    s.withheld = False
    assert [s.after(took_ms), s.after(rest_ms - 1), s.after(1)] == [1, 1, 2]


def test_a_commit_that_was_hastened_meanwhile_follows_a_slow_one_at_once() -> None:
    s = Scheduled()
    s.withheld = True
    s.after(100)
    s.schedule.pace.hasten()
    s.withheld = False
    assert [s.after(2_000), s.after(0)] == [1, 2]


def test_the_loop_is_told_how_long_it_may_wait_for_the_next_commit() -> None:
    s = Scheduled()
    assert s.schedule.pace.due_in_ms(30) == 70
    assert s.schedule.pace.due_in_ms(500) == 0


def test_without_anything_to_commit_nothing_is_committed() -> None:
    s = Scheduled()
    s.task.needed = False
    assert s.after(100) == 0
    assert s.schedule.pace.due_in_ms(100) == 100


@pytest.mark.parametrize("lacks", ["needed", "committable"])
def test_only_tasks_with_something_to_commit_that_are_at_a_boundary_which_can_be_are_committed(lacks: str) -> None:
    s = Scheduled()
    s.processing[B] = FakeTask(B)
    setattr(s.processing[B], lacks, False)
    s.after(100)
    assert s.commits == [[s.task]]


def test_a_commit_has_all_tasks_that_have_something_to_commit() -> None:
    s = Scheduled()
    s.processing.update((task, FakeTask(task)) for task in (TaskId(0, number) for number in range(1, 5)))
    s.after(100)
    assert [sorted(task.id for task in commit) for commit in s.commits] == [sorted(s.processing)]


def test_a_commit_waits_until_the_tasks_are_prepared_and_lets_them_go_on_after_it() -> None:
    s = Scheduled()
    s.prepared = False
    assert (s.after(100), s.after(1), s.released) == (0, 0, 0)
    s.prepared = True
    assert (s.after(1), s.released) == (1, 1)


def test_tasks_go_on_after_a_commit_that_failed() -> None:
    s = Scheduled()
    s.error = ValueError("Kafka")
    with pytest.raises(ValueError, match="Kafka"):
        s.after(100)
    assert s.released == 1


MOST = "statestore_uncommitted_max_bytes"


@pytest.mark.parametrize(
    ("settings", "states"),
    [
        ({}, [({"requested": True}, 1)]),
        ({MOST: 1_000}, [({"bytes": 999}, 0), ({"bytes": 1_000}, 1)]),
        ({MOST: 1_000, "num_stream_threads": 4}, [({"bytes": 250}, 1)]),
        ({MOST: 1_000}, [({"bytes": 1_000, "applying": True}, 0), ({"applying": False}, 1)]),
        ({MOST: -1}, [({"bytes": 10**12}, 0)]),
    ],
    ids=[
        "user code asks for it",
        "uncommitted bytes are at their limit",
        "they are at this thread's share of the limit",
        "they aren't being applied",
        "there is no limit",
    ],
)
def test_a_commit_is_made_at_once_if(settings: Any, states: Any) -> None:
    s = Scheduled(**settings)
    for state, commits in states:
        vars(s.task).update(state)
        assert s.after(1) == commits


def test_what_a_commit_has_does_not_count_against_the_bound_until_the_commit_fails() -> None:
    s = Scheduled(statestore_uncommitted_max_bytes=1_000, processing_guarantee="at_least_once")
    s.withheld, s.task.bytes = True, 1_000
    s.after(100)
    assert not s.schedule.pace.behind
    s.withheld, s.error = False, CommitRetriableError("no answer")
    s.after(1)
    assert s.schedule.pace.failing
    assert s.schedule.pace.behind


def test_tasks_are_of_a_commit_while_it_is_under_way_and_not_after_it_has_failed() -> None:
    s = Scheduled(processing_guarantee="at_least_once")
    s.withheld = True
    s.after(100)
    assert list(s.schedule.committing) == [s.task]
    s.withheld, s.error = False, CommitRetriableError("no answer")
    s.after(1)
    assert list(s.schedule.committing) == []


def test_while_a_commit_waits_for_a_new_generation_the_bound_holds() -> None:
    s = Scheduled(statestore_uncommitted_max_bytes=1_000)
    s.world.member.gate, s.task.bytes = True, 1_000
    assert (s.after(1), s.schedule.pace.behind) == (0, True)
    s.world.member.gate = False
    assert (s.after(1), s.schedule.pace.behind) == (1, False)


def test_a_task_whose_failed_commit_is_to_be_made_once_more_is_not_cut_with_those_that_come_first() -> None:
    s = Scheduled()
    s.processing[B] = other = FakeTask(B)
    s.register.retained = {s.task: object()}  # type: ignore[dict-item]
    s.world.producer.begin()
    s.world.producer.contributors = {B}
    s.after(100)
    assert s.commits == [[other]]


def test_fifty_tasks_of_each_thread_ask_for_a_commit_before_the_instance_has_more_than_its_limit() -> None:
    s = Scheduled(statestore_uncommitted_max_bytes=100_000, commit_interval_ms=10_000)
    s.processing.update({id: FakeTask(id) for id in (TaskId(0, number) for number in range(50))})
    others = [s.world.budget.join() for _ in range(3)]
    grown = 0
    while s.after(1) == 0:
        for task in s.processing.values():
            task.bytes += 10
        grown += 10
    assert 0.9 * 100_000 <= 4 * 50 * grown <= 100_000 + 4 * 50 * 10
    for other in others:
        other.leave()
    assert s.after(1) == 1, "the others' shares are its own now"


@pytest.mark.parametrize(
    "steps",
    [
        [(True, 1_000, 0), (False, 1, 1)],
        [(True, 100, 0), (True, 1_999, 0), (True, 1, 1), (True, 100, 2)],
        [(True, 1_900, 0), (False, 100, 1), (True, 1_900, 1)],
    ],
    ids=["until the new generation", "for a quarter of the transaction timeout at most", "in each rebalance anew"],
)
def test_between_our_join_and_the_new_generation_a_commit_waits(steps: list[tuple[bool, int, int]]) -> None:
    s = Scheduled(transaction_timeout_ms=8_000)
    for joining, ms, commits in steps:
        s.world.member.gate = joining
        assert s.after(ms) == commits


def test_a_commit_that_somebody_asks_for_now_is_not_held_back() -> None:
    s = Scheduled()
    s.world.member.gate = True
    assert s.schedule.commit_now(5)
    assert len(s.commits) == 1


@pytest.mark.parametrize("interval_ms", [100, 30_000])
def test_a_commit_without_an_answer_is_repeated_soon_however_long_the_interval_is(interval_ms: int) -> None:
    s = Scheduled(commit_interval_ms=interval_ms, processing_guarantee="at_least_once")
    s.schedule.pace.hasten()
    s.error = CommitRetriableError("no answer")
    assert s.after(100) == 0
    s.error = None
    assert [s.after(50), s.after(50)] == [0, 1]


def test_commits_without_an_answer_for_task_timeout_end_the_thread() -> None:
    s = Scheduled(task_timeout_ms=1_000)
    s.error = CommitRetriableError("no answer")
    for _ in range(11):
        s.after(100)
    with pytest.raises(TimeoutExceededError, match="task_timeout_ms"):
        s.after(100)


def test_a_commit_that_succeeds_in_between_begins_the_count_anew() -> None:
    s = Scheduled(task_timeout_ms=1_000)
    for _ in range(3):
        s.error = CommitRetriableError("no answer")
        for _ in range(8):
            s.after(100)
        s.error = None
        s.after(1_000)
    assert len(s.commits) == 3


def test_what_failed_of_tasks_that_have_left_does_not_count_against_those_that_come() -> None:
    s = Scheduled(task_timeout_ms=1_000)
    s.error = CommitRetriableError("no answer")
    s.after(100)
    s.task.needed = False
    s.after(2_000)
    assert not s.schedule.pace.failing
    s.task.needed = True
    s.after(100)
    assert s.schedule.pace.failing


def test_a_transaction_that_is_open_for_half_of_its_timeout_is_committed_at_once() -> None:
    s = Scheduled(transaction_timeout_ms=8_000, commit_interval_ms=8_000)
    s.world.producer.begin()
    s.world.producer.age = 3_999
    assert s.after(1) == 0
    s.world.producer.age = 4_000
    assert s.after(1) == 1


def test_a_transaction_of_that_age_is_not_held_back_by_a_rebalance_either() -> None:
    s = Scheduled(transaction_timeout_ms=8_000)
    s.world.member.gate = True
    s.world.producer.begin()
    s.world.producer.age = 4_000
    assert s.after(100) == 1


def test_after_one_of_that_age_the_next_commit_waits_for_the_new_generation_as_long_as_any_other() -> None:
    s = Scheduled(transaction_timeout_ms=8_000)
    s.world.member.gate = True
    s.world.producer.begin()
    s.world.producer.age = 4_000
    assert s.after(100) == 1
    s.world.producer.in_transaction = False
    assert [s.after(ms) for ms in (100, 1_999, 1)] == [1, 1, 2]


def test_after_a_roll_back_each_turn_commits_until_one_has_succeeded() -> None:
    s = Scheduled(task_timeout_ms=1_000)
    s.roll_backs.began([A])
    s.error = CommitRetriableError("no answer")
    assert s.after(1) == 0
    s.error = None
    assert [s.after(100), s.after(1)] == [1, 1]


def test_the_loop_is_told_how_long_it_may_wait_until_the_transaction_is_too_old_and_does_not_spin_once_it_is() -> None:
    s = Scheduled(transaction_timeout_ms=8_000)
    assert s.schedule.pace.too_old_in_ms() is None
    s.world.producer.begin()
    for age_ms, left_ms in ((3_000, 1_000), (4_000, None)):
        s.world.producer.age = age_ms
        assert s.schedule.pace.too_old_in_ms() == left_ms


def test_a_commit_made_at_once_is_given_up_when_kafka_takes_nothing_for_a_quarter_of_the_poll_interval() -> None:
    s = Scheduled(max_poll_interval_ms=40_000)
    s.withheld, clock = True, s.world.clock
    waited = s.run_once

    def slow(wait_ms: int) -> Any:
        clock.advance(wait_ms)
        return waited(wait_ms)

    s.run_once = slow  # type: ignore[method-assign]
    s.schedule.note_changed(s.processing.values())  # type: ignore[arg-type]
    with pytest.raises(TaskCorruptedError, match="within 10000 ms"):
        s.schedule.commit_now(clock.monotonic_ms())
    assert clock.monotonic_ms() == 10_000
    assert not s.schedule.under_way


def test_a_commit_that_kafka_may_have_made_is_never_given_up_so() -> None:
    s = Scheduled(max_poll_interval_ms=40_000)
    clock, answers_ms = s.world.clock, 60_000
    ends = s.run_once

    def slow(wait_ms: int) -> Any:
        clock.advance(wait_ms)
        if s.register.step is CommitStage.SENDING:
            for stage in (CommitStage.FLUSHING, CommitStage.OFFSETS, CommitStage.ENDING):
                s.register.move(stage)
        return ends(wait_ms) if clock.monotonic_ms() >= answers_ms else None

    s.run_once = slow  # type: ignore[method-assign]
    s.schedule.note_changed(s.processing.values())  # type: ignore[arg-type]
    assert s.schedule.commit_now(clock.monotonic_ms())


UP_TO_THE_END = (CommitStage.FLUSHING, CommitStage.OFFSETS, CommitStage.ENDING)


@pytest.mark.parametrize(
    ("stages", "calls"),
    [
        ((UP_TO_THE_END,), 2),
        (((*UP_TO_THE_END, CommitStage.RESOLVING),), 2),
        ((UP_TO_THE_END, (CommitStage.RESOLVING,)), 2),
        (((),), 1),
    ],
    ids=["up to its end", "its end is lost in one call", "its end is lost in the next call", "no answer"],
)
def test_a_turn_takes_the_steps_that_kafka_answers_soon_and_one_that_it_does_not(
    stages: tuple[tuple[CommitStage, ...], ...], calls: int
) -> None:
    s, made = Scheduled(), []

    def step(wait_ms: int) -> None:
        for stage in stages[len(made)] if len(made) < len(stages) else ():
            s.register.move(stage)
        made.append(wait_ms)

    s.run_once = step  # type: ignore[assignment,method-assign]
    s.after(100)
    assert len(made) == calls


@pytest.mark.parametrize("end", ["made", "failed", "abandoned"])
def test_the_tasks_of_a_commit_are_named_as_changed_once_it_is_over_whatever_became_of_it(end: str) -> None:
    s = Scheduled()
    s.withheld = True
    s.after(100)
    assert s.schedule.take_changed() == []
    s.withheld, s.error = False, CommitRetriableError("no answer") if end == "failed" else None
    if end == "abandoned":
        s.schedule.abandon()
    else:
        s.after(1)
    assert (s.schedule.take_changed(), s.schedule.take_changed()) == ([s.task], [])


def test_while_tasks_are_committed_one_by_one_each_turn_commits() -> None:
    s = Scheduled()
    pace: Any = s.schedule.pace
    pace._ends = SimpleNamespace(isolating=True)
    assert [s.after(1), s.after(1)] == [1, 2]
