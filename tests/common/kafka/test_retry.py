"""What may pass is asked for again, for as long as there is time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.testing import StepClock

PASSING = KafkaException(KafkaError(KafkaError._TRANSPORT))
LASTING = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))


def failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_a_call_is_repeated_while_its_error_may_pass() -> None:
    clock = StepClock()
    assert RetryPolicy(1_000, clock).retry(failing(PASSING, PASSING), is_passing) == "done"
    assert clock.monotonic_ms() == 100


def test_a_lasting_error_is_not_repeated() -> None:
    clock = StepClock()
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        RetryPolicy(1_000, clock).retry(failing(LASTING), is_passing)
    assert clock.monotonic_ms() == 0


def test_when_time_is_up_the_last_error_is_raised_and_the_next_call_has_its_own_time() -> None:
    clock = StepClock()
    retry_policy = RetryPolicy(1_000, clock)
    with pytest.raises(KafkaException, match="Broker transport failure"):
        retry_policy.retry(failing(*[PASSING] * 100), is_passing)
    assert clock.monotonic_ms() == 1_000
    assert retry_policy.retry(failing(PASSING), is_passing) == "done"


def test_in_a_hurry_all_calls_share_the_time_that_is_left_and_each_is_still_made_once() -> None:
    clock = StepClock()
    retry_policy = RetryPolicy(60_000, clock)
    retry_policy.hurry(500)
    with pytest.raises(KafkaException):
        retry_policy.retry(failing(*[PASSING] * 100), is_passing)
    assert clock.monotonic_ms() == 500
    with pytest.raises(KafkaException):
        retry_policy.retry(failing(PASSING), is_passing)
    assert clock.monotonic_ms() == 500
    assert retry_policy.retry(failing(), is_passing) == "done"


def test_who_hurries_twice_gains_no_time() -> None:
    clock = StepClock()
    retry_policy = RetryPolicy(60_000, clock)
    retry_policy.hurry(100)
    retry_policy.hurry(5_000)
    with pytest.raises(KafkaException):
        retry_policy.retry(failing(*[PASSING] * 200), is_passing)
    assert clock.monotonic_ms() == 100


def test_a_hurry_reaches_a_call_that_is_being_repeated() -> None:
    clock = StepClock()
    retry_policy = RetryPolicy(60_000, clock)

    def call() -> None:
        if clock.monotonic_ms() == 200:
            retry_policy.hurry(100)
        raise PASSING

    with pytest.raises(KafkaException):
        retry_policy.retry(call, is_passing)
    assert clock.monotonic_ms() == 300


def test_a_call_may_be_given_less_time_than_others() -> None:
    clock = StepClock()
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        RetryPolicy(1_000, clock).retry(failing(*[PASSING] * 100), is_passing, within_ms=300)
    assert clock.monotonic_ms() == 300


def test_what_is_left_in_a_hurry_is_known() -> None:
    clock = StepClock()
    retry_policy = RetryPolicy(1_000, clock)
    assert retry_policy.rest_ms() == float("inf")
    retry_policy.hurry(500)
    clock.advance(200)
    assert retry_policy.rest_ms() == 300
    clock.advance(400)
    assert retry_policy.rest_ms() == 0
