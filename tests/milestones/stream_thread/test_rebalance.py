"""The answers to the group: what is committed, closed, created, and in which order."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.errors import ApplicationShutdownError, MembershipError, SourceTopicError, StateCorruptError
from milestones.common.kafka.membership import (
    Assigned,
    CommitRetriableError,
    Failed,
    JoinNeeded,
    Lost,
    StaleGenerationError,
)
from milestones.common.records import TaskId
from milestones.common.task.task import TaskState
from milestones.instance.states import ThreadState
from tests.milestones.fake_kafka import FENCED, ILLEGAL_GENERATION
from tests.milestones.fakes import IN, A, B, FailsToClose, Running, World, assignment, busy, counting

REVOKED, ASSIGNED, RUNNING = ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED, ThreadState.RUNNING


def test_before_a_thread_joins_it_has_committed() -> None:
    r = busy(0)
    committed_at_join: list[Any] = []
    r.world.member.on_join = lambda _: committed_at_join.append(dict(r.world.producer.committed))
    r.hear(JoinNeeded("a test"))
    assert committed_at_join[0][IN].offset == 2


def test_a_thread_joins_with_what_it_has_and_the_generation_it_has_it_from() -> None:
    r = busy(0, 1)
    r.hear(JoinNeeded("a test"))
    subscription = r.world.member.joins[-1]
    assert (subscription.active, subscription.generation, subscription.capacity) == ({A, B}, 1, 1)
    assert (subscription.process_id, subscription.stage, subscription.topics) == ("process", "baseline", ("in",))


def test_a_thread_that_joins_names_the_topics_that_patterns_match_for_the_broker_forgets_offsets_of_others() -> None:
    r = busy(0)
    r.world.context.thread_registry.sources = frozenset({"sensor-1", "sensor-2"})
    r.hear(JoinNeeded("a test"))
    assert r.world.member.joins[-1].topics == ("in", "sensor-1", "sensor-2")


def test_tasks_that_stay_go_on_processing_through_a_rebalance() -> None:
    r = busy(0)
    r.hear(JoinNeeded("a test"))
    r.feed("c", steps=2)
    assert r.loop._processing.processed == 3
    r.assign(0)
    assert r.world.state.tasks[A].epoch == 0
    assert r.world.state.tasks[A].state is TaskState.READY


def test_revoked_tasks_are_committed_closed_and_only_then_released_by_a_rejoin() -> None:
    r = busy(0, 1)
    member, producer = r.world.member, r.world.producer
    order: list[str] = []
    producer.commit = lambda timeout_ms: order.append("commit")  # type: ignore[method-assign]
    member.request_rejoin = lambda reason: order.append(f"rejoin, open: {open_tasks()}")  # type: ignore[method-assign]

    def open_tasks() -> list[TaskId]:
        return [id for id, task in r.world.state.tasks.items() if task.state is not TaskState.CLOSED]

    r.assign(1)
    assert order == ["commit", f"rejoin, open: {[B]}"]
    assert r.world.state.held == {B}


def test_a_thread_that_gives_nothing_away_asks_for_no_further_rebalance() -> None:
    r = busy(0)
    r.assign(0, 1)
    assert r.world.member.rejoins == []


def test_when_the_commit_of_revoked_tasks_fails_in_place_they_are_closed_uncommitted_and_released() -> None:
    r = busy(0, 1)
    r.world.producer.fail("send_offsets", ILLEGAL_GENERATION)
    r.assign(1)
    assert "abort" in r.world.producer.calls
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    assert r.world.state.offset(A) is None
    assert r.world.member.rejoins == ["tasks were released to their new owners"]
    r.step(5)
    assert r.tasks.processing.keys() == {B}
    assert r.world.state.tasks[B].epoch == 1


def test_tasks_are_released_to_their_new_owners_although_a_standby_does_not_close_cleanly() -> None:
    r = Running()
    r.rebalance(1, standby=frozenset({A}), steps=10)

    def offset() -> int | None:
        raise StateCorruptError("a block is damaged, and nobody knows of which store")

    r.world.state.stores[A]["counts"].namespace.offset = offset  # type: ignore[method-assign]
    r.rebalance(steps=5)
    assert r.places == {}
    assert r.world.member.rejoins == ["tasks were released to their new owners"]


def test_when_the_commit_of_revoked_tasks_costs_the_producer_the_assignment_is_taken_up_anew() -> None:
    r = busy(0, 1)
    before = r.world.state.tasks[B]
    r.world.producer.fail("commit", FENCED)
    r.assign(1, steps=5)
    assert r.world.clients.renewed == 1
    assert r.tasks.processing.keys() == {B}
    assert r.world.state.tasks[B] is not before
    assert r.world.state.held == {B}
    assert r.loop._processing.processed >= 2


def test_at_least_once_a_commit_without_an_answer_does_not_keep_revoked_tasks() -> None:
    r = busy(0, 1, processing_guarantee="at_least_once")
    r.world.member.commit_errors.append(CommitRetriableError("no answer"))
    r.assign(1)
    assert r.world.state.held == {B}
    assert r.world.member.rejoins == ["tasks were released to their new owners"]


def test_when_the_commit_before_a_join_fails_the_thread_joins_all_the_same() -> None:
    r = busy(0)
    r.world.producer.fail("commit", FENCED)
    r.hear(JoinNeeded("a test"))
    assert r.world.member.joins[-1].active == frozenset()
    assert r.world.state.held == set()


def test_a_lost_membership_drops_all_tasks_without_committing_and_aborts() -> None:
    r = busy(0, 1)
    r.hear(Lost("session timeout"))
    assert "commit" not in r.world.producer.calls
    assert "abort" in r.world.producer.calls
    assert r.world.state.held == set()
    assert r.tasks.owned == frozenset()


def test_a_thread_whose_membership_is_lost_is_not_running_before_it_has_joined_again() -> None:
    r = busy(0)
    r.hear(Lost("session timeout"), steps=3)
    assert r.world.states[-1] is REVOKED
    r.run(0)
    r.step()
    assert r.world.states[-1] is RUNNING


def test_a_lost_membership_whose_abort_fails_makes_a_new_producer() -> None:
    r = busy(0)
    r.world.producer.fail("abort", FENCED)
    r.hear(Lost("session timeout"))
    assert r.world.clients.renewed == 1
    assert r.world.state.held == set()


def test_a_lost_membership_in_the_middle_of_a_join_is_answered_by_the_next_join() -> None:
    r = busy(0)
    r.hear(JoinNeeded("a test"), Lost("session timeout"), JoinNeeded("lost"))
    assert [sorted(joined.active) for joined in r.world.member.joins[-2:]] == [[A], []]


def test_a_stale_generation_at_a_commit_rolls_back_in_place_and_the_loss_that_follows_closes() -> None:
    r = busy(0)
    r.world.member.metadata_error = StaleGenerationError("lost")
    r.step(ms=10_000)
    assert r.world.state.tasks[A].epoch == 1
    assert r.world.state.held == {A}
    r.hear(Lost("session timeout"))
    assert r.world.state.held == set()


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Failed(MembershipError("not authorised")), MembershipError("not authorised")),
        (Assigned(2, "member", Assignment(error="topic in is missing")), SourceTopicError("topic in is missing")),
        (Assigned(2, "member", Assignment(error="thread 7 died", shutdown=True)), ApplicationShutdownError("thread 7")),
    ],
    ids=["a member that failed for good", "why nothing can run", "a member's wish to shut the application down"],
)
def test_ends_the_thread_with_its_reason(event: Any, error: Exception) -> None:
    r = busy(0)
    r.world.member.events.append(event)
    with pytest.raises(type(error), match=str(error)):
        r.step()


def test_an_assignment_and_the_next_request_to_join_may_come_at_once() -> None:
    r = busy(0)
    r.hear(Assigned(2, "member", assignment(r.world, 0, 1)), JoinNeeded("a test"))
    assert r.world.member.joins[-1].active == {A, B}
    assert r.world.member.joins[-1].generation == 2


def test_the_states_of_a_thread_through_a_rebalance() -> None:
    r = Running()
    r.run(0)
    r.step()
    assert r.world.states == [REVOKED, ASSIGNED, RUNNING]
    r.rebalance(0, steps=1)
    assert r.world.states == [REVOKED, ASSIGNED, RUNNING] * 2


def test_a_thread_without_tasks_is_running_too() -> None:
    r = Running()
    r.rebalance(steps=1)
    assert r.world.states == [REVOKED, ASSIGNED, RUNNING]


def test_the_fault_points_of_a_rebalance_are_reached_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    monkeypatch.setattr("milestones.stream_thread.rebalance.reach", reached.append)
    r = busy(0)
    r.rebalance()
    assert reached == ["rebalance.before-join", "rebalance.assigned"] * 2 + ["rebalance.revoked"]


# -- shutting the whole application down


class Group:
    """Answers a dying thread's joins with these events, one list each."""

    def __init__(self, r: Running, *answers: list[Any]) -> None:
        self.r, self.answers = r, list(answers)
        self.heard: list[str | None] = []
        r.world.member.on_join = self.joined

    def joined(self, subscription: Subscription) -> None:
        self.heard.append(subscription.shutdown)
        if self.answers:
            self.r.world.member.events += self.answers.pop(0)


