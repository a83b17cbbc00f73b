"""Writes and reads subscriptions and assignments in Kafka's consumer format, and makes requests of the group protocol.

*Guarantees*: topics and partitions are written where Kafka's tools and the broker's offset expiry read them. Everything
else is in the user data. Bytes of another member that can't be read raise `UserDataError`.
*Assumes*: every member that offers a protocol name of `settings.PROTOCOLS` writes this format.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import groupby
from typing import TypeVar

from kio.schema.consumer_protocol_assignment.v3 import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as AssignedTopic
from kio.schema.consumer_protocol_subscription.v3 import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v3.data import TopicPartition as OwnedTopic
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v8.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32, i32Timedelta, i64
from kio.static.protocol import Entity

from milestones.common.assignment.model import (
    Assignment,
    Subscription,
    UserDataError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from milestones.common.kafka.membership.events import Offsets
from milestones.common.kafka.membership.settings import PROTOCOL_TYPE, MemberSettings
from milestones.common.records import TopicPartition

E = TypeVar("E", bound=Entity)

FORMAT_VERSION = 3
LEFT = frozenset({ErrorCode.none, ErrorCode.unknown_member_id})
"""The codes of LeaveGroup which mean that the member isn't in the group any more."""
MAX_REASON = 255
"""The number of characters of a reason that the broker keeps."""


def subscription_bytes(subscription: Subscription, owned: Iterable[TopicPartition], version: int) -> bytes:
    """Returns the bytes of a subscription. `version`: the version of the user data."""
    entity = ConsumerProtocolSubscription(
        topics=tuple(sorted(subscription.topics)),
        user_data=encode_subscription(subscription, version),
        owned_partitions=tuple(OwnedTopic(topic=t, partitions=p) for t, p in _by_topic(owned)),
        generation_id=i32(subscription.generation),
    )
    return _pack(entity)


def read_subscription(data: bytes) -> Subscription:
    """Returns the subscription in `data`. Raises `UserDataError` with the reason if it can't be read."""
    entity = _unpack(data, ConsumerProtocolSubscription)
    return decode_subscription(entity.user_data, entity.topics, entity.generation_id)


def assignment_bytes(assignment: Assignment) -> bytes:
    """Returns the bytes of an assignment. Kafka's own fields contain the input partitions of the active tasks."""
    inputs = {tp for task in assignment.active for tp in assignment.partitions.get(task, ())}
    topics = tuple(AssignedTopic(topic=t, partitions=p) for t, p in _by_topic(inputs))
    return _pack(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=encode_assignment(assignment)))


def read_assignment(data: bytes) -> Assignment:
    """Returns the assignment in `data`. No bytes mean an empty assignment: the leader has given the member nothing.

    Raises `UserDataError` if `data` can't be read, or if another program has made the assignment. The broker makes it
    if a consumer with the newer group protocol (KIP-848) is in the group."""
    if not data:
        return Assignment()
    entity = _unpack(data, ConsumerProtocolAssignment)
    if not entity.user_data:
        given = sum(len(topic.partitions) for topic in entity.assigned_partitions)
        raise UserDataError(
            f"another program assigns its partitions ({given} to this member), whose records nobody would process: an "
            "ordinary consumer (group.protocol=consumer) is in it. Stop that one, or give it another group id than "
            "application_id, and start again"
        )
    return decode_assignment(entity.user_data)


def join_request(
    settings: MemberSettings, member_id: str, held: Subscription, owned: Iterable[TopicPartition], reason: str
) -> JoinGroupRequest:
    """Returns a JoinGroup request with all offered protocols, each with metadata in its version. The broker chooses the
    first protocol that all members offer, and sends the leader each member's metadata in this protocol."""
    inputs = list(owned)
    return JoinGroupRequest(
        group_id=GroupId(settings.group_id),
        session_timeout=_duration(settings.session_timeout_ms),
        rebalance_timeout=_duration(settings.max_poll_interval_ms),
        member_id=member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            JoinGroupRequestProtocol(name=name, metadata=subscription_bytes(held, inputs, version))
            for name, version in settings.protocols.items()
        ),
        reason=reason[:MAX_REASON],
    )


def sync_request(
    settings: MemberSettings, generation: int, member_id: str, protocol: str | None, result: Mapping[str, Assignment]
) -> SyncGroupRequest:
    """Returns a SyncGroup request. `result`: the assignments that the leader has made; empty for other members."""
    return SyncGroupRequest(
        group_id=GroupId(settings.group_id),
        generation_id=i32(generation),
        member_id=member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=name, assignment=assignment_bytes(assignment))
            for name, assignment in sorted(result.items())
        ),
    )


def heartbeat_request(settings: MemberSettings, generation: int, member_id: str) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=GroupId(settings.group_id),
        generation_id=i32(generation),
        member_id=member_id,
        group_instance_id=settings.instance_id,
    )


def leave_request(settings: MemberSettings, member_id: str, reason: str) -> LeaveGroupRequest:
    member = MemberIdentity(member_id=member_id, group_instance_id=settings.instance_id, reason=reason[:MAX_REASON])
    return LeaveGroupRequest(group_id=GroupId(settings.group_id), members=(member,))


def removal_request(group: str, instance_ids: Iterable[str], reason: str) -> LeaveGroupRequest:
    """Returns a LeaveGroup request that removes static members by their static ids (KIP-345)."""
    members = tuple(
        MemberIdentity(member_id="", group_instance_id=instance_id, reason=reason[:MAX_REASON])
        for instance_id in sorted(instance_ids)
    )
    return LeaveGroupRequest(group_id=GroupId(group), members=members)


def commit_request(settings: MemberSettings, generation: int, member_id: str, offsets: Offsets) -> OffsetCommitRequest:
    topics = tuple(
        OffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=i32(tp.partition),
                    committed_offset=i64(offsets[tp].offset),
                    committed_metadata=offsets[tp].metadata,
                )
                for tp in group
            ),
        )
        for topic, group in groupby(sorted(offsets), key=lambda tp: tp.topic)
    )
    return OffsetCommitRequest(
        group_id=GroupId(settings.group_id),
        generation_id_or_member_epoch=i32(generation),
        member_id=member_id,
        group_instance_id=settings.instance_id,
        topics=topics,
    )


def fetch_request(group: str, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
    topics = tuple(
        OffsetFetchRequestTopics(name=topic, partition_indexes=indexes) for topic, indexes in _by_topic(partitions)
    )
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=GroupId(group), topics=topics),), require_stable=True
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[TopicName, tuple[i32, ...]]]:
    grouped = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return [(TopicName(topic), tuple(i32(tp.partition) for tp in group)) for topic, group in grouped]


def _duration(ms: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=ms))


def _pack(entity: Entity) -> bytes:
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    return FORMAT_VERSION.to_bytes(2, "big") + body.getvalue()


def _unpack(data: bytes, kind: type[E]) -> E:
    version = int.from_bytes(data[:2], "big")
    if version < FORMAT_VERSION:
        raise UserDataError(f"it writes version {version} of Kafka's consumer format: the group id is used twice")
    try:
        # A newer version only adds fields at the end. They aren't read, as in Kafka's own clients.
        return entity_reader(kind)(data, 2)[0]
    except (SerialError, ValueError) as error:
        raise UserDataError(f"its metadata can't be read: {error}") from error
