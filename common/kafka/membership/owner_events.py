"""`OwnerEvents`: the events for the owner of a member, and the published membership.

*Guarantees*: reasons to join are gathered into one `JoinNeeded` until the owner has answered it. A published membership
holds until the next one: during a rebalance the old generation is published.
*Assumes*: one owner, the member's machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common.assignment.model import Assignment
from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership.events import (
    Assigned,
    Failed,
    Join,
    JoinNeeded,
    Lost,
    MemberEvent,
    Membership,
)


class OwnerEvents:
    """`published`: the membership published last. `post` is called with each event and the number of the join before
    it."""

    def __init__(self, post: Callable[[MemberEvent, int], None], publish: Callable[[Membership], None]) -> None:
        self._post_to, self._publish_to = post, publish
        self.published: Membership = Membership()
        self._joins = 0
        self._asked: str | None = None
        self._wish: str | None = None

    @property
    def has_generation(self) -> bool:
        return self.published.generation >= 0

    def ask(self, reason: str) -> None:
        """Ask the owner to join, unless an earlier request is unanswered."""
        if self._asked is None:
            self._asked = reason
            self._post(JoinNeeded(reason))

    def ask_once_assigned(self, reason: str) -> None:
        """Ask the owner to join again after the next assignment, as the join under way may not know the reason yet."""
        self._wish = reason

    def stale(self, join: Join) -> None:
        """Note that the owner's join came too late."""
        self._publish(joins=join.number)

    def taken(self, join: Join) -> str:
        """Note the owner's answer, and return the reason of the request."""
        self._joins = join.number
        reason, self._asked = self._asked or "asked by the owner", None
        return reason

    def assigned(self, generation: int, member_id: str, assignment: Assignment, *, leads: bool) -> None:
        self._publish(generation=generation, member_id=member_id, joins=self._joins)
        self._post(Assigned(generation, member_id, assignment, leads))
        wish, self._wish = self._wish, None
        if wish is not None:
            self.ask(wish)

    def lost(self, reason: str) -> None:
        """Post `Lost` if there was a generation to lose, then ask the owner to join."""
        held = self.has_generation
        self._asked = self._wish = None
        self._publish(generation=-1, member_id="", joins=self._joins, losses=self.published.losses + held)
        if held:
            self._post(Lost(reason))
        self.ask(reason)

    def failed(self, error: MilestonesError) -> None:
        self._publish(generation=-1, member_id="", joins=self._joins, error=error)
        self._post(Failed(error))

    def _post(self, event: MemberEvent) -> None:
        self._post_to(event, self._joins)

    def _publish(self, **changes: Any) -> None:
        self.published = self.published._replace(**changes)
        self._publish_to(self.published)
