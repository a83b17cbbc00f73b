"""A commit's transaction, whatever becomes of its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import ProductionError, TaskMigratedError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.steps import Steps, to_the_end
from milestones.m3_fencing_tolerance.transaction import CALL_MS, ResolvedTransaction, RolledBackError
from milestones.parts.transaction import CommitStage
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, LOG, TIMED_OUT, kafka_error
from tests.milestones.m3_fencing_tolerance.tolerant import IN, TolerantWorld, numbered, unready

TRIED = {IN: numbered(7, 3)}
BEFORE = {IN: numbered(5, 2)}
UNANSWERED: dict[str, list[Exception]] = {
    "fenced": [FENCED],
    "no answer for as long as the transaction may last": [TIMED_OUT] * 1_000,
    "committed by the broker, given up by the client": [kafka_error(KafkaError._TIMED_OUT, fatal=True)],
    "an error without a flag": [kafka_error(KafkaError._STATE)],
    "abortable, but the abort fails": [kafka_error(KafkaError._MSG_TIMED_OUT, abort=True)],
}


class Confirming:
    """A transaction with what it commits; the group has committed what was before."""

    def __init__(self, **settings: Any) -> None:
        self.world = TolerantWorld(settings={"transaction_timeout_ms": 2_000, **settings})
        self.clients: Any = self.world.clients
        self.moves: list[CommitStage] = []
        self.transaction = ResolvedTransaction(self.world.context, self.clients, self.moves.append)
        self.world.member.committed.update(BEFORE)
        self.first = self.world.producer
        self.first.begin()
        self.first.acknowledged[LOG] = 11

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] = TRIED) -> None:
        to_the_end(self.transaction.hand_over(offsets))
        to_the_end(self.transaction.end(offsets))

    def fail(self, errors: list[Exception], *, committed: bool = False) -> None:
        """The end of the transaction has these answers; the broker has made it, or hasn't."""
        self.first.fail("commit", *errors)
        self.first.fail("abort", FENCED)
        if committed:
            self.world.member.committed.update(TRIED)


def test_a_commit_that_is_answered_is_one_transaction_with_the_same_producer() -> None:
    c = Confirming()
    c.confirm()
    assert c.first.calls == ["begin", "send_offsets", "commit", "poll"]
    assert c.first.committed == TRIED
    assert c.world.clients.renewed == 0
    assert c.moves == [], "the member may join"


def test_a_passing_error_is_answered_by_the_same_call_again() -> None:
    c = Confirming()
    c.first.fail("send_offsets", TIMED_OUT)
    c.first.fail("commit", TIMED_OUT, kafka_error(KafkaError.COORDINATOR_NOT_AVAILABLE))
    c.confirm()
    assert c.first.calls.count("send_offsets") == 2
    assert c.first.calls.count("commit") == 3
    assert c.world.clients.renewed == 0


@pytest.mark.parametrize("errors", UNANSWERED.values(), ids=UNANSWERED)
def test_a_commit_whose_answer_is_lost_and_that_was_made_is_confirmed(errors: list[Exception]) -> None:
    c = Confirming()
    c.fail(errors, committed=True)
    c.confirm()
    assert c.world.clients.renewed == 1
    assert c.first.closed
    assert c.moves == [CommitStage.RESOLVING], "the group is asked under the member's generation"


@pytest.mark.parametrize("errors", UNANSWERED.values(), ids=UNANSWERED)
def test_a_commit_whose_answer_is_lost_and_that_was_not_made_is_known_as_rolled_back(errors: list[Exception]) -> None:
    c = Confirming()
    c.fail(errors)
    with pytest.raises(RolledBackError):
        c.confirm()
    assert c.world.clients.renewed == 1


def test_what_was_acknowledged_stays_known_when_the_producer_is_replaced() -> None:
    c = Confirming()
    c.fail([FENCED], committed=True)
    c.confirm()
    assert c.world.producer is not c.first
    assert c.world.producer.acknowledged == {LOG: 11}


def test_an_unanswered_end_is_asked_for_again_only_as_long_as_the_transaction_may_last() -> None:
    c = Confirming()
    c.fail([TIMED_OUT] * 1_000, committed=True)
    c.confirm()
    assert 2_000 <= c.world.clock.monotonic_ms() < 2_200


@pytest.mark.parametrize("error", [FENCED, TIMED_OUT, ILLEGAL_GENERATION, kafka_error(KafkaError._STATE)])
def test_what_fails_before_the_end_is_asked_for_was_not_committed_and_needs_no_question(error: KafkaException) -> None:
    c = Confirming()
    c.first.fail("send_offsets", *[error] * 1_000)
    with pytest.raises(KafkaException) as caught:
        c.confirm()
    assert caught.value is error
    assert "commit" not in c.first.calls
    assert c.world.member.questions == []


def test_a_member_without_a_generation_opens_no_transaction() -> None:
    c = Confirming()
    c.first.in_transaction = False
    c.first.calls.clear()
    c.world.member.metadata_error = StaleGenerationError("none")
    with pytest.raises(StaleGenerationError):
        c.confirm()
    assert c.first.calls == []


def test_an_abortable_error_is_proven_by_its_abort_and_the_producer_stays() -> None:
    c = Confirming()
    error = kafka_error(KafkaError._MSG_TIMED_OUT, abort=True)
    c.first.fail("commit", error)
    with pytest.raises(KafkaException) as caught:
        c.confirm()
    assert caught.value is error
    assert c.first.calls[-1] == "abort"
    assert c.world.clients.renewed == 0


