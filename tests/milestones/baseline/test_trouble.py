"""A series of errors ends in one that names the last; single ones are forgotten."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.baseline.trouble import CALM_MS, Trouble
from milestones.common.errors import TimeoutExceededError
from milestones.common.kafka.membership import StaleGenerationError


def test_errors_without_a_commit_in_between_end_after_the_task_timeout() -> None:
    trouble = Trouble(task_timeout_ms=1_000)
    trouble.note(ValueError("first"), commits=3, now_ms=0)
    trouble.note(ValueError("second"), commits=3, now_ms=1_000)
    with pytest.raises(TimeoutExceededError, match="third"):
        trouble.note(ValueError("third"), commits=3, now_ms=1_001)


def test_a_commit_in_between_begins_a_new_series() -> None:
    trouble = Trouble(task_timeout_ms=1_000)
    trouble.note(ValueError(), commits=3, now_ms=0)
    trouble.note(ValueError(), commits=4, now_ms=2_000)
    trouble.note(ValueError(), commits=4, now_ms=3_000)


def test_errors_far_apart_are_not_a_series() -> None:
    trouble = Trouble(task_timeout_ms=1_000)
    for number in range(5):
        trouble.note(ValueError(), commits=0, now_ms=number * (CALM_MS + 1))


@pytest.mark.parametrize(
    "over",
    [StaleGenerationError("the generation is over"), KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))],
)
def test_a_membership_that_was_lost_is_not_part_of_a_series(over: Exception) -> None:
    trouble = Trouble(task_timeout_ms=1_000)
    trouble.note(ValueError(), commits=3, now_ms=0)
    trouble.note(over, commits=3, now_ms=900)
    trouble.note(ValueError(), commits=3, now_ms=1_500)
    trouble.note(ValueError(), commits=3, now_ms=2_500)
    with pytest.raises(TimeoutExceededError):
        trouble.note(ValueError(), commits=3, now_ms=2_501)
