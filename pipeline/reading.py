"""Reads a range of a partition to its end.

*Guarantees*: every committed record from the first offset to the end (exclusive) is returned in order, or an error is
raised.
*Assumes*: the end isn't beyond the last stable offset, so that no open transaction lies before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Position

from milestones.common.errors import KafkaUnreachableError, MilestonesError, SourceTopicError
from milestones.common.records import TopicPartition
from milestones.pipeline.bounded import BoundedConsumer

BATCH = 10_000
SILENCE_S = 60.0
"""The longest time, in seconds, for which reading waits for the next record."""


@dataclass(frozen=True)
class PartitionRange:
    """The offsets of a partition from `first` to before `end`. `consumer`: a restore consumer's settings."""

    partition: TopicPartition
    first: int
    end: int
    consumer: Mapping[str, Any] = field(repr=False)


class RecordsDeletedError(MilestonesError):
    """Raised when Kafka has deleted records before they were read."""


def read(
    settings: Mapping[str, Any], partition: TopicPartition, first: int, end: int
) -> Iterator[list[Message]]:
    """Yield the records of `partition` with first <= offset < end, in batches. `settings`: a restore consumer's.

    Raises `KafkaUnreachableError` if no records come, `RecordsDeletedError` if records were deleted before they were
    read, and `SourceTopicError` if the topic was deleted."""
    consumer = BoundedConsumer(settings, {partition: end})
    try:
        consumer.assign({partition: first})
        heard = time.monotonic()
        while not consumer.complete:
            fetched = consumer.fetch(BATCH, timeout_ms=100)
            if fetched.out_of_range:
                raise RecordsDeletedError(
                    f"{partition} has no records from offset {first} on: they were deleted meanwhile"
                )
            if fetched.gone:
                raise SourceTopicError(f"{partition} is gone: its topic was deleted meanwhile")
            messages = fetched.records.get(partition)
            if messages:
                yield messages
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise KafkaUnreachableError(
                    f"{partition} should go to offset {end}, and nothing has come for {SILENCE_S:.0f} s; check that "
                    "its brokers are up, and that no transaction was left open"
                )
    finally:
        consumer.close()


def beginning(settings: Mapping[str, Any], partition: TopicPartition) -> int:
    """Return the present first offset of the partition. `KafkaException`."""
    consumer = Consumer(dict(settings))
    try:
        first, _ = consumer.get_watermark_offsets(Position(*partition), timeout=SILENCE_S)
        return int(first)
    finally:
        consumer.close()
