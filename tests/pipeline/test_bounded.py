"""A consumer that reads each partition up to an offset: scripted messages."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from milestones.common.kafka.consumers import Fetched
from milestones.common.records import TopicPartition
from milestones.pipeline.bounded import BoundedConsumer
from tests.common.kafka.test_consumers import OTHER, SETTINGS, Scripted, record, told

IN = TopicPartition("in", 0)


def scripted(ends: dict[TopicPartition, int], *messages: Message) -> tuple[BoundedConsumer, Scripted]:
    consumer, script = BoundedConsumer(SETTINGS, ends), Scripted(*messages)
    consumer.close()
    consumer._consumer = script  # type: ignore[assignment]
    return consumer, script


def offsets(fetched: Fetched) -> dict[TopicPartition, list[int | None]]:
    return {partition: [message.offset() for message in some] for partition, some in fetched.records.items()}


def test_records_behind_the_end_arent_handed_out_and_the_end_is_told() -> None:
    consumer, _ = scripted({IN: 5}, record(3), record(4), record(5), record(6))
    consumer.assign({IN: 3})
    assert not consumer.complete
    fetched = consumer.fetch(100, 0)
    assert (offsets(fetched), fetched.ends) == ({IN: [3, 4]}, {IN: 5})
    assert consumer.complete
    assert consumer.assigned == frozenset()


def test_a_gap_at_the_end_is_passed_by_the_next_record_or_the_partitions_own_end() -> None:
    consumer, _ = scripted({IN: 5}, record(3), record(9))
    consumer.assign({IN: 3})
    assert consumer.fetch(100, 0).ends == {IN: 5}
    consumer, _ = scripted({IN: 5}, told(KafkaError._PARTITION_EOF, offset=5))
    consumer.assign({IN: 3})
    assert consumer.fetch(100, 0).ends == {IN: 5}


def test_an_end_of_the_partition_before_ours_isnt_told() -> None:
    consumer, _ = scripted({IN: 5}, told(KafkaError._PARTITION_EOF, offset=4))
    consumer.assign({IN: 3})
    assert consumer.fetch(100, 0).ends == {}
    assert not consumer.complete


def test_a_partition_that_is_at_its_end_already_is_never_fetched() -> None:
    consumer, script = scripted({IN: 5, OTHER: 7}, record(0, partition=1))
    consumer.assign({IN: 6, OTHER: 0})
    assert script.calls == [("incremental_assign", [(OTHER.partition, 0)]), ("list_topics", OTHER.topic)]
    fetched = consumer.fetch(100, 0)
    assert fetched.ends == {IN: 6}
    assert offsets(fetched) == {OTHER: [0]}
    assert not consumer.complete


def test_it_is_complete_only_once_every_end_was_told() -> None:
    consumer, _ = scripted({IN: 5, OTHER: 1}, record(4))
    consumer.assign({IN: 4})
    consumer.fetch(100, 0)
    assert not consumer.complete
    consumer.assign({OTHER: 1})
    assert not consumer.complete
    consumer.fetch(100, 0)
    assert consumer.complete
