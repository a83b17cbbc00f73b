"""Which error costs what, with fencing tolerance."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import (
    KafkaUnreachableError,
    RefusedTogetherError,
    RejectionIdentifiedError,
    TaskCorruptedError,
    TaskMigratedError,
    TransactionalIdError,
)
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.m3_fencing_tolerance.takeovers import TAKEOVER_WINDOW_MS
from milestones.m3_fencing_tolerance.transaction import RolledBackError
from tests.milestones.fakes import FENCED, ILLEGAL_GENERATION, TIMED_OUT, A, kafka_error
from tests.milestones.m3_fencing_tolerance.tolerant import TolerantWorld, unready

TIMEOUT_MS = 2_000


def made(**settings: Any) -> tuple[TolerantWorld, InPlaceRecovery]:
    world = TolerantWorld(settings={"transaction_timeout_ms": TIMEOUT_MS, **settings})
    world.producer.begin()
    return world, world.recovery()


REBUILT: dict[str, Exception] = {
    "a fenced producer": FENCED,
    "an expired transactional id": kafka_error(KafkaError.INVALID_PRODUCER_ID_MAPPING, abort=True),
    "an error without any flag": kafka_error(KafkaError._STATE),
    "a call that kept failing": TIMED_OUT,
    "a call that hangs": kafka_error(KafkaError._TIMED_OUT, fatal=True),
}


@pytest.mark.parametrize("error", REBUILT.values(), ids=REBUILT)
def test_costs_the_producer_and_nothing_else(error: Exception) -> None:
    world, recovery = made()
    assert recovery.recover(error)
    assert world.clients.renewed == 1
    assert (recovery.recovered, recovery.lost) == (1, 0)


def test_an_abort_that_fails_costs_the_producer_only() -> None:
    world, recovery = made()
    world.producer.fail("abort", TIMED_OUT)
    assert recovery.recover(ILLEGAL_GENERATION)
    assert world.clients.renewed == 1


@pytest.mark.parametrize("died", [FENCED, SystemError("returned NULL")], ids=["fenced", "system error"])
def test_a_producer_that_dies_right_after_an_abort_is_replaced(died: Exception) -> None:
    world, recovery = made()
    world.producer.fail("poll", died)
    assert recovery.recover(ILLEGAL_GENERATION)
    assert world.clients.renewed == 1


@pytest.mark.parametrize("error", [FENCED, ILLEGAL_GENERATION, StaleGenerationError("none")], ids=str)
def test_a_member_that_the_group_has_given_up_loses_its_tasks(error: Exception) -> None:
    world, recovery = made()
    world.member.answer_error = StaleGenerationError("removed")
    assert not recovery.recover(error)
    assert (recovery.recovered, recovery.lost) == (0, 1)


def test_a_zombie_asks_before_it_goes_on() -> None:
    """Its session is over, its generation still looks valid from inside."""
    world, recovery = made()
    world.member.answer_error = StaleGenerationError("removed")
    assert not recovery.recover(FENCED)
    assert world.clients.renewed == 1, "and what it left open has been ended"


def test_an_outcome_that_nobody_knows_costs_the_tasks() -> None:
    _, recovery = made()
    assert not recovery.recover(TaskMigratedError("unknown"))
    assert recovery.lost == 1


def test_tasks_that_are_lost_leave_no_transaction_open() -> None:
    world, recovery = made()
    assert not recovery.recover(TaskMigratedError("lost"))
    assert not world.producer.in_transaction
    assert recovery.lost == 1


@pytest.mark.parametrize("error", [TaskMigratedError("lost"), TaskCorruptedError("lost", [A])], ids=type)
def test_without_transactions_what_lost_tasks_have_queued_is_thrown_away(error: Exception) -> None:
    world = TolerantWorld(settings={"processing_guarantee": "at_least_once"})
    old, recovery = world.producer, world.recovery()
    world.member.metadata_error = StaleGenerationError("this member has no generation")
    assert not recovery.recover(error)
    assert old.closed


@pytest.mark.parametrize("error", [TaskMigratedError("lost"), TaskCorruptedError("lost", [A])], ids=type)
def test_without_transactions_a_producer_with_records_of_lost_tasks_ends_with_the_thread(error: Exception) -> None:
    """When no new producer can be made: the old one would send them behind those of the tasks' next owners."""
    world = TolerantWorld(settings={"processing_guarantee": "at_least_once"})
    world.member.metadata_error = StaleGenerationError("this member has no generation")
    world.clients.renewal_error = KafkaUnreachableError("no new producer can be made")
    with pytest.raises(KafkaUnreachableError):
        world.recovery().recover(error)


def test_a_commit_that_is_known_to_be_rolled_back_has_its_new_producer_already() -> None:
    world, recovery = made()
    assert recovery.recover(RolledBackError(FENCED, TIMEOUT_MS))
    assert world.clients.renewed == 0
    assert (recovery.fenced, recovery.recovered) == (1, 1)


