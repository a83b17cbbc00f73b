"""`TransactionOffsets`: sends a transaction's offsets a second time, with metadata that every program can read.

*Why this way*: confluent-kafka adds a zero byte to the metadata of an offset, and its call for transactions has no
alternative. Kafka Streams expects base64, can't read such metadata, and would emit closed windows a second time. So the
client sends the offsets without metadata, which adds the group to the transaction. Then this class sends a
TxnOffsetCommit request of our own with the same producer id and epoch, member and generation. Kafka commits the offset
that it received last for a partition.

*Guarantees*: the request is fenced like the client's own, by the producer's epoch and by the generation. An error is a
`KafkaException` that `failures.classify` can sort, as after a transactional call.
*Assumes*: the client's own call has succeeded in this transaction. One thread at a time uses the producer and this
object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from kio.schema.errors import ErrorCode
from kio.schema.txn_offset_commit.v3 import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kio.schema.txn_offset_commit.v3.request import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i64

from milestones.common.clock import Clock, SystemClock
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError, code_of
from milestones.common.kafka.membership.metadata import GenerationOfMember, read_group_metadata
from milestones.common.kafka.wire import Connect, ConnectionLostError, Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.records import OffsetAndMetadata, TopicPartition

REQUEST_MS: Final = 3_000
"""The longest wait for one answer, or for a connection. After that the request is repeated, which is harmless."""
PAUSE_MS: Final = 50


class ProducerIdentity(NamedTuple):
    """The id and epoch by which Kafka identifies a transactional producer. A later producer with the same transactional
    id has a higher epoch."""

    id: int
    epoch: int


class TransactionOffsets:
    """Sends offsets with metadata. *Owns*: a connection to the group's coordinator."""

    def __init__(
        self, settings: Mapping[str, Any], *, connect: Connect | None = None, clock: Clock | None = None
    ) -> None:
        """`settings`: the settings of the producer, with confluent-kafka's names."""
        self._settings, self._connect, self._clock = settings, connect, clock or SystemClock()
        self._coordinator: Coordinator | None = None

    def send(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: bytes,
        producer: ProducerIdentity,
        timeout_ms: int,
    ) -> None:
        """Put the offsets into the open transaction of `producer`. After a retriable error the request is repeated, for
        `timeout_ms`. Raises `KafkaException` if Kafka refuses, or when the time is over."""
        member = read_group_metadata(group_metadata)
        request = _request(str(self._settings["transactional.id"]), member, producer, offsets)
        deadline = self._clock.monotonic_ms() + timeout_ms
        while (error := self._refusal(request, member.group)) is not None:
            if not error.retriable() or self._clock.monotonic_ms() >= deadline:
                raise KafkaException(error)
            self._clock.sleep_ms(PAUSE_MS)

    def _refusal(self, request: TxnOffsetCommitRequest, group: str) -> KafkaError | None:
        """Send one request. Returns its error, or None if it succeeded."""
        coordinator = self._coordinator = self._coordinator or self._new_coordinator(group)
        try:
            code = code_of(coordinator.call(request, TxnOffsetCommitResponse))
        except ConnectionLostError as lost:
            coordinator.forget()
            return KafkaError(KafkaError._TRANSPORT, f"TxnOffsetCommit: {lost}", False, True)
        except CoordinatorError as unknown:
            code = unknown.code
        if code is ErrorCode.none:
            return None
        coordinator.forget()
        reason = f"TxnOffsetCommit of the group {group}: {code.name}"
        return KafkaError(int(code.value), reason, False, code.retriable, not code.retriable)

    def _new_coordinator(self, group: str) -> Coordinator:
        wire = WireSettings.of(self._settings)
        request_ms, connect_ms = min(wire.socket_timeout_ms, REQUEST_MS), min(wire.connect_timeout_ms, REQUEST_MS)
        wire = replace(wire, socket_timeout_ms=request_ms, connect_timeout_ms=connect_ms)
        return Coordinator(group, wire.bootstrap, self._connect or Connector(wire), request_ms)

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        if self._coordinator is not None:
            self._coordinator.forget()


def _request(
    transactional_id: str,
    member: GenerationOfMember,
    producer: ProducerIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=tuple(
                TxnOffsetCommitRequestPartition(
                    partition_index=i32(at.partition),
                    committed_offset=i64(offsets[at].offset),
                    committed_metadata=offsets[at].metadata,
                )
                for at in partitions
            ),
        )
        for topic, partitions in groupby(sorted(offsets), key=lambda at: at.topic)
    )
    return TxnOffsetCommitRequest(
        transactional_id=TransactionalId(transactional_id),
        group_id=GroupId(member.group),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        generation_id=i32(member.generation),
        member_id=member.member,
        group_instance_id=member.instance,
        topics=topics,
    )