TOLD = Assigned(9, "member", Assignment(error="we died", shutdown=True))
IGNORED = Assigned(8, "member", Assignment())


def test_a_dying_thread_tells_the_group_at_once_even_if_it_died_of_answering_a_join(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = busy(0)
    group = Group(r, [TOLD])
    r.loop.fail(shut_application_down="we died")
    assert group.heard == ["we died"]
    assert r.world.state.held == set()
    assert "can't be told" not in caplog.text


def test_a_join_that_crossed_an_older_one_is_repeated_until_the_wish_was_heard() -> None:
    r = busy(0)
    group = Group(r, [IGNORED], [Lost("too late"), JoinNeeded("lost")], [TOLD])
    r.loop.fail(shut_application_down="we died")
    assert group.heard == ["we died"] * 3


def test_a_member_that_has_failed_cannot_tell_and_does_not_try_for_long(caplog: pytest.LogCaptureFixture) -> None:
    r = busy(0)
    Group(r, [Failed(MembershipError("not authorised"))])
    r.loop.fail(shut_application_down="we died")
    assert r.world.clock.monotonic_ms() < 1_000
    assert "not authorised" in caplog.text


def test_a_member_that_has_ended_before_cannot_tell_either(caplog: pytest.LogCaptureFixture) -> None:
    r = busy(0)
    r.world.member.on_join = Mock(side_effect=MembershipError("the member is closed"))
    r.loop.fail(shut_application_down="we died")
    assert "the member is closed" in caplog.text


def test_last_words_that_nobody_hears_end_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    r = busy(0)
    Group(r)
    r.loop.fail(shut_application_down="we died")
    assert 30_000 <= r.world.clock.monotonic_ms() < 31_000
    assert "couldn't be told" in caplog.text


def test_the_group_is_told_also_when_a_task_does_not_close_cleanly() -> None:
    r = Running(World(counting(processor=FailsToClose))).run(0)
    group = Group(r, [TOLD])
    with pytest.raises(ValueError, match="user's close"):
        r.loop.fail(shut_application_down="we died")
    assert group.heard == ["we died"]


def test_a_thread_that_leaves_has_committed_and_closed_its_active_tasks_before() -> None:
    r = busy(0)
    seen: list[Any] = []
    task = r.tasks.processing[A]
    r.world.member.on_close = lambda: seen.append((r.world.producer.committed[IN].offset, task.state))
    r.loop.shut_down(leave_group=True)
    assert seen == [(2, TaskState.CLOSED)]


@pytest.mark.parametrize(("leave", "error"), [(False, None), (True, FENCED)])
def test_a_thread_that_stays_a_member_or_could_not_commit_does_not_leave_before_its_clients_are_closed(
    leave: bool, error: Any
) -> None:
    r = busy(0)
    if error is not None:
        r.world.producer.fail("commit", error)
    r.loop.shut_down(leave_group=leave)
    assert r.world.member.closed is None
