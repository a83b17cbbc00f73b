"""The demo's feeder and readers, on a real broker."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from milestones.common.records import TopicPartition
from milestones.demo.feed import Feeder
from milestones.demo.reading import DemoProgress, TopicTable
from milestones.testing import KafkaProbe
from tests import topics

pytestmark = pytest.mark.kafka
LINES = [f"line {number}" for number in range(50)]


@pytest.fixture
def group(kafka: str) -> str:
    """A fresh application id, with a source topic `<id>-source` and a repartition topic, of two partitions each."""
    name = topics.named("demo")
    KafkaProbe(kafka).create({f"{name}-source": 2, f"{name}-words-repartition": 2})
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
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    positions = [Position(topic, number, at) for topic, each in offsets.items() for number, at in enumerate(each)]
    topics.commit(consumer, positions)
    consumer.close()


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
    records = [("a", "1", True), ("b", "1", True), ("a", "2", True), ("b", "9", False), ("c", "9", False)]
    for key, value, commit in records:
        KafkaProbe(kafka).write(topic, value, key=key, partition=0, transactional_id=topic, commit=commit)
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
    KafkaProbe(kafka).write(f"{group}-words-repartition", "1", key="a", partition=0, transactional_id=group)
    commit(kafka, group, {f"{group}-source": [25, 25]})
    assert not progress.done()
    commit(kafka, group, {f"{group}-words-repartition": [1, 0]})
    assert progress.ends([f"{group}-words-repartition"])[TopicPartition(f"{group}-words-repartition", 0)] == 2
    assert progress.done()
