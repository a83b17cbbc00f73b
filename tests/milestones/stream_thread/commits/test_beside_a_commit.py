"""While a commit is under way: what the stream thread does beside it, and what waits for its end."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.errors import TaskCorruptedError
from milestones.common.kafka.membership import CommitRetriableError, JoinNeeded, Lost
from milestones.common.records import TaskId
from milestones.parts.transaction import CommitStage
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, IN, A
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

ALOS = "at_least_once"
BEFORE_THE_END = ["flush", "send_offsets"]


def committing(call: str, **settings: Any) -> RunningProcessing:
    """A thread whose commit of one record waits for this call's answer."""
    r: Any = RunningProcessing(ProcessingWorld(commit_interval_ms=100, **settings)).run(0)
    if call == "OffsetCommit":
        r.world.member.withholds = True
    else:
        r.world.producer.withheld = {call}
    r.feed("a", steps=10, ms=5)
    r.step(ms=200)
    r.step(3)
    assert r.loop._commits.under_way
    running: RunningProcessing = r
    return running


def answer(r: RunningProcessing) -> None:
    """Kafka answers; the commit goes to its end."""
    r.world.member.withholds = False
    r.world.producer.withheld.clear()
    for _ in range(10):
        if not r.loop._commits.under_way:
            return
        r.step()
    raise AssertionError("the commit doesn't end")


def committed(r: RunningProcessing) -> int | None:
    at = r.world.member.committed.get(IN)
    return None if at is None else at.offset


def workers_work_while_it_sleeps(r: RunningProcessing) -> None:
    clock: Any = r.world.clock
    sleep = clock.sleep_ms

    def sleep_ms(ms: int) -> None:
        sleep(ms)
        r.world.workers.step()

    clock.sleep_ms = sleep_ms


@pytest.mark.parametrize("call", [*BEFORE_THE_END, "commit"])
def test_records_are_fetched_and_processed_but_nothing_is_sent_before_the_transaction_has_ended(call: str) -> None:
    r = committing(call)
    producer: Any = r.world.producer
    sends = producer.calls.count("send")
    r.feed("b", "c", steps=5)
    assert r.world.user_code.seen == ["a", "b", "c"]
    assert (producer.calls.count("send"), committed(r)) == (sends, None)
    answer(r)
    assert (committed(r), r.world.written()) == (1, [("k", 1)])
    r.step(10, ms=100)
    assert (committed(r), r.world.written()) == (3, [("k", 1), ("k", 2), ("k", 3)])


def test_beside_a_commit_no_more_is_processed_than_may_be_uncommitted() -> None:
    r = committing("commit", statestore_uncommitted_max_bytes=1)
    for value in ("b", "c"):
        r.feed(value, steps=5)
    assert r.world.user_code.seen == ["a", "b"]
    answer(r)
    r.step(10, ms=10)
    assert (r.world.user_code.seen, committed(r)) == (["a", "b", "c"], 3)


def test_the_member_joins_while_the_end_of_the_transaction_has_no_answer() -> None:
    r = committing("commit")
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"))
    assert (len(r.world.member.joins), committed(r)) == (joins + 1, None)
    answer(r)
    assert committed(r) == 1


@pytest.mark.parametrize(("call", "settings"), [
    ("flush", {}), ("send_offsets", {}), ("flush", {"processing_guarantee": ALOS}),
    ("OffsetCommit", {"processing_guarantee": ALOS}),
])  # fmt: skip
def test_the_member_does_not_join_while_a_commit_still_needs_its_generation(call: str, settings: Any) -> None:
    r = committing(call, **settings)
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"), steps=5)
    assert len(r.world.member.joins) == joins
    answer(r)
    r.step(3)
    assert (len(r.world.member.joins), committed(r)) == (joins + 1, 1)


def test_a_member_that_has_joined_beside_a_commit_begins_no_other_before_the_new_generation() -> None:
    r = committing("commit")
    r.world.member.events.append(JoinNeeded("a test"))
    r.world.member.gate = True
    r.feed("b", steps=3)
    answer(r)
    r.step(5, ms=100)
    assert committed(r) == 1
    r.world.member.gate = False
    r.step(5, ms=100)
    assert committed(r) == 2


@pytest.mark.parametrize("call", [*BEFORE_THE_END, "commit"])
def test_a_task_that_is_to_leave_leaves_with_all_that_it_has_done_once_the_commit_is_over(call: str) -> None:
    r = committing(call)
    r.feed("b", steps=3)
    r.assign(steps=3)
    assert (r.tasks.owned, committed(r)) == ({A}, None)
    answer(r)
    r.step(5)
    assert (r.tasks.owned, committed(r), r.world.written()) == (frozenset(), 2, [("k", 1), ("k", 2)])


