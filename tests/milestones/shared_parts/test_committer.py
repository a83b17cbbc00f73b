"""A commit, step by step, under both guarantees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.baseline.collection import DirectCollection
from milestones.baseline.processing import InlineProcessing
from milestones.common import serdes
from milestones.common.config.keys import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from milestones.common.errors import KafkaUnreachableError, OwnershipError, TaskMigratedError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.membership import CommitRetriableError, StaleGenerationError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.commit_set import freeze
from milestones.common.task.task import Task
from milestones.common.testing.faults import POINTS
from milestones.common.topology import StreamsBuilder
from milestones.parts.transaction import CommitAction, CommitEvent, CommitStage
from milestones.shared_parts.committer import Committer
from milestones.stream_thread.commits.transaction_register import TransactionRegister
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, IN, TIMED_OUT, A, World, counting, kafka_error

COMMIT_POINTS = [point for point in POINTS if point.startswith("commit.")]
POINTS_OF_TWO_TASKS = [*COMMIT_POINTS[:-1], *COMMIT_POINTS[-2:]]
"""Each of two tasks applies its part."""
ALOS = {"processing_guarantee": "at_least_once"}


class Committing:
    """Started tasks with two records each, processed but not committed."""

    def __init__(self, *partitions: int, world: World | None = None, **settings: Any) -> None:
        self.world = world or World(counting(), settings)
        clients: Any = self.world.clients
        self.collection = DirectCollection(self.world.context, clients)
        self.processing = InlineProcessing(self.world.context)
        self.failed_commit = self.world.parts.failed_commit(self.world.context)
        self.register = TransactionRegister(lambda task: True, self.failed_commit.answers)
        self.confirmation = self.world.parts.confirmation(self.world.context, clients, self.register.move)
        self.committer = self.made_by(self.world.parts.commit)
        self.tasks = [self.task(partition) for partition in partitions or (0,)]

    def made_by(self, committer: Callable[..., Any]) -> Any:
        return committer(
            self.collection, self.confirmation, self.processing, self.register, self.failed_commit
        )

    def task(self, partition: int) -> Task:
        task = self.world.task(partition)
        at = TopicPartition("in", partition)
        task.start({at: 0}, {})
        self.feed(task, "a", "b")
        return task

    def feed(self, task: Task, *values: str) -> None:
        (at,) = task.partitions
        log = self.world.logs[at]
        before = log.end
        log.add(*values)
        task.input.add(at, log.entries[before:])  # type: ignore[arg-type]
        task.process(10, 0)

    def commit(self) -> Any:
        self.committer.begin(freeze(self.tasks))
        return self.committer.run_once(0)


def at_each_point(monkeypatch: pytest.MonkeyPatch, call: Callable[[str], None]) -> None:
    """Have each fault point of a commit make this call."""
    for module in ("committer", "in_transaction"):
        monkeypatch.setattr(f"milestones.shared_parts.{module}.reach", call)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reached: list[str] = []
    at_each_point(monkeypatch, reached.append)
    return reached


def test_exactly_once_sends_flushes_sends_offsets_commits_and_applies_in_this_order(points: list[str]) -> None:
    c = Committing(0, 1)
    offsets = c.commit()
    assert c.world.producer.calls == ["send", "begin", "send", "flush", "send_offsets", "commit", "poll"]
    assert points == POINTS_OF_TWO_TASKS
    assert {p: at.offset for p, at in offsets.items()} == {IN: 2, TopicPartition("in", 1): 2}
    assert c.world.producer.committed == offsets
    assert [c.world.state.offset(task.id) for task in c.tasks] == [2, 2]


def test_at_least_once_commits_by_the_member_and_reaches_the_same_fault_points(points: list[str]) -> None:
    c = Committing(**ALOS)
    offsets = c.commit()
    assert c.world.producer.calls == ["send", "flush"]
    assert points == COMMIT_POINTS
    assert c.world.member.commits == [offsets]
    assert c.world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


def test_a_step_waits_no_longer_than_it_is_told_to_and_says_where_the_commit_is() -> None:
    c = Committing()
    committer = c.made_by(Committer)
    c.world.producer.withheld = {"flush", "send_offsets", "commit"}
    committer.begin(freeze(c.tasks))
    seen = []
    for call in ("flush", "send_offsets", "commit"):
        before = c.world.clock.monotonic_ms()
        assert committer.run_once(7) is None
        assert committer.run_once(7) is None
        joins = c.register.answer(CommitEvent.JOIN_NEEDED) is CommitAction.ANSWER
        seen.append((c.register.step, joins, c.world.clock.monotonic_ms() - before <= 14))
        c.world.producer.withheld.discard(call)
    assert committer.run_once(7) == c.world.producer.committed
    assert seen == [
        (CommitStage.FLUSHING, False, True), (CommitStage.OFFSETS, False, True), (CommitStage.ENDING, True, True)
    ]  # fmt: skip
    assert c.register.step is CommitStage.OPEN


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_a_commit_that_is_abandoned_counts_as_failed(guarantee: str) -> None:
    c = Committing(processing_guarantee=guarantee)
    committer = c.made_by(Committer)
    c.world.producer.withheld = {"flush"}
    committer.begin(freeze(c.tasks))
    assert committer.run_once(0) is None
    committer.abandon()
    assert c.register.step is CommitStage.OPEN
    assert c.tasks[0].commit_needed() == (guarantee == AT_LEAST_ONCE)
    c.tasks[0].roll_back()
    assert c.world.state.content(A) == {}


def test_a_second_commit_is_not_begun_beside_the_first() -> None:
    c = Committing()
    c.committer.begin({})
    with pytest.raises(OwnershipError, match="under way"):
        c.committer.begin({})


def test_a_task_that_has_produced_nothing_commits_its_offsets_too_so_that_the_commit_is_fenced() -> None:
    c = Committing(0)
    c.commit()
    c.world.producer.calls.clear()
    c.commit()
    assert c.world.producer.calls == ["flush", "begin", "send_offsets", "commit", "poll"]
    assert c.world.producer.offsets[IN].offset == 2


@pytest.mark.parametrize("call", ["send", "flush", "send_offsets", "commit"])
def test_whatever_fails_under_exactly_once_no_engine_gets_what_kafka_has_not_confirmed(call: str) -> None:
    c = Committing(0, 1)
    c.world.producer.fail(call, FENCED)
    with pytest.raises(KafkaException):
        c.commit()
    assert [c.world.state.content(task.id) for task in c.tasks] == [{}, {}]
    for task in c.tasks:
        task.roll_back()
        assert task.input.position(task.partitions[0]) == 0
        assert not task.commit_needed()


def test_after_a_roll_back_the_same_records_give_the_same_commit() -> None:
    c = Committing(0)
    c.world.producer.fail("send_offsets", ILLEGAL_GENERATION)
    with pytest.raises(KafkaException):
        c.commit()
    c.world.producer.abort(0)
    (task,) = c.tasks
    task.roll_back()
    task.initialise()
    c.world.logs[IN].entries.clear()
    c.feed(task, "a", "b")
    c.commit()
    assert c.world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert c.world.producer.committed[IN].offset == 2


@pytest.mark.parametrize("error", [CommitRetriableError("no answer"), StaleGenerationError("over")])
def test_what_a_failed_commit_of_at_least_once_staged_is_kept_for_the_next(error: Exception) -> None:
    c = Committing(**ALOS)
    (task,) = c.tasks
    c.world.member.commit_errors.append(error)
    with pytest.raises(type(error)):
        c.commit()
    assert task.commit_needed()
    assert c.world.state.content(A) == {}
    sent = len(c.world.producer.sent)
    c.feed(task, "c")
    c.commit()
    assert c.world.state.content(A) == {b"k": (3).to_bytes(8, "big")}
    assert c.world.state.offset(A) == 3
    assert len(c.world.producer.sent) == sent + 2
    assert c.world.member.committed[IN].offset == 3


def test_when_a_task_cannot_be_frozen_those_before_it_do_not_stay_frozen() -> None:
    c = Committing(0, 1, **ALOS)
    c.tasks[1].close()
    with pytest.raises(OwnershipError, match="closed"):
        c.commit()
    assert c.tasks[0].commit_needed()
    frozen = c.tasks[0].freeze()
    assert (frozen.offsets, len(frozen.outputs)) == ({IN: 2}, 4)


def test_a_task_whose_updates_wait_in_a_cache_is_left_to_the_next_commit() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().count("counts").to_stream().to("out")
    c = Committing(0, 1, world=World(builder.build(), {"statestore_cache_max_bytes": 10_000_000}))
    assert c.commit() == {}
    assert c.world.producer.calls == []
    c.tasks[1].flush()
    assert c.commit().keys() == {TopicPartition("in", 1)}


def test_under_exactly_once_a_passing_error_is_answered_by_the_same_call_again() -> None:
    c = Committing()
    c.world.producer.fail("send_offsets", TIMED_OUT, TIMED_OUT)
    c.world.producer.fail("commit", kafka_error(KafkaError.COORDINATOR_NOT_AVAILABLE, retriable=True))
    c.commit()
    assert c.world.producer.calls[-6:] == ["send_offsets"] * 3 + ["commit"] * 2 + ["poll"]
    assert c.world.clock.monotonic_ms() > 0, "retries must not spin"


def test_after_a_broken_connection_the_next_transaction_has_a_producer_of_its_own() -> None:
    """The end of this one may have been sent twice, and what comes late would end the next one of the same producer."""
    c = Committing()
    first = c.world.producer
    first.disconnected = True
    c.commit()
    assert (first.closed, c.world.clients.renewed) == (True, 1)
    assert c.world.state.offset(A) == 2, "what Kafka has acknowledged passes on to the new one"


def test_a_commit_that_was_made_stays_made_when_the_next_producer_is_not_ready() -> None:
    c = Committing()
    c.world.producer.disconnected = True
    c.world.clients.renewal_error = KafkaUnreachableError("no broker")
    c.commit()
    assert c.world.state.offset(A) == 2


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_a_commit_ends_a_producer_that_tells_outputs_apart_once_it_is_made(guarantee: str) -> None:
    c = Committing(processing_guarantee=guarantee)
    c.world.producer.isolation = BatchIsolation()
    if guarantee == AT_LEAST_ONCE:
        c.world.member.commit_errors.append(CommitRetriableError("no answer"))
        with pytest.raises(CommitRetriableError):
            c.commit()
        assert c.world.producer.isolation
    c.commit()
    assert not c.world.producer.isolation
    assert c.world.state.offset(A) == 2, "what Kafka has acknowledged passes on to the new one"


def test_without_transactions_a_broken_connection_costs_no_producer() -> None:
    c = Committing(**ALOS)
    c.world.producer.disconnected = True
    c.commit()
    assert c.world.clients.renewed == 0


def test_a_thread_that_is_to_stop_waits_for_a_next_producer_no_longer_than_it_was_left() -> None:
    c = Committing()
    c.world.producer.disconnected = True
    c.world.context.retry_policy.hurry(500)
    c.commit()
    assert c.world.clients.within_ms == 500


def test_an_outcome_that_stays_unknown_for_task_timeout_gives_the_tasks_up() -> None:
    c = Committing(task_timeout_ms=1_000)
    c.world.producer.fail("commit", *[TIMED_OUT] * 100)
    with pytest.raises(TaskMigratedError, match=r"commit_transaction.*task_timeout_ms"):
        c.commit()
    assert 1_000 <= c.world.clock.monotonic_ms() < 2_000


def test_records_that_are_not_acknowledged_in_time_are_waited_for_until_task_timeout() -> None:
    c = Committing()
    c.world.producer.fail("flush", TIMED_OUT, TIMED_OUT)
    c.commit()
    assert c.world.producer.calls.count("flush") == 3


def test_a_member_without_a_generation_commits_nothing() -> None:
    c = Committing()
    c.world.member.metadata_error = StaleGenerationError("none")
    with pytest.raises(StaleGenerationError):
        c.commit()
    assert "commit" not in c.world.producer.calls
    assert c.world.state.content(A) == {}


@pytest.mark.parametrize("point", COMMIT_POINTS)
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_a_crash_at_any_point_of_a_commit_leaves_engines_with_committed_data_only(
    point: str, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(reached: str) -> None:
        if reached == point:
            raise SystemExit(point)

    at_each_point(monkeypatch, crash)
    c = Committing(processing_guarantee=guarantee)
    with pytest.raises(SystemExit):
        c.commit()
    committed = c.world.producer.committed or c.world.member.committed
    applied = c.world.state.content(A)
    assert applied in ({}, {b"k": (2).to_bytes(8, "big")})
    assert not applied or committed == {IN: OffsetAndMetadata(2, committed[IN].metadata)}
    assert bool(committed) == (point in ("commit.after-commit", "commit.in-apply", "commit.after-apply"))


@pytest.mark.parametrize("longest_ms", [24_000, 300_000])
def test_offsets_without_a_transaction_have_an_answer_within_a_quarter_of_the_poll_interval(longest_ms: int) -> None:
    """The member waits up to twice the time-out: a request that was sent just before may take as long again."""
    c = Committing(max_poll_interval_ms=longest_ms, **ALOS)
    asked: list[int] = []
    begin = c.world.member.begin_commit

    def begin_commit(offsets: Any, timeout_ms: int) -> None:
        asked.append(timeout_ms)
        begin(offsets, timeout_ms)

    c.world.member.begin_commit = begin_commit  # type: ignore[method-assign]
    c.commit()
    assert [2 * timeout_ms <= longest_ms // 4 for timeout_ms in asked] == [True]
