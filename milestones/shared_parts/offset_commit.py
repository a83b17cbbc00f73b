"""`OffsetCommit` confirms a commit without transactions, by an OffsetCommit request of this runtime's group member.

*Guarantees*: when it fails, everything is kept for the next commit.
*Assumes*: the thread that owns the tasks and the producer makes all calls; all outputs are flushed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.steps import Steps, until_returned
from milestones.common.task.commit_set import CommitSet
from milestones.parts.transaction import CommitStage
from milestones.shared_parts.in_transaction import NO_ROOM, Offsets, end_begun
from milestones.shared_parts.next_producer import ready_for_the_next

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients


class OffsetCommit:
    """The confirmation under `at_least_once`: an OffsetCommit with the member's generation. When it fails, everything
    is kept for the next commit. When it succeeds, a producer that was looking for a refused output is replaced, as all
    outputs are committed."""

    room_ms = 2_000

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context = context
        self.clients: Clients = clients

    @property
    def ending(self) -> CommitStage:
        return CommitStage.COMMITTING_OFFSETS

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        return CommitRetriableError(NO_ROOM)

    def hand_over(self, offsets: Offsets) -> Steps[None]:
        """Do nothing: the offsets are in the request that `end` sends."""
        yield from ()

    def end(self, offsets: Offsets) -> Steps[None]:
        member, config = self.clients.member, self._context.config
        # An answer may take twice the time-out (`GroupMember.begin_commit`), and tasks that leave wait for it.
        member.begin_commit(offsets, min(config.request_timeout_ms, self._context.longest_wait_ms // 2))
        end_begun()
        yield from until_returned(member.commit_returned)
        yield from ready_for_the_next(self._context, self.clients)
