"""Ranges of the data source, planned and read without Spark's processes. On a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from milestones.common.errors import MilestonesError
from milestones.common.records import TopicPartition
from milestones.pipeline.source.offsets import Json
from milestones.pipeline.source.options import ReadOptions
from milestones.pipeline.source.reading import KafkaStreamReader, Range, read

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30


class Topic:
    """A topic of one partition, at first."""

    def __init__(self, servers: str) -> None:
        self.servers, self.name = servers, f"read-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(self.name, 1, 1)])[self.name].result(TIMEOUT_S)

    def grow(self) -> None:
        """A second partition, which everybody has heard of."""
        self.admin.create_partitions([NewPartitions(self.name, 2)])[self.name].result(TIMEOUT_S)
        while len(self.admin.list_topics(self.name, timeout=TIMEOUT_S).topics[self.name].partitions) < 2:
            """The broker that was asked hasn't heard of it yet."""

    def send(self, partition: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(count):
            producer.produce(self.name, b"%d" % number, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0

    def forget(self, partition: int, before: int) -> None:
        for future in self.admin.delete_records([Position(self.name, partition, before)]).values():
            future.result(TIMEOUT_S)

    def options(self, **more: str) -> ReadOptions:
        return ReadOptions.of({"kafka.bootstrap.servers": self.servers, "subscribe": self.name, **more}, stream=True)

    def at(self, *offsets: int) -> dict[str, dict[str, int]]:
        return {self.name: {str(number): offset for number, offset in enumerate(offsets)}}


@pytest.fixture
def topic(kafka: str) -> Iterator[Topic]:
    made = Topic(kafka)
    yield made
    made.admin.delete_topics([made.name])


def planned(reader: KafkaStreamReader, start: Json, end: Json) -> list[tuple[int, int, int]]:
    """Partition, first offset and end of each range."""
    return [(one.partition.partition, one.start, one.end) for one in reader.partitions(start, end)]


def test_a_partition_that_comes_up_under_a_query_begins_at_its_first_record(topic: Topic) -> None:
    topic.send(0, 50)
    topic.grow()
    topic.send(1, 100)
    topic.forget(1, 40)
    reader = KafkaStreamReader(topic.options())
    known = reader.latestOffset(topic.at(10), ReadMaxRows(20))
    assert known == topic.at(30, 40)
    assert planned(reader, topic.at(10), known) == [(0, 10, 30)]
    end = reader.latestOffset(known, ReadMaxRows(20))
    assert planned(reader, known, end) == [(0, 30, 40), (1, 40, 50)]
    assert reader.latestOffset(end, ReadAllAvailable()) == topic.at(50, 100)


def test_what_retention_takes_of_a_new_partition_before_it_is_read_is_a_loss(topic: Topic) -> None:
    topic.grow()
    topic.send(1, 100)
    known = KafkaStreamReader(topic.options()).latestOffset(topic.at(0), ReadMaxRows(20))
    end = KafkaStreamReader(topic.options()).latestOffset(known, ReadMaxRows(20))
    topic.forget(1, 5)
    with pytest.raises(MilestonesError, match="failOnDataLoss"):
        KafkaStreamReader(topic.options()).partitions(known, end)
    allowed = KafkaStreamReader(topic.options(failOnDataLoss="false"))
    assert planned(allowed, known, end) == [(1, 5, 20)]


def numbers(topic: Topic, **options: str) -> list[int]:
    whole = Range(TopicPartition(topic.name, 0), 0, 10)
    batches = read(topic.options(**options), whole)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_what_retention_takes_while_it_is_read_is_a_loss_unless_told_otherwise(topic: Topic) -> None:
    topic.send(0, 10)
    topic.forget(0, 4)
    with pytest.raises(MilestonesError, match="failOnDataLoss"):
        numbers(topic)
    assert numbers(topic, failOnDataLoss="false") == [4, 5, 6, 7, 8, 9]
    topic.forget(0, 10)
    assert numbers(topic, failOnDataLoss="false") == []
