"""Reads a consumer group from outside: its members with their user data, and its committed offsets.

*Guarantees*: metadata of committed offsets is read only where it is asked for (`stable`). One connection to the
coordinator serves all questions, and is closed by `close`.
*Assumes*: one owner thread. The group needn't exist, and Kafka needn't have a coordinator for it yet.

*Why this way*: the calls of confluent-kafka can't be used. If the group has no coordinator yet, the admin client's call
for offsets makes the whole process crash (confluent-kafka-python's issue 1982). The consumer reads metadata beyond its
end. The description of a group leaves out the members' user data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8 import OffsetFetchRequest, OffsetFetchResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequestGroup
from kio.schema.types import GroupId
from kio.static.protocol import RequestPayload, ResponsePayload

from milestones.common.clock import Clock, SystemClock
from milestones.common.config.keys import KEYS
from milestones.common.errors import KafkaUnreachableError, MilestonesError, SecurityError
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.protocol import fetch_request
from milestones.common.kafka.membership.reactions import FORBIDDEN
from milestones.common.kafka.wire import Connect, ConnectionLostError, Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.records import OffsetAndMetadata, TopicPartition

A = TypeVar("A", bound=ResponsePayload)
T = TypeVar("T")

PAUSE_MS = 100
MAY_DESCRIBE = "check that this principal may describe the group and its topics"


@dataclass(frozen=True)
class DescribedMember:
    """One member. `metadata` and `assignment` are empty while the group rebalances."""

    id: str
    client_id: str
    host: str
    instance_id: str | None
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True)
class DescribedGroup:
    """`state` is Kafka's: Stable, PreparingRebalance, CompletingRebalance, Empty, or Dead when there is none.

    `protocol_type` is `consumer` for groups of consumers, `protocol` the one that its members agreed on.
    """

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class GroupReader:
    """Asks the coordinator of one group. *Owns*: the connection."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        group: str,
        *,
        timeout_ms: int,
        connect: Connect | None = None,
        clock: Clock | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        """`settings` are a client's, under confluent-kafka's names. Each question is asked again for `timeout_ms` while
        Kafka can't say, then it is a `KafkaUnreachableError`. Raises `SecurityError` if the principal lacks the right,
        another `MilestonesError` when Kafka refuses for another reason. `coordinator`: its connection, when another
        object of the same thread has one already."""
        self._group, self._timeout_ms, self._clock = group, timeout_ms, clock or SystemClock()
        self._servers = settings.get("bootstrap.servers")
        wire = WireSettings.of(settings)
        request_ms, connect_ms = min(wire.socket_timeout_ms, timeout_ms), min(wire.connect_timeout_ms, timeout_ms)
        wire = replace(wire, socket_timeout_ms=request_ms, connect_timeout_ms=connect_ms)
        self._coordinator = coordinator or Coordinator(group, wire.bootstrap, connect or Connector(wire), request_ms)

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The committed offsets (next to read) of `partitions`, or of all that the group has committed; without those
        of pending transactions. Partitions that have none are left out."""
        return {partition: at.offset for partition, at in self.offsets(partitions).items()}

    def offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `committed`, with the offsets' metadata."""
        return self._ask(
            _offsets_request(self._group, partitions), OffsetFetchResponse, _offsets_in, self._what("offsets")
        )

    def stable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of `partitions` with their metadata, once no transaction pends on any of them
        (KIP-447)."""
        request = fetch_request(self._group, partitions)
        return self._ask(request, OffsetFetchResponse, _offsets_in, self._what("offsets, once they are stable,"))

    def _what(self, what: str) -> str:
        return f"committed {what} of the group {self._group} can't be read"

    def describe(self) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=(GroupId(self._group),), include_authorized_operations=False)
        what = f"the group {self._group} can't be described"
        return self._ask(request, DescribeGroupsResponse, _group_in, what)

    def _ask(
        self, request: RequestPayload, answer: type[A], read: Callable[[A], T], what: str, rights: str = MAY_DESCRIBE
    ) -> T:
        deadline = self._clock.monotonic_ms() + self._timeout_ms
        while True:
            try:
                return read(self._coordinator.call(request, answer))
            except (ConnectionLostError, CoordinatorError) as error:
                self._coordinator.forget()
                if isinstance(error, CoordinatorError) and not error.code.retriable:
                    kind = SecurityError if error.code in FORBIDDEN else MilestonesError
                    raise kind(f"{what}: {error}; {rights}") from error
                if self._clock.monotonic_ms() >= deadline:
                    raise KafkaUnreachableError(
                        f"{what}: no broker of bootstrap_servers={self._servers!r} answered for the group "
                        f"within {self._timeout_ms / 1000:g} s: {error}; check {the_address(self._servers)} and "
                        "security_protocol, and that the brokers are up"
                    ) from error
                self._clock.sleep_ms(PAUSE_MS)

    def close(self) -> None:
        self._coordinator.forget()


def _offsets_request(group: str, partitions: Iterable[TopicPartition] | None) -> OffsetFetchRequest:
    request = replace(fetch_request(group, partitions or ()), require_stable=False)
    if partitions is not None:
        return request
    return replace(request, groups=(OffsetFetchRequestGroup(group_id=GroupId(group), topics=None),))


def _offsets_in(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    (group,) = answer.groups
    if group.error_code is not ErrorCode.none:
        raise CoordinatorError("OffsetFetch", group.error_code)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in group.topics:
        for at in topic.partitions:
            if at.error_code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                raise CoordinatorError("OffsetFetch", at.error_code)
            if at.committed_offset >= 0:
                committed = OffsetAndMetadata(at.committed_offset, (at.metadata or "").rstrip("\0"))
                found[TopicPartition(topic.name, at.partition_index)] = committed
    return found


def _group_in(answer: DescribeGroupsResponse) -> DescribedGroup:
    (group,) = answer.groups
    if group.error_code is not ErrorCode.none:
        raise CoordinatorError("DescribeGroups", group.error_code)
    members = tuple(
        DescribedMember(
            m.member_id, m.client_id, m.client_host.lstrip("/"), m.group_instance_id,
            m.member_metadata, m.member_assignment,
        )
        for m in group.members
    )  # fmt: skip
    return DescribedGroup(group.group_state, group.protocol_type, group.protocol_data, members)


def the_address(servers: str | None) -> str:
    """The address to check when no broker answers, with a hint where it is the default."""
    default = KEYS["bootstrap_servers"].default
    return f"the address ({default} is the default, where bootstrap_servers isn't given)" if servers == default else (
        "the address"
    )
