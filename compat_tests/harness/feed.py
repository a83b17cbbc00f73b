"""Inputs: records with keys, values and timestamps by seed, each carrying its own place in Kafka.

*Guarantees*: a record's header `origin` is the place where it really lies, checked at its delivery; keys are placed as
Kafka's default partitioner places them.
*Assumes*: nobody else writes to the topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from compat_tests.harness.cluster import Cluster
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Row, origin_header
from milestones.common.kafka.producer_log import UNWATCHED

FIRST_TIMESTAMP = 1_700_000_000_000


class Sent(NamedTuple):
    """A record to be sent. `partition` None: the key's; a record without a key needs one."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int | None = None


class Feed:
    """Writes one topic. `rows`: what lies in it."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self.topic, self.rows = topic, list[Row]()
        self._ends, self._delivered_to = [0] * partitions, [0] * partitions
        self._failures: list[str] = []
        self._producer = Producer({
            "bootstrap.servers": cluster.bootstrap_servers, **UNWATCHED, "linger.ms": 5, "on_delivery": self._delivered,
            "log_level": 0,
        })  # fmt: skip

    def close(self) -> None:
        """Nothing may be sent any more; `rows` stay. The producer ends with its last reference."""
        del self._producer

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """Deliveries of a partition are reported in the order in which its records were given their origins."""
        partition = message.partition()
        if error is not None or partition is None or message.offset() != self._delivered_to[partition]:
            self._failures.append(f"a record lies at {partition}/{message.offset()}: {error}")
        else:
            self._delivered_to[partition] += 1

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions now. The producer learns of it by asking."""
        more = [0] * (partitions - len(self._ends))
        self._ends, self._delivered_to = self._ends + more, self._delivered_to + more
        self._producer.list_topics(self.topic, timeout=10)

    def send(self, records: Iterable[Sent]) -> list[Row]:
        """Write the records and wait until Kafka has them; where they lie."""
        sent = []
        for record in records:
            partition = record.partition
            if partition is None:
                assert record.key is not None, f"{record} has neither a key nor a partition"
                partition = partition_of(record.key, len(self._ends))
            offset, self._ends[partition] = self._ends[partition], self._ends[partition] + 1
            header = origin_header(self.topic, partition, offset)
            row = Row(self.topic, partition, offset, record.key, record.value, record.timestamp, (header,))
            self._produce(row)
            sent.append(row)
        left = self._producer.flush(60)
        if left or self._failures:
            raise RuntimeError(f"inputs of {self.topic} didn't reach Kafka: {left} waiting, {self._failures[:3]}")
        self.rows += sent
        return sent

    def _produce(self, row: Row) -> None:
        while True:
            try:
                self._producer.produce(
                    row.topic, row.value, row.key, row.partition, timestamp=row.timestamp, headers=list(row.headers)
                )
                return
            except BufferError:
                self._producer.poll(0.1)
