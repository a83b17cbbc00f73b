"""Describes the members of a group that speaks another protocol, for the text of an error.

*Guarantees*: no error is raised. If the coordinator doesn't answer, the text is empty.
*Assumes*: the caller is the thread that owns the connections to the coordinator.
"""

from __future__ import annotations

from typing import Final

from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.types import GroupId

from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership.coordinator import Coordinator

KAFKA_STREAMS: Final = "stream"
"""The protocol name of Kafka Streams' members in the classic group protocol."""
SHOWN: Final = 3
"""The most members that the text names."""


def foreign_members(coordinator: Coordinator, group: str) -> str:
    """Returns a text with the group's protocol, and the client ids and hosts of its members."""
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    try:
        (found,) = coordinator.call(request, DescribeGroupsResponse).groups
    except MilestonesError:
        return ""
    if not found.members:
        return ""
    names = sorted(f"{member.client_id} on {member.client_host.lstrip('/')}" for member in found.members)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    whose = " of Kafka Streams" if found.protocol_data == KAFKA_STREAMS else ""
    speak = f", which speak {found.protocol_data}{whose}" if found.protocol_data else ""
    return f"in the group are {', '.join(names[:SHOWN])}{more}{speak}"
