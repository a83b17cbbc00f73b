"""The members of a group that speaks none of our protocols, for the error's text.

*Guarantees*: none of its own failures is an error: then the text is empty.
*Assumes*: the thread that owns the coordinator's connections calls it.
"""

from __future__ import annotations

from typing import Final

from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.types import GroupId

from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership.coordinator import Coordinator

KAFKA_STREAMS: Final = "stream"
"""The protocol of Kafka Streams' classic members."""
SHOWN: Final = 3


def foreign_members(coordinator: Coordinator, group: str) -> str:
    """The protocol of the group and its members, by client id and host."""
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
