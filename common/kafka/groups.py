"""Reads a consumer group without joining it: the members with their user data, and the committed offsets.

*Guarantees*: one connection to the coordinator serves all questions. `close` closes the connection.
*Assumes*: one owner thread. The group needn't exist, and Kafka needn't have a coordinator for it yet.

*Why this way*: the calls of confluent-kafka can't be used. If the group has no coordinator yet, the admin client's call
for offsets makes the whole process crash (confluent-kafka-python's issue 1982). The consumer's call for offsets reads
memory beyond the end of the metadata. The description of a group leaves out the members' user data.
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
    """One member of a group. `metadata` and `assignment` are empty while the group rebalances."""

    id: str
    client_id: str
    host: str
    instance_id: str | None
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True)
class DescribedGroup:
    """A group, as Kafka describes it. `state` is Stable, PreparingRebalance, CompletingRebalance or Empty. A group that
    doesn't exist has the state Dead.

    `protocol_type` is `consumer` for groups of consumers. `protocol` names the assignor that the members agreed on.
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
        """`settings`: the settings of a client, with confluent-kafka's names. `coordinator`: an existing connection to
        the coordinator, which another object of the same thread also uses.

        Each question is repeated for `timeout_ms` while Kafka can't answer. After that it raises
        `KafkaUnreachableError`. Raises `SecurityError` if the principal lacks the right, or another `MilestonesError`
        if Kafka refuses for another reason."""
        self._group, self._timeout_ms, self._clock = group, timeout_ms, clock or SystemClock()
        self._servers = settings.get("bootstrap.servers")
        wire = WireSettings.of(settings)
        request_ms, connect_ms = min(wire.socket_timeout_ms, timeout_ms), min(wire.connect_timeout_ms, timeout_ms)
        wire = replace(wire, socket_timeout_ms=request_ms, connect_timeout_ms=connect_ms)
        self._coordinator = coordinator or Coordinator(group, wire.bootstrap, connect or Connector(wire), request_ms)

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Returns the committed offsets of `partitions`, by default of all partitions of the group. Offsets in open
        transactions aren't counted. Partitions without a committed offset are left out."""
        return {partition: at.offset for partition, at in self.offsets(partitions).items()}

    def offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the same offsets as `committed`, with their metadata."""
        return self._ask(
            _offsets_request(self._group, partitions), OffsetFetchResponse, _offsets_in, self._what("offsets")
        )

    def stable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Wait until no open transaction contains offsets of `partitions` (KIP-447). Returns their committed offsets
        with the metadata."""
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
    """Returns a phrase for the address that the user should check. It mentions if the address is the default."""
    default = KEYS["bootstrap_servers"].default
    return f"the address ({default} is the default, where bootstrap_servers isn't given)" if servers == default else (
        "the address"
    )