def test_a_producer_that_is_not_ready_in_time_leaves_the_tasks_in_place_and_is_made_again_at_the_next_send() -> None:
    world, recovery = made()
    world.clients.renewal_error = unready(TIMED_OUT)
    assert recovery.recover(FENCED)
    world.clients.renewal_error = None
    with pytest.raises(Exception, match="_STATE") as caught:
        world.producer.begin()
    assert recovery.recover(caught.value)
    world.producer.begin()
    assert world.clients.renewed == 2


@pytest.mark.parametrize(
    "error",
    [
        kafka_error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True),
        kafka_error(KafkaError.GROUP_AUTHORIZATION_FAILED, abort=True),
        kafka_error(KafkaError.INVALID_TRANSACTION_TIMEOUT, fatal=True),
    ],
    ids=str,
)
def test_what_no_repetition_helps_ends_the_thread_and_says_what_to_do(error: Exception) -> None:
    _, recovery = made()
    with pytest.raises(TransactionalIdError, match=r"app-tx.*grant the user"):
        recovery.recover(error)


def test_a_new_producer_that_kafka_refuses_ends_the_thread_and_says_what_to_do() -> None:
    world, recovery = made()
    world.clients.renewal_error = unready(kafka_error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True))
    with pytest.raises(TransactionalIdError, match=r"app-tx.*grant the user"):
        recovery.recover(FENCED)


# -- whose transactional id it is


def fenced(world: TolerantWorld, recovery: InPlaceRecovery, age_ms: int | None) -> bool:
    world.producer.begin()
    world.producer.age = age_ms
    world.producer.in_transaction = age_ms is not None
    return recovery.recover(FENCED)


def test_transactions_that_time_out_are_no_take_over_however_often() -> None:
    world, recovery = made()
    assert all(fenced(world, recovery, TIMEOUT_MS) for _ in range(10))
    assert recovery.fenced == 10


@pytest.mark.parametrize("age_ms", [0, TIMEOUT_MS - 1, None], ids=["new", "nearly timed out", "none open"])
def test_an_id_that_is_taken_over_again_and_again_is_used_by_somebody_else(age_ms: int | None) -> None:
    world, recovery = made()
    assert fenced(world, recovery, age_ms)
    assert fenced(world, recovery, age_ms)
    with pytest.raises(TransactionalIdError, match=r"app-tx.*state_dir"):
        fenced(world, recovery, age_ms)


def test_take_overs_that_are_far_apart_are_forgiven() -> None:
    world, recovery = made()
    for _ in range(10):
        assert fenced(world, recovery, 0)
        world.clock.advance(TAKEOVER_WINDOW_MS // 2)


def test_a_take_over_that_shows_in_the_commit_counts_too() -> None:
    _, recovery = made()
    for _ in range(2):
        assert recovery.recover(RolledBackError(FENCED, 0))
    with pytest.raises(TransactionalIdError):
        recovery.recover(RolledBackError(FENCED, 0))


def test_a_take_over_while_the_new_producer_is_made_counts_too() -> None:
    world, recovery = made()
    world.clients.renewal_error = unready(FENCED)
    assert recovery.recover(FENCED)
    with pytest.raises(TransactionalIdError):
        recovery.recover(FENCED)


# -- a record that the broker refuses


def test_a_transaction_that_fails_of_one_record_is_made_again_with_its_outputs_told_apart() -> None:
    world, recovery = made()
    old = world.producer
    assert recovery.recover(RefusedInTransactionError("refused", single=True))
    assert old.closed
    assert world.producer.isolation


def test_tasks_whose_outputs_were_refused_together_get_a_producer_that_tells_them_apart_at_once() -> None:
    """The new producer ends the open transaction: no abort is waited for."""
    world, recovery = made()
    old = world.producer
    assert recovery.recover(RefusedTogetherError("refused", [A]))
    assert (world.clients.renewed, world.producer.isolation) == (1, BatchIsolation())
    assert "abort" not in old.calls


def test_once_it_is_known_which_output_is_refused_they_are_not_told_apart_any_more() -> None:
    world, recovery = made()
    world.producer.isolation = BatchIsolation()
    assert recovery.recover(RejectionIdentifiedError("refused", [A]))
    assert (world.clients.renewed, world.producer.isolation) == (1, None)


def test_what_is_given_up_then_leaves_a_producer_that_cannot_go_on() -> None:
    world, recovery = made()
    world.producer.isolation = BatchIsolation()
    assert recovery.recover(TaskCorruptedError("given up", [A]))
    assert (world.clients.renewed, world.producer.isolation) == (1, BatchIsolation())


def test_a_transaction_that_fails_of_one_record_although_they_are_told_apart_ends_the_thread() -> None:
    world, recovery = made()
    world.producer.isolation = BatchIsolation()
    with pytest.raises(RefusedInTransactionError):
        recovery.recover(RefusedInTransactionError("refused", single=True))


def test_a_topic_that_is_refused_ends_the_thread() -> None:
    world, recovery = made()
    with pytest.raises(RefusedInTransactionError):
        recovery.recover(RefusedInTransactionError("refused", single=False))
    assert not world.producer.isolation
