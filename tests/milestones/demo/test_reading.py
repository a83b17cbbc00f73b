"""The demo's feeder and readers, on a real broker."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from milestones.common.kafka.creation import create_topics
from milestones.common.kafka.topics import Cluster, InternalTopic
from milestones.common.records import TopicPartition
from milestones.demo.feed import Feeder
from milestones.demo.reading import DemoProgress, TopicTable
from tests import topics

pytestmark = pytest.mark.kafka
LINES = [f"line {number}" for number in range(50)]


@pytest.fixture
def group(kafka: str) -> str:
    """A fresh application id, with a source topic `<id>-source` and a repartition topic, of two partitions each."""
    name = f"demo-{uuid4().hex[:8]}"
    topics = [InternalTopic(f"{name}-{suffix}", 2, {}) for suffix in ("source", "words-repartition")]
    create_topics(Cluster({"bootstrap.servers": kafka}), topics, 1)
    return name


@pytest.fixture
def progress(kafka: str, group: str) -> DemoProgress:
    return DemoProgress(kafka, group, f"{group}-source")


def fed(kafka: str, topic: str, lines: list[str]) -> Feeder:
    feeder = Feeder(kafka, topic, lines, 2, seconds=0)
    feeder.start()
    feeder.join()
    return feeder


def commit(kafka: str, group: str, offsets: dict[str, list[int]]) -> None:
    """Commit offsets of topics, by partition."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    positions = [Position(topic, number, at) for topic, each in offsets.items() for number, at in enumerate(each)]
    topics.commit(consumer, positions)
    consumer.close()


def transactional(kafka: str, topic: str, values: dict[str, str], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": uuid4().hex})
    producer.init_transactions()
    producer.begin_transaction()
    for key, value in values.items():
        producer.produce(topic, value, key, partition=0)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


def test_the_feeder_sends_every_line_once(kafka: str, group: str, progress: DemoProgress) -> None:
    feeder = fed(kafka, f"{group}-source", LINES)
    assert (feeder.error, feeder.finished, feeder.sent) == (None, True, len(LINES))
    assert sum(progress.ends([f"{group}-source"]).values()) == len(LINES)


def test_a_feeder_can_be_stopped_on_its_way(kafka: str, group: str) -> None:
    feeder = Feeder(kafka, f"{group}-source", LINES, 2, seconds=10_000)
    feeder.start()
    feeder.close()
    assert not feeder.is_alive()
    assert not feeder.finished


def test_a_line_that_kafka_refuses_is_an_error_of_the_feeder(kafka: str, group: str) -> None:
    feeder = fed(kafka, f"{group}-source", ["x" * 900_000, "x" * 2_000_000])
    assert feeder.error is not None
    assert not feeder.finished


def test_a_fold_has_the_last_value_per_key_without_what_was_aborted(
    kafka: str, group: str, progress: DemoProgress
) -> None:
    topic = f"{group}-words-repartition"
    transactional(kafka, topic, {"a": "1", "b": "1"}, commit=True)
    transactional(kafka, topic, {"a": "2"}, commit=True)
    transactional(kafka, topic, {"b": "9", "c": "9"}, commit=False)
    with closing(TopicTable(kafka, topic, 2)) as fold:
        fold.read_to(progress.ends([topic]))
        assert (fold.table, fold.records) == ({b"a": b"2", b"b": b"1"}, 3)


def test_lag_is_what_is_not_committed(kafka: str, group: str, progress: DemoProgress) -> None:
    fed(kafka, f"{group}-source", LINES)
    commit(kafka, group, {f"{group}-source": [20, 10]})
    progress.update()
    assert (progress.read, progress.lag) == (30, 20)
    assert not progress.done()


def test_all_is_done_when_only_the_marks_of_transactions_are_left(
    kafka: str, group: str, progress: DemoProgress
) -> None:
    fed(kafka, f"{group}-source", LINES)
    transactional(kafka, f"{group}-words-repartition", {"a": "1"}, commit=True)
    commit(kafka, group, {f"{group}-source": [25, 25]})
    assert not progress.done()
    commit(kafka, group, {f"{group}-words-repartition": [1, 0]})
    assert progress.ends([f"{group}-words-repartition"])[TopicPartition(f"{group}-words-repartition", 0)] == 2
    assert progress.done()
