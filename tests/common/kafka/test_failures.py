"""What a client's error means: facts measured on a real broker, as one table. The broker's own word is asked for in
`test_producer_transactions.py`."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.failures import (
    REFUSED_RECORD,
    REFUSED_TOPIC,
    STALE_MEMBER,
    UNREACHABLE,
    ErrorClass,
    classify,
    error_of,
    is_passing,
    may_succeed_later,
)


def error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "made by a test", fatal, retriable, abort))


@pytest.mark.parametrize(
    ("raised", "failure"),
    [
        (error(KafkaError._FENCED, fatal=True), ErrorClass.FATAL),
        (error(KafkaError._FATAL), ErrorClass.FATAL),
        (error(KafkaError._STATE), ErrorClass.FATAL),
        (error(KafkaError.INVALID_PRODUCER_EPOCH), ErrorClass.FATAL),
        (error(KafkaError.ILLEGAL_GENERATION, abort=True), ErrorClass.ABORTABLE),
        (error(KafkaError.UNKNOWN_MEMBER_ID, abort=True), ErrorClass.ABORTABLE),
        (error(KafkaError.FENCED_INSTANCE_ID, abort=True), ErrorClass.ABORTABLE),
        (error(KafkaError.MSG_SIZE_TOO_LARGE, abort=True), ErrorClass.ABORTABLE),
        (error(KafkaError._TIMED_OUT, retriable=True), ErrorClass.RETRIABLE),
        (error(KafkaError._TIMED_OUT), ErrorClass.RETRIABLE),
        (error(KafkaError._CONFLICT, retriable=True), ErrorClass.RETRIABLE),
        (error(KafkaError.COORDINATOR_NOT_AVAILABLE), ErrorClass.RETRIABLE),
    ],
    ids=lambda value: value.args[0].name() if isinstance(value, KafkaException) else value.name,
)
def test_an_error_of_a_producer_call_has_one_class(raised: KafkaException, failure: ErrorClass) -> None:
    assert classify(raised) is failure


def test_the_fatal_mark_outweighs_all_others_and_an_abort_outweighs_a_retry() -> None:
    assert classify(error(KafkaError._TIMED_OUT, fatal=True, retriable=True, abort=True)) is ErrorClass.FATAL
    assert classify(error(KafkaError._TIMED_OUT, retriable=True, abort=True)) is ErrorClass.ABORTABLE


@pytest.mark.parametrize("code", sorted(STALE_MEMBER))
def test_a_group_that_refuses_a_commit_never_costs_the_producer(code: int) -> None:
    assert classify(error(code)) is ErrorClass.ABORTABLE


def test_an_exception_that_carries_no_error_of_the_client_is_fatal() -> None:
    assert classify(ValueError("other")) is ErrorClass.FATAL
    assert classify(KafkaException("text only")) is ErrorClass.FATAL
    assert error_of(KafkaException("text only")) is None


@pytest.mark.parametrize("code", [*sorted(UNREACHABLE), KafkaError.UNSTABLE_OFFSET_COMMIT])
def test_what_passes_when_brokers_come_back_is_passing(code: int) -> None:
    assert is_passing(error(code))


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_rights_and_missing_topics_do_not_pass(code: int) -> None:
    assert not is_passing(error(code))
    assert not is_passing(error(KafkaError._TRANSPORT, fatal=True))
    assert not is_passing(ValueError("other"))


def test_no_record_is_refused_for_good_by_a_code_that_may_pass() -> None:
    assert not (REFUSED_RECORD | REFUSED_TOPIC) & UNREACHABLE
    for code in REFUSED_RECORD | REFUSED_TOPIC:
        assert not may_succeed_later(KafkaError(code))
