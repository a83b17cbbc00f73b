"""Looks at Kafka's topics in several questions, such as which there are and where they end.

*Guarantees*: none of Kafka's own errors is raised. A topic that goes between two questions isn't there for the caller.
*Assumes*: a look begins with the question which topics there are.
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
"""For how long a broker may not know yet that a topic was made, or is gone: one that has much to do takes seconds."""


def looked_at(what: str, look: Callable[[], T]) -> T:
    """What `look` returns. It begins anew while a broker doesn't know a topic that is in the answer of another one, or
    in an earlier answer. `MilestonesError` says that `what` can't be looked at."""
    try:
        return RetryPolicy(SETTLES_MS, SystemClock()).retry(look, _is_unknown_topic)
    except KafkaException as exception:
        raise MilestonesError(f"{what} can't be looked at: {text_of(exception)}") from exception


def _is_unknown_topic(exception: KafkaException) -> bool:
    error = error_of(exception)
    return error is not None and error.code() in UNKNOWN_TOPIC
