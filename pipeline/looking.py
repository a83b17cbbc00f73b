"""Asks Kafka about topics in several requests, for example which topics exist and where they end.

*Guarantees*: Kafka's own errors aren't raised. If a topic is deleted between two requests, the caller doesn't see it.
*Assumes*: the first request asks which topics exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from milestones.common.clock import SystemClock
from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.failures import UNKNOWN_TOPIC, error_of
from milestones.common.kafka.retry import RetryPolicy

T = TypeVar("T")

SETTLES_MS: Final = 10_000
"""The longest time until a broker knows that a topic was made or deleted. A busy broker takes seconds for that."""


def looked_at(what: str, look: Callable[[], T]) -> T:
    """Return the result of `look`. The requests begin anew while a broker doesn't know a topic that another broker, or
    an earlier answer, has named. Raises a `MilestonesError` that says that `what` can't be read.
    """
    try:
        return RetryPolicy(SETTLES_MS, SystemClock()).retry(look, _is_unknown_topic)
    except KafkaException as exception:
        raise MilestonesError(f"{what} can't be looked at: {text_of(exception)}") from exception


def _is_unknown_topic(exception: KafkaException) -> bool:
    error = error_of(exception)
    return error is not None and error.code() in UNKNOWN_TOPIC
