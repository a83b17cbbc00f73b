"""Timestamp extractors, which give a record its time (Kafka Streams' four, and any function like them).

An extractor takes a `SourceRecord` and the partition's time, the highest timestamp seen on it so far (-1 before the
first), and returns milliseconds since the epoch. A negative result drops the record.

*Guarantees*: the built-in ones have no state.
*Assumes*: the task keeps the partition's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from milestones.common.errors import MilestonesError
from milestones.common.records import Headers


class SourceRecord(NamedTuple):
    """A deserialised record of a source topic; `timestamp` is the broker's or the producer's, ms."""

    key: Any
    value: Any
    timestamp: int
    topic: str
    partition: int
    offset: int
    headers: Headers


TimestampExtractor: TypeAlias = Callable[[SourceRecord, int], int]


def fail_on_invalid_timestamp(record: SourceRecord, _partition_time: int) -> int:
    """The record's own timestamp; fails when it is negative. The default."""
    if record.timestamp < 0:
        raise invalid_timestamp(record.topic, record.partition, record.offset, record.timestamp)
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: SourceRecord, _partition_time: int) -> int:
    """The record's own timestamp; a record with a negative one is dropped."""
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: SourceRecord, partition_time: int) -> int:
    """The record's own timestamp, or the partition's time when it is negative; fails when neither is known."""
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        raise invalid_timestamp(record.topic, record.partition, record.offset, record.timestamp)
    return partition_time


def wallclock_timestamp_extractor(_record: SourceRecord, _partition_time: int) -> int:
    """The time at which the record is processed."""
    return int(time.time() * 1000)


def invalid_timestamp(topic: str, partition: int, offset: int, timestamp: int) -> MilestonesError:
    """The error of a record whose timestamp is negative, where that isn't allowed."""
    return MilestonesError(
        f"the record at {topic}-{partition} offset {offset} has the invalid timestamp {timestamp}: its producer is "
        "older than Kafka 0.10, or wrote one that is negative. Give the source another timestamp_extractor, such as "
        "use_partition_time_on_invalid_timestamp or log_and_skip_on_invalid_timestamp"
    )
