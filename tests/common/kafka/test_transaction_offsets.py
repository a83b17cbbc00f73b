"""A transaction's offsets with metadata that every program reads: a coordinator in memory first, then a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8 import OffsetFetchResponse
from kio.schema.txn_offset_commit.v3.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from milestones.common.kafka.failures import ErrorClass, classify
from milestones.common.kafka.membership import group_metadata
from milestones.common.kafka.membership.coordinator import Coordinator
from milestones.common.kafka.membership.metadata import GenerationOfMember, read_group_metadata
from milestones.common.kafka.membership.protocol import fetch_request
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.transaction_offsets import ProducerIdentity, TransactionOffsets
from milestones.common.kafka.wire import ConnectionLostError, Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.testing import StepClock
from milestones.testing import until
from tests.common.kafka.fake_broker import ZERO, FakeBroker
from tests.topics import named, new_topic

IN, OTHER = TopicPartition("in", 0), TopicPartition("other", 3)
SETTINGS = {"bootstrap.servers": "b:1", "transactional.id": "app-1"}
TIMEOUT_MS = 20_000


class Broker(FakeBroker):
    """A coordinator that takes offsets into transactions."""

    def __init__(self, *codes: ErrorCode | Exception) -> None:
        super().__init__()
        self.codes["TxnOffsetCommit"] = [*codes]
        self.clock = StepClock()

    def _TxnOffsetCommit(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802
        partitions: Any = [
            (topic.name, tuple(
                TxnOffsetCommitResponsePartition(partition_index=at.partition_index, error_code=code)
                for at in topic.partitions
            ))
            for topic in request.topics
        ]  # fmt: skip
        topics = tuple(TxnOffsetCommitResponseTopic(name=name, partitions=those) for name, those in partitions)
        return TxnOffsetCommitResponse(throttle_time=ZERO, topics=topics)

    def send(self, *, instance: str | None = None, timeout_ms: int = 1_000) -> None:
        offsets = TransactionOffsets(SETTINGS, connect=self.connect, clock=self.clock)
        with closing(offsets):
            offsets.send(
                {OTHER: OffsetAndMetadata(4), IN: OffsetAndMetadata(7, "AgAA")},
                group_metadata("g", 5, "m-1", instance), ProducerIdentity(17, 3), timeout_ms,
            )  # fmt: skip


@pytest.mark.parametrize("instance", [None, "i-1"])
def test_they_are_sent_as_the_producer_and_as_the_member_that_they_belong_to(instance: str | None) -> None:
    broker = Broker()
    broker.send(instance=instance)
    [request] = broker.of("TxnOffsetCommit")
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("app-1", 17, 3)
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 5, "m-1")
    assert request.group_instance_id == instance
    sent = {
        (topic.name, at.partition_index): (at.committed_offset, at.committed_metadata)
        for topic in request.topics
        for at in topic.partitions
    }
    assert sent == {IN: (7, "AgAA"), OTHER: (4, "")}
    assert broker.open() == 0


PASSING = [
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.concurrent_transactions,
    ConnectionLostError("c:1: gone"),
]


@pytest.mark.parametrize("trouble", PASSING)
def test_what_passes_is_waited_for_and_then_handed_back_to_be_asked_again(trouble: ErrorCode | Exception) -> None:
    broker = Broker(trouble, trouble)
    broker.send()
    assert len(broker.of("TxnOffsetCommit")) == 3
    broker = Broker(*[trouble] * 1_000)
    with pytest.raises(KafkaException) as caught:
        broker.send()
    assert classify(caught.value) is ErrorClass.RETRIABLE


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.group_authorization_failed,
    ],
)
def test_what_does_not_pass_costs_the_transaction_at_once(code: ErrorCode) -> None:
    broker = Broker(code)
    with pytest.raises(KafkaException) as caught:
        broker.send()
    assert classify(caught.value) is ErrorClass.ABORTABLE
    assert code.name in str(caught.value)
    assert len(broker.of("TxnOffsetCommit")) == 1


@pytest.mark.parametrize("instance", [None, "i", "a-longer-one"])
def test_the_bytes_for_the_client_say_whose_they_are(instance: str | None) -> None:
    made = group_metadata("a-group", 70_000, "a-member", instance)
    assert read_group_metadata(made) == GenerationOfMember("a-group", 70_000, "a-member", instance)


# -- on a broker


def raw_metadata(kafka: str, group: str, at: TopicPartition) -> str | None:
    """As it lies in Kafka: readers of ours leave out a zero byte at its end."""
    wire = WireSettings.of({"bootstrap.servers": kafka})
    coordinator = Coordinator(group, wire.bootstrap, Connector(wire), TIMEOUT_MS)
    try:
        answer = coordinator.call(fetch_request(group, [at]), OffsetFetchResponse)
    finally:
        coordinator.forget()
    [topic] = answer.groups[0].topics
    return topic.partitions[0].metadata


@contextmanager
def transactions_of_a_member(kafka: str) -> Iterator[tuple[str, TopicPartition, Consumer, OutputProducer]]:
    """A group, its only partition, the consumer that has it, and a producer that may begin."""
    topic, group = new_topic(kafka), named("group")
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    consumer.subscribe([topic])
    producer = OutputProducer({"bootstrap.servers": kafka, "transactional.id": named("tx")})
    try:
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "the consumer has its partition")
        producer.init_transactions(TIMEOUT_MS)
        yield group, TopicPartition(topic, 0), consumer, producer
    finally:
        producer.close()
        consumer.close()


@pytest.mark.kafka
def test_the_metadata_of_a_transaction_are_the_text_and_nothing_more(kafka: str) -> None:
    with transactions_of_a_member(kafka) as (group, at, consumer, producer):
        for offset, text in ((3, "AgAAAYs="), (4, "AgAAAYt7")):
            producer.begin()
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets({at: OffsetAndMetadata(offset, text)}, metadata, TIMEOUT_MS)  # type: ignore[arg-type]
            producer.commit(TIMEOUT_MS)
            until(lambda text=text: raw_metadata(kafka, group, at) == text, f"{text!r} is committed")  # type: ignore[misc]


@pytest.mark.kafka
def test_an_aborted_transaction_leaves_neither_offsets_nor_metadata(kafka: str) -> None:
    with transactions_of_a_member(kafka) as (group, at, consumer, producer):
        for offset, end in ((3, producer.commit), (9, producer.abort)):
            producer.begin()
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets({at: OffsetAndMetadata(offset, f"at {offset}")}, metadata, TIMEOUT_MS)  # type: ignore[arg-type]
            end(TIMEOUT_MS)
        until(lambda: raw_metadata(kafka, group, at) == "at 3", "the first is committed")
