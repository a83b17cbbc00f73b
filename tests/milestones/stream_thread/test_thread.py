"""A stream thread from its start to its end. `run` is called in the test's own thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import ApplicationShutdownError, KafkaUnreachableError, MembershipError, ProcessingError
from milestones.common.kafka.membership import Assigned, JoinNeeded
from milestones.common.memory import Account
from milestones.common.records import TopicPartition
from milestones.instance.context import ThreadFailed, ThreadMoved, UncaughtExceptionResponse
from milestones.stream_thread.thread import STOP_PATIENCE_MS, StreamThread
from tests.milestones.fakes import NO_CLIENTS, TIMED_OUT, Counting, World, assignment, counting, put


class Thread:
    """A stream thread whose member stops it after some rounds; `each_round` is called at every poll of the group."""

    def __init__(
        self, world: World | None = None, *, rounds: int = 12, decision: Any = None, leave: bool = True
    ) -> None:
        self.world = world or World()
        self.decided: list[BaseException] = []
        self.decision = decision or UncaughtExceptionResponse.SHUTDOWN_CLIENT
        self.context = replace(self.world.context, decide=self.decide)
        self.rounds, self.leave = rounds, leave
        self.each_round: Callable[[int], None] = lambda _: None
        self.world.member.poll = self.poll  # type: ignore[method-assign]
        self.polls = 0
        self.thread = StreamThread(self.context, self.world.parts, NO_CLIENTS)

    def decide(
        self, error: BaseException, default: UncaughtExceptionResponse = UncaughtExceptionResponse.SHUTDOWN_CLIENT
    ) -> UncaughtExceptionResponse:
        self.decided.append(error)
        answer: UncaughtExceptionResponse = self.decision
        return answer

    def poll(self) -> list[Any]:
        self.polls += 1
        self.each_round(self.polls)
        if self.polls >= self.rounds:
            self.thread.stop(leave_group=self.leave)
        return {
            1: [JoinNeeded("start")], 2: [Assigned(1, "member", assignment(self.world, 0))],
        }.get(self.polls, [])  # fmt: skip

    def run(self) -> Thread:
        self.thread.run()
        return self

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.world.events if isinstance(event, ThreadMoved)]

    @property
    def failure(self) -> ThreadFailed:
        (failure,) = [event for event in self.world.events if isinstance(event, ThreadFailed)]
        assert failure is self.world.events[-1], "nothing may follow"
        return failure


def test_a_thread_starts_processes_commits_and_closes_everything() -> None:
    world = World().fed("a")
    t = Thread(world).run()
    assert t.states == [
        "STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "RUNNING", "PENDING_SHUTDOWN", "DEAD",
    ]  # fmt: skip
    assert world.producer.committed[TopicPartition("in", 0)].offset == 1
    assert world.state.held == set()
    assert world.clients.closed is True
    assert t.decided == []


@pytest.mark.parametrize(
    ("leave", "answers", "left"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_thread_that_has_ended_says_whether_the_group_has_confirmed_that_its_member_left(
    leave: bool, answers: bool, left: bool
) -> None:
    t = Thread(leave=leave)
    t.world.member.answers_leave = answers
    assert t.run().thread.left_group is left


def test_whether_the_group_is_left_is_said_by_whoever_stops_the_thread() -> None:
    assert Thread(leave=False).run().world.clients.closed is False


def test_a_thread_that_has_ended_leaves_its_memory_to_the_others() -> None:
    t = Thread()
    other = t.world.budget.join()
    whole = t.world.config.input_buffer_max_bytes
    assert other.part(Account.INPUT) == whole // 2
    t.run()
    assert other.part(Account.INPUT) == whole


def test_clients_that_cannot_be_made_end_the_thread_and_the_client_is_told_why() -> None:
    t, unreachable = Thread(), Mock(side_effect=KafkaUnreachableError("no broker"))
    t.thread = StreamThread(t.context, replace(t.world.parts, clients=unreachable), NO_CLIENTS)
    t.run()
    assert t.states == ["STARTING", "PENDING_SHUTDOWN"]
    assert isinstance(t.failure.error, KafkaUnreachableError)


def test_a_member_that_cannot_start_ends_the_thread_with_its_clients_closed() -> None:
    t = Thread()
    t.world.member.start = Mock(side_effect=MembershipError("not supported"))  # type: ignore[method-assign]
    t.run()
    assert t.world.clients.closed is True
    assert isinstance(t.failure.error, MembershipError)


@pytest.mark.parametrize("decision", list(UncaughtExceptionResponse))
def test_an_error_is_shown_to_the_handler_and_its_decision_is_told_after_everything_is_closed(
    decision: UncaughtExceptionResponse,
) -> None:
    t = Thread(World().fed("fail"), decision=decision, rounds=100).run()
    assert isinstance(t.failure.error, ProcessingError)
    assert t.failure.decision is decision
    assert t.decided == [t.failure.error]
    assert t.world.state.held == set()
    assert t.world.clients.closed is True


def test_an_error_of_user_code_is_in_the_log_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    t = Thread(World().fed("fail"), rounds=100).run()
    (told,) = [record for record in caplog.records if record.exc_info]
    assert str(t.failure.error) in told.getMessage()
    assert t.failure.error.__cause__ is not None


@pytest.mark.parametrize(("static", "leaves"), [(None, True), ("me", False)])
def test_a_static_member_that_dies_stays_in_the_group_as_it_is_expected_back(static: str | None, leaves: bool) -> None:
    world = World(settings={"group_instance_id": static}).fed("fail")
    assert Thread(world, rounds=100).run().world.clients.closed is leaves


def test_shutting_the_application_down_is_said_to_the_group() -> None:
    t = Thread(World().fed("fail"), decision=UncaughtExceptionResponse.SHUTDOWN_APPLICATION, rounds=100).run()
    assert "user code" in str(t.world.member.joins[-1].shutdown)


def test_a_thread_that_was_told_to_shut_down_asks_no_handler() -> None:
    t = Thread(rounds=100)
    t.each_round = Mock(side_effect=[None] * 4 + [ApplicationShutdownError("thread 7 died")])
    t.run()
    assert t.decided == []
    assert t.failure.decision is UncaughtExceptionResponse.SHUTDOWN_CLIENT


def test_even_an_exit_called_in_user_code_ends_in_order() -> None:
    t = Thread(rounds=100)
    t.each_round = Mock(side_effect=[None] * 4 + [SystemExit(3)])
    t.run()
    assert isinstance(t.failure.error.__cause__, SystemExit)
    assert t.world.state.held == set()


class FailsToClose(Counting):
    close_error = KeyboardInterrupt()  # type: ignore[assignment]


def test_a_task_that_does_not_close_cleanly_does_not_keep_the_thread_from_its_end() -> None:
    t = Thread(World(counting(processor=FailsToClose))).run()
    assert t.world.clients.closed is True
    assert isinstance(t.failure.error.__cause__, KeyboardInterrupt)


def test_a_thread_that_is_stopped_twice_stops_once() -> None:
    t = Thread(rounds=3)
    t.each_round = lambda _: t.thread.stop(leave_group=True)
    t.run()
    assert t.states.count("DEAD") == 1


def test_a_thread_that_is_stopped_while_kafka_is_away_gives_its_last_commit_up_after_ten_seconds() -> None:
    t = Thread(World(settings={"task_timeout_ms": 3_600_000, "commit_interval_ms": 9_000}))
    began: list[int] = []

    def each_round(poll: int) -> None:
        if poll == t.rounds - 2:
            put(t.world, 0, "a")
        if poll == t.rounds:
            t.world.producer.fail("flush", *[TIMED_OUT] * 1_000)
            began.append(t.world.clock.monotonic_ms())

    t.each_round = each_round
    t.run()
    assert t.states[-2:] == ["PENDING_SHUTDOWN", "DEAD"]
    assert t.decided == []
    assert STOP_PATIENCE_MS <= t.world.clock.monotonic_ms() - began[0] < 2 * STOP_PATIENCE_MS
