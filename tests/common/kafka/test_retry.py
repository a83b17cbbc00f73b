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


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def policy(clock: StepClock) -> RetryPolicy:
    return RetryPolicy(1_000, clock)


def failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def gives_up(policy: RetryPolicy, *errors: Exception, within_ms: int | None = None) -> None:
    with pytest.raises(KafkaException, match="Broker transport failure"):
        policy.retry(failing(*errors or [PASSING] * 200), is_passing, within_ms=within_ms)


def test_a_call_is_repeated_while_its_error_may_pass(policy: RetryPolicy, clock: StepClock) -> None:
    assert policy.retry(failing(PASSING, PASSING), is_passing) == "done"
    assert clock.monotonic_ms() == 100


def test_a_lasting_error_is_not_repeated(policy: RetryPolicy, clock: StepClock) -> None:
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        policy.retry(failing(LASTING), is_passing)
    assert clock.monotonic_ms() == 0


def test_when_time_is_up_the_last_error_is_raised_and_the_next_call_has_its_own_time(
    policy: RetryPolicy, clock: StepClock
) -> None:
    gives_up(policy)
    assert clock.monotonic_ms() == 1_000
    assert policy.retry(failing(PASSING), is_passing) == "done"


def test_in_a_hurry_all_calls_share_the_time_that_is_left_and_each_is_still_made_once(
    policy: RetryPolicy, clock: StepClock
) -> None:
    policy.hurry(500)
    for errors in ((), (PASSING,)):
        gives_up(policy, *errors)
        assert clock.monotonic_ms() == 500
    assert policy.retry(failing(), is_passing) == "done"


def test_who_hurries_twice_gains_no_time(policy: RetryPolicy, clock: StepClock) -> None:
    policy.hurry(100)
    policy.hurry(5_000)
    gives_up(policy)
    assert clock.monotonic_ms() == 100


def test_a_hurry_reaches_a_call_that_is_being_repeated(policy: RetryPolicy, clock: StepClock) -> None:
    def call() -> None:
        if clock.monotonic_ms() == 200:
            policy.hurry(100)
        raise PASSING

    with pytest.raises(KafkaException):
        policy.retry(call, is_passing)
    assert clock.monotonic_ms() == 300


def test_a_call_may_be_given_less_time_than_others(policy: RetryPolicy, clock: StepClock) -> None:
    gives_up(policy, within_ms=300)
    assert clock.monotonic_ms() == 300


def test_what_is_left_in_a_hurry_is_known(policy: RetryPolicy, clock: StepClock) -> None:
    assert policy.rest_ms() == float("inf")
    policy.hurry(500)
    clock.advance(200)
    assert policy.rest_ms() == 300
    clock.advance(400)
    assert policy.rest_ms() == 0
