"""`StaticMembers`: finds and removes the static members of an instance, also those whose threads have ended.

A static member that doesn't leave the group keeps its tasks until its session ends, even if its thread never comes
back. A process recognises its members by the process id in their metadata. While the group rebalances, the broker
returns no metadata. Then the process recognises its members by the static ids that it has written down.

*Guarantees*: a member of another process is never removed while the group is stable. Removing a static id that has no
member is no error.
*Assumes*: no other live process has this process id. One owner thread.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import Final

from kio.schema.leave_group.v5 import LeaveGroupResponse

from milestones.common.assignment.model import UserDataError
from milestones.common.kafka.groups import DescribedMember, GroupReader
from milestones.common.kafka.membership.coordinator import CoordinatorError
from milestones.common.kafka.membership.protocol import LEFT, read_subscription, removal_request

log: Final = logging.getLogger(__name__)

REASON = "the instance has started again without this member"


class StaticMembers(GroupReader):
    """A `GroupReader` that can remove static members."""

    def of(self, process_id: str, known: Set[str]) -> frozenset[str]:
        """Returns the static ids of the process's members in the group. `known`: the static ids that the process has
        written down. Raises the errors of `GroupReader`."""
        return frozenset(
            member.instance_id
            for member in self.describe().members
            if member.instance_id is not None and _belongs(member, process_id, known)
        )

    def remove(self, instance_ids: Set[str]) -> None:
        """Remove these members from the group, with one request. Raises the errors of `GroupReader`."""
        what = (
            f"the obsolete static members {', '.join(sorted(instance_ids))} of the group {self._group} can't leave it"
        )
        request = removal_request(self._group, instance_ids, REASON)
        self._ask(request, LeaveGroupResponse, _left, what, "check that this principal may read the group")


def _belongs(member: DescribedMember, process_id: str, known: Set[str]) -> bool:
    if not member.metadata:
        return member.instance_id in known
    try:
        return read_subscription(member.metadata).process_id == process_id
    except UserDataError:
        return False


def _left(answer: LeaveGroupResponse) -> None:
    for code in (answer.error_code, *(member.error_code for member in answer.members)):
        if code not in LEFT:
            raise CoordinatorError("LeaveGroup", code)
