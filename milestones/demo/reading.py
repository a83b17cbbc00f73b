"""`TopicTable`: reads the last value of each key of a topic. `DemoProgress`: reads the progress of the application.

*Guarantees*: only committed records count. Reading to the end means to the end of the log, including records of open
transactions. So records that are committed later aren't missed.
*Assumes*: all records of a key are in the same partition. One thread uses an object.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, KafkaException, Message

from milestones.common.clock import SystemClock
from milestones.common.config.clients import CONSUMER_DEFAULTS
from milestones.common.errors import MilestonesError, TimeoutExceededError
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition

_TIMEOUT_MS = 10_000
_PATIENCE_MS = 30_000
_BATCH = 10_000
_READ_S = 60.0


class TopicTable:
    """The last value of each key of a topic, as bytes. `records`: the number of records read so far.

    *Owns*: its consumer.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._consumer = AssignedConsumer(_settings(bootstrap_servers))
        self._consumer.assign({TopicPartition(topic, number): OFFSET_BEGINNING for number in range(partitions)})
        self._reached: dict[TopicPartition, int] = {}
        self.table: dict[bytes, bytes] = {}
        self.records: int = 0

    def poll(self, timeout_ms: int = 0) -> None:
        """Read the records that have arrived, at most ten thousand."""
        fetched = self._consumer.fetch(_BATCH, timeout_ms).allowed()
        for messages in fetched.records.values():
            for message in messages:
                self._take(message)
        self._reached.update(fetched.ends)

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if key is None:
            raise MilestonesError(f"topic {self._topic} has a record without a key at offset {message.offset()}")
        self.records += 1
        if value is None:
            self.table.pop(key, None)
        else:
            self.table[key] = value

    def read_to(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read up to the offsets `ends`. Raises `MilestonesError` if this takes longer than `_READ_S`."""
        deadline = time.monotonic() + _READ_S
        while not _all_reached(self._reached, ends):
            if time.monotonic() > deadline:
                raise MilestonesError(f"topic {self._topic} could not be read to its end within {_READ_S:.0f} s")
            self.poll(200)

    def close(self) -> None:
        self._consumer.close()


class DemoProgress:
    """The progress of the application in the topics that it reads: `source`, and its repartition topics.

    `read`: the number of records of the source that are processed and committed. `lag`: the sum, over all partitions,
    of the offsets between the committed offset and the end.

    *Owns*: an admin client.
    """

    lag: int
    read: int

    def __init__(self, bootstrap_servers: str, group: str, source: str) -> None:
        self._servers, self._group, self._source = bootstrap_servers, group, source
        self._cluster = Cluster({"bootstrap.servers": bootstrap_servers}, request_timeout_ms=_TIMEOUT_MS)
        self.lag = self.read = 0

    def update(self) -> None:
        ends = self._ends_of_inputs()
        committed = self._committed(ends)
        self.lag = sum(end - committed[partition] for partition, end in ends.items())
        self.read = sum(offset for partition, offset in committed.items() if partition.topic == self._source)

    def done(self) -> bool:
        """True if everything is processed. Then the committed offsets of the source are its ends. In the repartition
        topics, no records follow the committed offsets, only markers of transactions."""
        source = self.ends([self._source])
        if self._committed(source) != source:
            return False
        # The repartition topics are asked after the source: their records were committed with the source's offsets.
        ends = self._ends_of_inputs()
        committed = self._committed(ends)
        return self._no_record_between(committed, {at: end for at, end in ends.items() if committed[at] != end})

    def ends(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Returns the end offset of each partition of `topics`, including records of open transactions."""
        counts = self._cluster.partition_counts()
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
        retry_policy = RetryPolicy(_PATIENCE_MS, SystemClock())
        try:
            bounds = retry_policy.retry(lambda: self._cluster.bounds(partitions, committed=False), is_passing)
        except KafkaException as exception:
            raise TimeoutExceededError(
                f"the end offsets of topics couldn't be read in {_PATIENCE_MS} ms: {text_of(exception)}; check that "
                "the brokers are up and reachable"
            ) from exception
        return {partition: end for partition, (_, end) in bounds.items()}

    def _ends_of_inputs(self) -> dict[TopicPartition, int]:
        counts = self._cluster.partition_counts()
        own = [name for name in counts if name.startswith(f"{self._group}-") and name.endswith("-repartition")]
        return self.ends([self._source, *own])

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        partitions = list(partitions)
        found = self._cluster.committed(self._group, partitions)
        return {partition: found.get(partition, 0) for partition in partitions}

    def _no_record_between(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        consumer = AssignedConsumer(_settings(self._servers))
        reached: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        try:
            consumer.assign({partition: positions[partition] for partition in ends})
            while not _all_reached(reached, ends) and time.monotonic() < deadline:
                fetched = consumer.fetch(1, 100).allowed()
                if fetched.records:
                    return False
                reached.update(fetched.ends)
            return _all_reached(reached, ends)
        finally:
            consumer.close()


def _all_reached(reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    return all(reached.get(partition, 0) >= end for partition, end in ends.items())


def _settings(bootstrap_servers: str) -> dict[str, object]:
    return {
        **CONSUMER_DEFAULTS,
        "bootstrap.servers": bootstrap_servers,
        "group.id": "demo-reader",
        "isolation.level": "read_committed",
    }
