"""`OwnerEvents`: posts events to the owner of a member, and publishes the membership.

*Guarantees*: the owner gets no second `JoinNeeded` before it has answered the first. A published membership stays valid
until the next one is published, so the old generation is visible during a rebalance.
*Assumes*: one owner, `MemberMachine`.
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
    """Events and membership for the owner. `published`: the membership that was published last. `post` is called with
    each event and the number of the owner's last `Join`."""

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
        """Ask the owner to join, unless it hasn't answered an earlier `JoinNeeded` yet."""
        if self._asked is None:
            self._asked = reason
            self._post(JoinNeeded(reason))

    def ask_once_assigned(self, reason: str) -> None:
        """Ask the owner to join once more after the next assignment. The present join may have begun before the
        reason."""
        self._wish = reason

    def stale(self, join: Join) -> None:
        """Note a join that the owner sent before it knew of a loss. It counts as answered, and isn't carried out."""
        self._publish(joins=join.number)

    def taken(self, join: Join) -> str:
        """Note the owner's join. Returns the reason of the `JoinNeeded` that it answers."""
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
