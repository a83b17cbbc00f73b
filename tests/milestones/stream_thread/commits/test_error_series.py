"""A series of errors ends in one that names the last; single ones are forgotten."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import RefusedTogetherError, TimeoutExceededError
from milestones.common.kafka.membership import StaleGenerationError
from milestones.stream_thread.commits.error_series import CALM_MS, ErrorSeries


def failing_at(series: ErrorSeries, now_ms: int, error: Exception | None = None, *, commits: int = 3) -> None:
    """An error at once in a turn of its own, and a recovery that takes no time."""
    series.note(error or ValueError(), commits, turn_ms=now_ms, now_ms=now_ms)
    series.over(now_ms)


def test_errors_without_a_commit_in_between_end_after_the_task_timeout() -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    for now_ms in (0, 400, 800, 1_000):
        failing_at(series, now_ms)
    with pytest.raises(TimeoutExceededError, match="last"):
        failing_at(series, 1_001, ValueError("last"))


def test_of_a_long_recovery_or_a_standstill_half_of_the_task_timeout_counts_at_most() -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    failing_at(series, 0)
    failing_at(series, 5_000)
    failing_at(series, 5_500)
    with pytest.raises(TimeoutExceededError):
        failing_at(series, 5_501)


def test_a_commit_in_between_begins_a_new_series() -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    failing_at(series, 0)
    failing_at(series, 2_000, commits=4)
    failing_at(series, 3_000, commits=4)


def test_errors_far_apart_are_not_a_series() -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    for number in range(5):
        failing_at(series, number * (CALM_MS + 1))


def test_errors_are_not_far_apart_because_each_recovery_takes_long() -> None:
    series = ErrorSeries(task_timeout_ms=4 * CALM_MS)
    for number in range(3):
        began_ms = number * 2 * CALM_MS
        series.note(ValueError(), 0, turn_ms=began_ms, now_ms=began_ms)
        series.over(began_ms + 2 * CALM_MS - 1)
    with pytest.raises(TimeoutExceededError):
        series.note(ValueError(), 0, turn_ms=6 * CALM_MS, now_ms=6 * CALM_MS)


def test_a_call_that_has_been_repeated_for_the_whole_time_is_only_the_first_error() -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    series.note(ValueError(), 0, turn_ms=0, now_ms=1_100)


def test_errors_are_not_far_apart_because_each_call_takes_long_to_fail() -> None:
    series = ErrorSeries(task_timeout_ms=3 * CALM_MS)
    for number in range(3):
        series.note(ValueError(), 0, turn_ms=number * 2 * CALM_MS, now_ms=(number + 1) * 2 * CALM_MS)
        series.over((number + 1) * 2 * CALM_MS)
    with pytest.raises(TimeoutExceededError):
        series.note(ValueError(), 0, turn_ms=6 * CALM_MS, now_ms=8 * CALM_MS)


@pytest.mark.parametrize(
    "over",
    [StaleGenerationError("the generation is over"), KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))],
)
def test_a_membership_that_was_lost_is_not_part_of_a_series(over: Exception) -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    failing_at(series, 0)
    failing_at(series, 900, over)
    failing_at(series, 1_500)
    failing_at(series, 2_000)
    failing_at(series, 2_500)
    with pytest.raises(TimeoutExceededError):
        failing_at(series, 2_501)


def test_outputs_that_kafka_refuses_begin_a_new_series() -> None:
    series = ErrorSeries(task_timeout_ms=1_000)
    failing_at(series, 0)
    failing_at(series, 1_001, RefusedTogetherError("sent one by one next", ()))
    failing_at(series, 1_002)
