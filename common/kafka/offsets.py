"""A group's committed offsets, asked without being a member.

*Guarantees*: only offsets are read, so what other clients wrote as metadata does no harm; connections are closed.
*Assumes*: nothing about the group: it may be unknown, its coordinator still to be made.

The clients' own ways don't do: confluent-kafka's admin call ends the process when the group's coordinator isn't there
yet (confluent-kafka-python's issue 1982), its consumer reads metadata beyond their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8 import OffsetFetchRequest, OffsetFetchResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequestGroup
from kio.schema.types import GroupId

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.protocol import fetch_request
from milestones.common.kafka.wire import Connect, ConnectionLostError, Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.records import TopicPartition

PAUSE_MS = 100


def committed_offsets(
    settings: Mapping[str, Any],
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int,
    connect: Connect | None = None,
    clock: Clock | None = None,
) -> dict[TopicPartition, int]:
    """The group's committed offsets (next to read) of `partitions`, or of all that it has committed; without those of
    pending transactions. Partitions that have none are left out.

    `settings` are a client's, under confluent-kafka's names. Asks again for `timeout_ms` while Kafka can't say, then
    `KafkaUnreachableError`; `MilestonesError` when it refuses.
    """
    clock = clock or SystemClock()
    wire = WireSettings.of(settings)
    request_ms, connect_ms = min(wire.socket_timeout_ms, timeout_ms), min(wire.connect_timeout_ms, timeout_ms)
    wire = replace(wire, socket_timeout_ms=request_ms, connect_timeout_ms=connect_ms)
    coordinator = Coordinator(group, wire.bootstrap, connect or Connector(wire), request_ms)
    request = _request(group, partitions)
    deadline = clock.monotonic_ms() + timeout_ms
    try:
        while True:
            try:
                return _offsets_in(coordinator.call(request, OffsetFetchResponse))
            except (ConnectionLostError, CoordinatorError) as error:
                what = f"committed offsets of the group {group} can't be read"
                if isinstance(error, CoordinatorError) and not error.code.retriable:
                    raise MilestonesError(
                        f"{what}: {error}; check that this principal may describe the group and its topics"
                    ) from error
                if clock.monotonic_ms() >= deadline:
                    raise KafkaUnreachableError(
                        f"{what}: no broker of bootstrap_servers={settings.get('bootstrap.servers')!r} told them "
                        f"within {timeout_ms / 1000:g} s: {error}; check the address and that the brokers are up"
                    ) from error
                coordinator.forget()
                clock.sleep_ms(PAUSE_MS)
    finally:
        coordinator.forget()


def _request(group: str, partitions: Iterable[TopicPartition] | None) -> OffsetFetchRequest:
    request = replace(fetch_request(group, partitions or ()), require_stable=False)
    if partitions is not None:
        return request
    return replace(request, groups=(OffsetFetchRequestGroup(group_id=GroupId(group), topics=None),))


def _offsets_in(answer: OffsetFetchResponse) -> dict[TopicPartition, int]:
    (group,) = answer.groups
    if group.error_code is not ErrorCode.none:
        raise CoordinatorError("OffsetFetch", group.error_code)
    found: dict[TopicPartition, int] = {}
    for topic in group.topics:
        for at in topic.partitions:
            if at.error_code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                raise CoordinatorError("OffsetFetch", at.error_code)
            if at.committed_offset >= 0:
                found[TopicPartition(topic.name, at.partition_index)] = at.committed_offset
    return found
