"""Timestamp extractors are functions that decide a record's time. This module has the four of Kafka Streams.

An extractor takes a `SourceRecord` and the time of its partition, and returns ms since the epoch. The time of a
partition is the highest timestamp of its records so far, -1 before the first one. If the result is negative, the record
is dropped.

*Guarantees*: the built-in extractors have no state.
*Assumes*: the task keeps the time of each partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from milestones.common.errors import MilestonesError
from milestones.common.records import Headers


class SourceRecord(NamedTuple):
    """A deserialised record of a source topic. `timestamp` is in ms. The broker or the producer has set it."""

    key: Any
    value: Any
    timestamp: int
    topic: str
    partition: int
    offset: int
    headers: Headers


TimestampExtractor: TypeAlias = Callable[[SourceRecord, int], int]


def fail_on_invalid_timestamp(record: SourceRecord, _partition_time: int) -> int:
    """Return the record's own timestamp, and fail if it is negative. This is the default."""
    if record.timestamp < 0:
        raise invalid_timestamp(record.topic, record.partition, record.offset, record.timestamp)
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: SourceRecord, _partition_time: int) -> int:
    """Return the record's own timestamp. A record whose timestamp is negative is dropped."""
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: SourceRecord, partition_time: int) -> int:
    """Return the record's own timestamp, or the time of its partition if that is negative. Fail if both are
    negative."""
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        raise invalid_timestamp(record.topic, record.partition, record.offset, record.timestamp)
    return partition_time


def wallclock_timestamp_extractor(_record: SourceRecord, _partition_time: int) -> int:
    """Return the time of the wall clock, at which the record is processed."""
    return int(time.time() * 1000)


def invalid_timestamp(topic: str, partition: int, offset: int, timestamp: int) -> MilestonesError:
    """Make the error of a record whose timestamp is negative."""
    return MilestonesError(
        f"the record at {topic}-{partition} offset {offset} has the invalid timestamp {timestamp}: its producer is "
        "older than Kafka 0.10, or wrote one that is negative. Give the source another timestamp_extractor, such as "
        "use_partition_time_on_invalid_timestamp or log_and_skip_on_invalid_timestamp"
    )
