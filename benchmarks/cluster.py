"""Kafka for a benchmark: one embedded broker, compiled at its best, and what is asked of it.

*Guarantees*: `read` returns everything up to the partitions' ends, or raises.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.errors import BenchmarkError
from compat_tests.network.proxy import KafkaProxy
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.producer_log import UNWATCHED
from milestones.embedded import EmbeddedKafka

CALL_S = 30.0
READ_S = 120.0
PROXIED = "PROXIED"
LOGS = "data"
"""Where the embedded broker has its topics, in its folder."""
JVM_OPTIONS = ("-XX:TieredStopAtLevel=4", "-Xmx1g")
"""The embedded broker's own options are for a quick start."""
FOREVER = {"retention.ms": "-1"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99", "segment.ms": "604800000"}
"""Settings of topics: nothing is deleted by age; compacted, but not while a benchmark runs."""

Row = tuple[str, int, bytes | None, bytes | None, int, list[tuple[str, bytes]] | None]
"""Topic, partition (-1: by murmur2 of the key), key, value, timestamp in ms, headers."""


def leading(topic: Any) -> list[int]:
    """The partitions that have a leader; `topic`: what a broker tells of it, if anything."""
    return [] if topic is None else [number for number, one in topic.partitions.items() if one.leader >= 0]


class Cluster:
    """A running Kafka. `logs`: the folder of its topics; `proxy`: one in front of it, where a work asks for that."""

    def __init__(self, bootstrap_servers: str, logs: Path, proxy: KafkaProxy | None = None) -> None:
        self.bootstrap_servers, self._logs, self._proxy = bootstrap_servers, logs, proxy
        self._client: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._admin = AdminClient(self._client)

    @property
    def proxy(self) -> KafkaProxy:
        assert self._proxy is not None, "the broker runs without a proxy"
        return self._proxy

    def create(self, topic: str, partitions: int, config: Mapping[str, str], within_s: float = CALL_S) -> None:
        """Create a topic; the broker knows a leader of each partition when this returns."""
        new = NewTopic(topic, partitions, 1, config=dict(config))
        for future in self._admin.create_topics([new], request_timeout=CALL_S).values():
            future.result(CALL_S)
        deadline = time.monotonic() + within_s
        # The controller has the topic, the broker not yet; of one with many partitions it learns in parts.
        while len(leading(self._admin.list_topics(timeout=CALL_S).topics.get(topic))) < partitions:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"the broker doesn't know all of {topic} {within_s:.0f} s after its creation")
            time.sleep(0.05)

    def delete(self, *prefixes: str) -> None:
        """Delete all topics whose names begin with one of these."""
        topics = [name for name in self._admin.list_topics(timeout=CALL_S).topics if name.startswith(prefixes)]
        for future in self._admin.delete_topics(topics, request_timeout=CALL_S).values() if topics else ():
            future.result(CALL_S)

    def bytes_of(self, *prefixes: str) -> int:
        """The size of the logs of all topics whose names begin with one of these, as Kafka's DescribeLogDirs has it:
        batches as they were sent, and transactions' markers."""
        segments = (segment for prefix in prefixes for segment in self._logs.glob(f"{prefix}*/*.log"))
        return sum(segment.stat().st_size for segment in segments)

    def fill(self, rows: Iterable[Row]) -> None:
        """Write `rows`, all of them or an error."""
        producer = Producer({
            **self._client, **UNWATCHED, "partitioner": "murmur2_random", "linger.ms": 50,
            "queue.buffering.max.messages": 200_000, "delivery.report.only.error": True,
        })  # fmt: skip
        refused: list[KafkaError] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for topic, partition, key, value, timestamp, headers in rows:
            while True:
                try:
                    producer.produce(topic, value, key, partition, report, None, timestamp, headers)  # type: ignore[arg-type]
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(READ_S)
        producer.close()
        if left or refused:
            raise BenchmarkError(f"Kafka refused {len(refused)} records of the input ({refused[:1]}), {left} are open")

    @contextmanager
    def committed(self, group: str, topic: str) -> Iterator[Callable[[], int]]:
        """A function that asks for the sum of the group's committed offsets of a topic, until the end of the block."""
        with self.positions(group, topic) as positions:
            yield lambda: sum(positions().values())

    @contextmanager
    def positions(self, group: str, topic: str) -> Iterator[Callable[[], Mapping[int, int]]]:
        """A function that asks for the group's committed offset of each partition of a topic, 0 where there is none,
        until the end of the block; what is in an open transaction doesn't count.

        By a consumer that never joins: the admin client's own call crashes the process while the group's coordinator
        is being found (librdkafka's issue 5040).
        """
        isolation = "read_uncommitted"  # else it waits for open transactions to end
        consumer = Consumer({**self._client, "group.id": group, "isolation.level": isolation})
        try:
            found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
            asked = [TopicPartition(topic, partition) for partition in found.partitions]

            def positions() -> Mapping[int, int]:
                try:
                    return {one.partition: max(0, one.offset) for one in consumer.committed(asked, CALL_S)}
                except KafkaException as exception:
                    if not is_passing(exception):
                        raise
                    # The coordinator is on its way, the next call asks it.
                    return dict.fromkeys(found.partitions, 0)

            yield positions
        finally:
            consumer.close()

    @contextmanager
    def written(self, topic: str) -> Iterator[Callable[[], int]]:
        """A function that asks how many offsets of a topic are used, until the end of the block."""
        consumer = Consumer({**self._client, "group.id": "benchmarks-reader"})
        try:
            found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
            asked = [TopicPartition(topic, partition) for partition in found.partitions]

            def written() -> int:
                try:
                    return sum(consumer.get_watermark_offsets(one, CALL_S)[1] for one in asked)
                except KafkaException as exception:
                    if not is_passing(exception):
                        raise
                    return 0  # a leader isn't known yet, the next call asks it

            yield written
        finally:
            consumer.close()

    def read(self, topic: str, isolation: str = "read_committed") -> Iterator[Message]:
        """Every record of the topic that this isolation level lets through."""
        consumer = Consumer({
            **self._client, "group.id": "benchmarks-reader", "enable.auto.commit": False, "enable.partition.eof": True,
            "isolation.level": isolation, "fetch.queue.backoff.ms": 10,
        })  # fmt: skip
        try:
            found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
            missing = set(found.partitions)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in missing])
            deadline = time.monotonic() + READ_S
            while missing:
                for message in consumer.consume(10_000, 0.1):
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        missing.discard(message.partition())
                    else:
                        raise KafkaException(error)
                if time.monotonic() > deadline:
                    raise BenchmarkError(f"{topic} couldn't be read within {READ_S:.0f} s: {sorted(missing)} are open")
        finally:
            consumer.close()


@contextmanager
def running(directory: Path) -> Iterator[Cluster]:
    """A broker until the end of the block; its data are in `directory`."""
    with EmbeddedKafka(directory, jvm_options=JVM_OPTIONS) as kafka:
        yield Cluster(kafka.bootstrap_servers, kafka.data_dir / LOGS)


@contextmanager
def proxied(directory: Path) -> Iterator[Cluster]:
    """The same with a proxy, for contenders; what a benchmark itself asks of the broker doesn't pass it."""
    with KafkaProxy() as proxy:
        listeners, advertised = {PROXIED: "PLAINTEXT"}, {PROXIED: proxy.port}
        with EmbeddedKafka(directory, jvm_options=JVM_OPTIONS, listeners=listeners, advertised=advertised) as kafka:
            proxy.connect_to(kafka.address(PROXIED))
            yield Cluster(kafka.bootstrap_servers, kafka.data_dir / LOGS, proxy)
