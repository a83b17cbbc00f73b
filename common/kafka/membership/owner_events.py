"""What the owner hears of its member: events, the published membership, and why it should join.

*Guarantees*: reasons to join are gathered into one `JoinNeeded` until the owner has answered it. What was published
stays valid until the next is: during a rebalance that is the old generation.
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


class Notices:
    """`published`: what was published last. `post` is given each event with the number of the join it comes after."""

    def __init__(self, post: Callable[[MemberEvent, int], None], publish: Callable[[Membership], None]) -> None:
        self._post_to, self._publish_to = post, publish
        self.published = Membership()
        self._joins = 0
        self._asked: str | None = None
        self._wish: str | None = None

    @property
    def has_generation(self) -> bool:
        return self.published.generation >= 0

    def ask(self, reason: str) -> None:
        """Have the owner join, unless it was asked and hasn't answered."""
        if self._asked is None:
            self._asked = reason
            self._post(JoinNeeded(reason))

    def ask_once_assigned(self, reason: str) -> None:
        """The subscription on its way may not know of the reason yet."""
        self._wish = reason

    def stale(self, join: Join) -> None:
        """The owner's answer came too late to be used."""
        self._publish(joins=join.number)

    def taken(self, join: Join) -> str:
        """The owner has answered: the reason that it was asked for."""
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
        """The owner hears of it if there was something to lose, and has to join in any case."""
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