def test_a_record_that_the_broker_refuses_is_told_as_such() -> None:
    c = Confirming()
    c.first.fail("commit", ProductionError("too large"))
    with pytest.raises(ProductionError):
        c.confirm()


def test_a_commit_that_no_repetition_helps_is_told_as_it_is_and_nothing_else_is_asked() -> None:
    c = Confirming()
    refused = kafka_error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True)
    c.first.fail("commit", refused)
    with pytest.raises(KafkaException) as caught:
        c.confirm()
    assert caught.value is refused
    assert (c.world.clients.renewed, c.world.member.questions) == (0, [])


def _silent(c: Confirming) -> None:
    c.world.member.holds = True


def _unready(c: Confirming) -> None:
    c.world.clients.renewal_error = unready(TIMED_OUT)


def _unmade(c: Confirming) -> None:
    c.world.clients.renewal_error = kafka_error(KafkaError._FAIL)


def _lost(c: Confirming) -> None:
    c.world.member.answer_error = StaleGenerationError("removed")


def _taken(c: Confirming) -> None:
    c.world.member.committed[IN] = numbered(9, 4, "other")


UNKNOWN: dict[str, Callable[[Confirming], None]] = {
    "the group's coordinator is silent": _silent,
    "no producer can be initialised": _unready,
    "no producer can be made, for lack of threads or descriptors": _unmade,
    "the group has given us up": _lost,
    "somebody else has committed since": _taken,
}


@pytest.mark.parametrize("why", UNKNOWN.values(), ids=UNKNOWN)
def test_an_outcome_that_stays_unknown_costs_the_tasks_and_is_never_guessed(why: Callable[[Confirming], None]) -> None:
    c = Confirming(task_timeout_ms=50, request_timeout_ms=50)
    c.fail([FENCED])
    why(c)
    with pytest.raises(TaskMigratedError) as caught:
        c.confirm()
    assert not isinstance(caught.value, RolledBackError | StaleGenerationError), "it would be rolled back in place"


def test_after_a_broken_connection_the_next_transaction_has_a_producer_of_its_own() -> None:
    c = Confirming()
    c.first.disconnected = True
    c.confirm()
    assert c.first.committed == TRIED
    assert c.world.clients.renewed == 1
    assert c.world.producer.acknowledged == {LOG: 11}


def test_after_a_transaction_with_outputs_told_apart_comes_an_ordinary_one() -> None:
    c = Confirming()
    c.first.isolation = BatchIsolation()
    c.confirm()
    assert c.first.committed == TRIED
    assert not c.world.producer.isolation


def test_a_commit_that_was_made_stays_made_when_the_next_producer_is_not_ready() -> None:
    c = Confirming()
    c.first.disconnected = True
    c.world.clients.renewal_error = unready(TIMED_OUT)
    c.confirm()
    assert c.world.producer.acknowledged == {LOG: 11}


@pytest.mark.parametrize("error", [FENCED, SystemError("returned NULL")], ids=["fenced", "system error"])
def test_a_commit_that_was_made_stays_made_when_its_producer_dies_right_after(error: Exception) -> None:
    c = Confirming()
    c.first.fail("poll", error)
    c.confirm()
    assert c.world.clients.renewed == 1


def test_a_thread_that_is_to_stop_does_not_wait_longer_than_it_may() -> None:
    c = Confirming()
    c.world.context.retry_policy.hurry(500)
    c.fail([TIMED_OUT] * 1_000)
    with pytest.raises(RolledBackError):
        c.confirm()
    assert c.world.clock.monotonic_ms() < 700


def test_all_offsets_of_a_commit_are_asked_for_at_once() -> None:
    c = Confirming()
    asked: list[Any] = []
    c.world.member.holds = True
    original = c.world.member.fetch_offsets

    def note(number: int, partitions: frozenset[TopicPartition], reply_to: Any) -> None:
        asked.append(partitions)
        original(number, partitions, reply_to)
        c.world.member.answer()

    c.world.member.fetch_offsets = note  # type: ignore[method-assign]
    c.fail([FENCED], committed=True)
    both = {**TRIED, TopicPartition("in", 1): OffsetAndMetadata(1, TRIED[IN].metadata)}
    c.world.member.committed.update(both)
    c.confirm(both)
    assert asked == [frozenset(both)]


def test_an_unanswered_end_leaves_time_to_find_out_how_it_ended_however_long_a_transaction_may_last() -> None:
    c = Confirming(transaction_timeout_ms=120_000, max_poll_interval_ms=300_000)
    c.fail([TIMED_OUT] * 10_000, committed=True)
    c.confirm()
    assert c.world.clients.within_ms == 75_000


def test_a_commit_and_the_question_how_it_ended_take_half_of_the_poll_interval_however_short_that_is() -> None:
    c = Confirming(transaction_timeout_ms=10_000, max_poll_interval_ms=30_000)
    clock, renew = c.world.clock, c.clients.renew_producer

    def offsets_are_late(*_: Any) -> None:
        clock.advance(7_000)

    def commit(timeout_ms: int) -> None:
        clock.advance(timeout_ms)
        raise TIMED_OUT

    def renewed(within_ms: int) -> Steps[None]:
        clock.advance(within_ms)
        return renew(within_ms)

    c.first.send_offsets, c.first.commit = offsets_are_late, commit  # type: ignore[method-assign]
    c.clients.renew_producer = renewed
    with pytest.raises(RolledBackError):
        c.confirm()
    assert clock.monotonic_ms() <= 30_000 // 2


def test_a_healthy_commit_has_time_also_when_no_call_is_to_be_repeated() -> None:
    c = Confirming(task_timeout_ms=0)
    c.confirm()
    assert min(c.first.timeouts) == CALL_MS
