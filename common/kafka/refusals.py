"""Outputs that a broker or the client refuses, and the transactions that fail because of one.

*Guarantees*: values, and errors that say what to do.
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
    "a broker that finds a record too large refuses the whole batch it is in, the small ones too. To have the handler "
    "decide about single records, set producer_message_max_bytes to 200 less than the topic's max.message.bytes: then "
    "batches are small enough, and a record that is too large is refused by the client before it is sent"
)
"""The advice about a topic that takes smaller batches than the client sends."""

BY_TIME = (
    "brokers refuse times further ahead of their clock than the topic's message.timestamp.after.max.ms says (an hour "
    "by default), or further behind it than message.timestamp.before.max.ms: mend the time (timestamp_extractor, "
    "with_timestamp), or set them on the topic: kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
    f"--add-config message.timestamp.after.max.ms={(1 << 63) - 1}"
)
"""The advice about a time that the topic doesn't take."""

REFUSED_IN_TRANSACTION = (
    "Under exactly_once_v2 a record that the broker refuses fails its whole transaction, and it would again: mend the "
    "cause (size limits, rights, the topic); only fencing_tolerance has production_exception_handler asked about it"
)


_TOPIC = re.compile(r"ProduceRequest for (\S+) \[")
"""Where the client's text about a batch names the topic."""


class RefusedInTransactionError(ProductionError):
    """The broker refused a record of a transaction. `single`: a producer that tells outputs apart could tell which
    record; False: the error is about a topic. `unknown_topic`: the broker doesn't know the topic, or not yet."""

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
    """An output that was refused: by the client, at once (`sent` is False), or by Kafka, as a delivery report says,
    outside of transactions or by a producer that tells outputs apart. Only the latter gives the whole output: a report
    of an error lacks node, headers and timestamp."""

    task: TaskId
    error: KafkaError
    output: Output
    dead_letter: bool = False
    sent: bool = False


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Have a transaction's failure for a record or a topic that the broker refuses say so."""
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
