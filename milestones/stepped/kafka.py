"""A Kafka in memory: partitions, one group's committed offsets, and errors that a test has planted.

*Guarantees*: nothing happens without a call. Records, offsets and errors outlive the processes that use them.
*Assumes*: one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message

from milestones.common.partitioner import partition_of
from milestones.common.records import Headers, OffsetAndMetadata, Output, TopicPartition


def kafka_error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaException:
    """Return an error as Kafka's client raises it."""
    return KafkaException(KafkaError(code, "made by a test", fatal, retriable, abort))


FENCED: Final = kafka_error(KafkaError._FENCED, fatal=True)
ILLEGAL_GENERATION: Final = kafka_error(KafkaError.ILLEGAL_GENERATION, abort=True)
TIMED_OUT: Final = kafka_error(KafkaError._TIMED_OUT, retriable=True)


class PartitionLog:
    """One partition. None in `entries` stands for a control record or an aborted record, which no reader sees. `first`:
    the offset of the first entry."""

    def __init__(self, partition: TopicPartition, first: int = 0) -> None:
        self.partition, self.first = partition, first
        self.entries: list[Message | None] = []

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.first + len(self.entries)

    def add(self, *values: str, key: str = "k", timestamp: int = 1_000) -> Self:
        """Append a record for each value."""
        for value in values:
            self.append(key.encode(), value.encode(), timestamp)
        return self

    def append(self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        """Append one record."""
        self.entries.append(self.message(self.end, key, value, timestamp, headers))

    def message(
        self, offset: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> Message:
        """Return a record as a consumer returns it."""
        topic, partition = self.partition
        return Message(
            topic=topic, partition=partition, offset=offset, key=key, value=value,
            timestamp=(TIMESTAMP_CREATE_TIME, timestamp), headers=[*headers] if headers else None,
        )  # fmt: skip

    def control(self, count: int = 1) -> Self:
        """Append control records."""
        self.entries += [None] * count
        return self

    def cut_to(self, first: int) -> None:
        """Delete the records before `first`, as retention or a purge does."""
        self.entries = self.entries[first - self.first :]
        self.first = first


class ClusterLogs(dict[TopicPartition, PartitionLog]):
    """The cluster's partitions. A partition is made when it is first asked for."""

    def __missing__(self, partition: TopicPartition) -> PartitionLog:
        self[partition] = PartitionLog(partition)
        return self[partition]

    def search(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return for each partition the offset of the first record with this time or a later one, or the end."""
        found: dict[TopicPartition, int] = {}
        for partition, time in times.items():
            messages = filter(None, self[partition].entries)
            later = (message.offset() for message in messages if message.timestamp()[1] >= time)
            offset = next(later, None)
            found[partition] = self[partition].end if offset is None else offset
        return found

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of each partition."""
        return {partition: (self[partition].first, self[partition].end) for partition in partitions}


class SteppedKafka:
    """`committed`: the group's offsets. `unread`: the application's committed outputs that the test hasn't read, keyed
    by topic. `calls`: the calls of producers and members that change something, in their order."""

    def __init__(self, partitions_of: Callable[[str], int]) -> None:
        self.partitions_of = partitions_of
        self.logs = ClusterLogs()
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.unread: dict[str, deque[Output]] = {}
        self.calls: list[str] = []
        self._errors: dict[str, deque[Exception]] = {}

    def fail(self, call: str, error: Exception) -> None:
        """Plant an error: the next call of this kind raises it, after the errors that were planted before."""
        self._errors.setdefault(call, deque()).append(error)

    def note(self, call: str) -> None:
        """Record a call. Raises the error that is planted for it."""
        self.calls.append(call)
        if self._errors.get(call):
            raise self._errors[call].popleft()

    def at(self, topic: str, key: bytes | None, partition: int = -1) -> TopicPartition:
        """Return the partition to which a record is written: the given partition, or the partition of the record's key.
        Records without a key are in partition 0."""
        if partition < 0:
            partition = 0 if key is None else partition_of(key, self.partitions_of(topic))
        return TopicPartition(topic, partition)

    def write(self, outputs: Sequence[Output]) -> None:
        """Append outputs of the application."""
        for output in outputs:
            log = self.logs[self.at(output.topic, output.key, output.partition)]
            log.append(output.key, output.value, output.timestamp, output.headers)
            self.unread.setdefault(output.topic, deque()).append(output)
