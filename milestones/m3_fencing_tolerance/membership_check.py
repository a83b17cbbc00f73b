"""What a recovery asks the group: whether we still are who we were, and what is committed.

*Guarantees*: answers come from the coordinator, after the question, and each is preceded by a heartbeat that it
accepted under our member id and generation: a process that stood still for longer than its session finds out here. No
question waits longer than it is told to, nor than a thread may that is to stop.
*Assumes*: asked by the member's owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership import Committed, StaleGenerationError
from milestones.common.mailbox import Mailbox

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients


LOOK_MS = 500
"""How often a wait for an answer is looked at: whether there is still time."""


class NoAnswerError(MilestonesError):
    """The coordinator didn't answer in time. Steers the runtime only."""


class GroupQuestions:
    """*Sends*: questions, by the member. *Receives*: `Committed`."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._retry_policy, self._clients = context.retry_policy, clients
        self._number = 0

    def committed(
        self, partitions: Collection[TopicPartition], within_ms: int
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What is committed for the partitions, once no transaction pends on any of them.

        `StaleGenerationError` when we are no member any more, `NoAnswerError` when time is up.
        """
        member = self._clients.member
        member.metadata()
        self._number += 1
        # One mailbox each: an answer that comes too late is nobody's.
        answers: Mailbox[Committed] = Mailbox(1, "answer to a recovery")
        member.fetch_offsets(self._number, frozenset(partitions), answers)
        waited_ms = 0
        while (answer := answers.get(min(LOOK_MS, within_ms - waited_ms))) is None:
            waited_ms += LOOK_MS
            if waited_ms >= within_ms or not self._retry_policy.rest_ms():
                raise NoAnswerError(f"the group's coordinator didn't tell what is committed within {within_ms} ms")
        if answer.error is not None:
            raise answer.error
        return answer.offsets

    def holds(self, within_ms: int) -> bool:
        """Whether member and generation still hold. While we join, the answer to that tells; a coordinator that is
        silent may have given us up only when our session is over by the clock."""
        member = self._clients.member
        if member.joining():
            return True
        try:
            self.committed((), within_ms)
        except StaleGenerationError:
            return False
        except NoAnswerError:
            return not member.session_over()
        return True
