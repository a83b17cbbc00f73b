"""Describes outputs that a broker or the client refuses, and transactions that fail because of a refused output.

*Guarantees*: each error says what the user can do.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import ProductionError
from milestones.common.kafka.failures import REFUSED_RECORD, REFUSED_TOPIC, TOO_LARGE, UNKNOWN_TOPIC, error_of
from milestones.common.records import Output, TaskId

BY_SIZE = (
    "a broker that finds a record too large refuses its whole batch, with all other records in it. To have the handler "
    "decide about single records, set producer_message_max_bytes to 200 less than the topic's max.message.bytes: then "
    "batches are small enough, and the client refuses a record that is too large before it is sent"
)
"""The advice if a topic accepts only smaller batches than the client sends."""

BY_TIME = (
    "brokers refuse timestamps further ahead of their clock than the topic's message.timestamp.after.max.ms (an hour "
    "by default), or further behind it than message.timestamp.before.max.ms: correct the time (timestamp_extractor, "
    "with_timestamp), or set both on the topic: kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
    f"--add-config message.timestamp.after.max.ms={(1 << 63) - 1}"
)
"""The advice if the topic doesn't accept a record's timestamp."""

REFUSED_IN_TRANSACTION = (
    "Under exactly_once_v2 a record that the broker refuses makes its whole transaction fail, each time: correct the "
    "cause (size limits, rights, the topic); production_exception_handler is asked only with fencing_tolerance"
)


_TOPIC = re.compile(r"ProduceRequest for (\S+) \[")
"""Finds the topic's name in the client's text about a refused batch."""


class RefusedInTransactionError(ProductionError):
    """The broker refused a record of a transaction. `single`: True if one record is to blame, which `BatchIsolation`
    can find; False if the error is about a topic. `unknown_topic`: True if the broker doesn't know the topic, or
    doesn't know it yet."""

    single: bool
    unknown_topic: bool

    def __init__(self, message: str, *, single: bool, unknown_topic: bool = False) -> None:
        super().__init__(message)
        self.single, self.unknown_topic = single, unknown_topic


def _advice(error: KafkaError) -> str:
    if error.code() in TOO_LARGE:
        return f"; {BY_SIZE}"
    if error.code() != KafkaError.INVALID_TIMESTAMP:
        return ""
    named = _TOPIC.search(error.str())
    return f"; {BY_TIME.format(topic=named[1] if named else 'TOPIC')}"


@dataclass(frozen=True, eq=False)
class Refused:
    """A refused output. `sent`: False if the client refused the output before it was sent, True if Kafka refused it.

    Kafka's refusals are known outside of transactions, or with `BatchIsolation`. Without `BatchIsolation`, the output
    of a refusal by Kafka comes from the delivery report and lacks node, headers and timestamp."""

    task: TaskId
    error: KafkaError
    output: Output
    dead_letter: bool = False
    sent: bool = False


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Turn a transactional call's error into `RefusedInTransactionError` if its cause is a record or a topic that the
    broker refuses."""
    try:
        yield
    except KafkaException as exception:
        error = error_of(exception)
        if error is not None and error.txn_requires_abort() and error.code() in REFUSED_RECORD | REFUSED_TOPIC:
            advice = _advice(error)
            single, unknown = error.code() in REFUSED_RECORD, error.code() in UNKNOWN_TOPIC
            raise RefusedInTransactionError(
                f"{error.str()}. {REFUSED_IN_TRANSACTION}{advice}", single=single, unknown_topic=unknown
            ) from exception
        raise