def test_new_tasks_come_while_a_commit_is_under_way() -> None:
    r = committing("commit")
    r.assign(0, 1, steps=5)
    assert r.loop._commits.under_way
    assert r.tasks.processing.keys() == {A, TaskId(0, 1)}


def test_who_lost_the_membership_waits_for_the_answer_of_what_kafka_may_have_committed() -> None:
    r = committing("commit")
    r.hear(Lost("session timeout"), steps=3)
    assert r.tasks.owned == {A}
    answer(r)
    r.step(3)
    assert (r.tasks.owned, committed(r), r.world.state.offset(A)) == (frozenset(), 1, 1)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", ALOS])
def test_who_lost_the_membership_abandons_at_once_what_nobody_can_have_committed(guarantee: str) -> None:
    r = committing("flush", processing_guarantee=guarantee)
    r.hear(Lost("session timeout"), steps=3)
    assert (r.tasks.owned, committed(r), r.loop._commits.under_way) == (frozenset(), None, False)
    assert r.world.state.content(A) == {}


@pytest.mark.parametrize("call", [*BEFORE_THE_END, "commit"])
def test_an_error_beside_a_commit_rolls_back_to_what_it_has_committed(call: str) -> None:
    r = committing(call)
    r.feed("b", steps=3)
    r.world.producer.answers_ms = r.world.clock.monotonic_ms() + 1_000
    with r.turn():
        r.loop._recoveries.recover(TaskCorruptedError("a test", [A]), 0)
    assert (committed(r), r.loop._commits.under_way) == (None if call == "flush" else 1, False)
    r.world.producer.withheld.clear()
    r.step(20, ms=100)
    assert (committed(r), r.world.written()) == (2, [("k", 1), ("k", 2)])


def test_an_error_beside_a_commit_that_fails_too_is_answered_after_the_commits() -> None:
    r = committing("commit")
    r.world.producer.answers_ms = r.world.clock.monotonic_ms() + 1_000
    r.world.producer.fail("commit", FENCED)
    with r.turn():
        r.loop._recoveries.recover(ILLEGAL_GENERATION, 0)
    assert r.tasks.owned == frozenset(), "the baseline's answer to a fatal error"
    assert committed(r) is None


def test_a_commit_that_fails_beside_the_loop_rolls_back_what_was_done_meanwhile() -> None:
    r = committing("send_offsets")
    r.feed("b", steps=3)
    r.world.producer.fail("send_offsets", ILLEGAL_GENERATION)
    answer(r)
    assert committed(r) is None
    r.step(20, ms=100)
    assert (committed(r), r.world.written()) == (2, [("k", 1), ("k", 2)])


def test_at_least_once_a_commit_that_may_yet_succeed_keeps_everything_and_is_made_again() -> None:
    r = committing("OffsetCommit", processing_guarantee=ALOS)
    r.world.member.commit_errors.append(CommitRetriableError("no answer"))
    r.feed("b", steps=3)
    answer(r)
    assert (committed(r), r.loop._commits.pace.failing) == (None, True)
    r.step(20, ms=100)
    assert (committed(r), r.loop._commits.pace.failing) == (2, False)
    assert r.world.written() == [("k", 1), ("k", 2)]


def test_a_pause_meanwhile_has_the_next_commit_follow_at_once() -> None:
    r = committing("commit")
    r.feed("b", steps=3)
    r.loop.pause(frozenset([0]))
    answer(r)
    r.step(4)
    assert committed(r) == 2


def test_a_clean_end_brings_the_commit_to_its_end_and_commits_the_rest() -> None:
    r = committing("commit")
    r.feed("b", steps=3)
    r.world.producer.answers_ms = r.world.clock.monotonic_ms() + 1_000
    workers_work_while_it_sleeps(r)
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert (committed(r), r.world.written(), r.world.member.closed) == (2, [("k", 1), ("k", 2)], True)


def test_a_clean_end_whose_commit_fails_commits_nothing_more_and_says_so() -> None:
    r = committing("commit")
    r.world.producer.answers_ms = r.world.clock.monotonic_ms() + 1_000
    r.world.producer.fail("commit", FENCED)
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert (committed(r), r.world.member.closed) == (None, None)


@pytest.mark.parametrize("call", [*BEFORE_THE_END, "commit"])
def test_a_thread_that_dies_waits_for_no_commit(call: str) -> None:
    r = committing(call)
    with r.turn():
        r.loop.fail(shut_application_down=None)
    assert (r.tasks.owned, committed(r), r.loop._commits.under_way) == (frozenset(), None, False)


def test_the_step_that_a_commit_is_at_is_known() -> None:
    steps = {call: committing(call).loop._register.step for call in [*BEFORE_THE_END, "commit"]}
    assert steps == {
        "flush": CommitStage.FLUSHING, "send_offsets": CommitStage.OFFSETS, "commit": CommitStage.ENDING
    }  # fmt: skip
