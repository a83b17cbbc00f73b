"""`GroupQuestions`: asks the group which offsets are committed, and whether the membership still holds.

*Guarantees*: the coordinator answers after the question. In a stable generation it accepts a heartbeat of the member id
and generation first: so a process that stood still for longer than its session finds out here. While the member joins
there is no such heartbeat: offsets are true all the same, and the answer to JoinGroup tells of the membership. A
question waits at most `within_ms`, and less when the thread is to stop.
*Assumes*: asked by the member's owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from milestones.common.kafka.membership import Committed, StaleGenerationError
from milestones.common.mailbox import Mailbox
from milestones.m3_fencing_tolerance.errors import NoAnswerError

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.common.steps import Steps
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients


LOOK_MS = 500
"""The time between two checks, in a wait for an answer, whether time is left."""


class GroupQuestions:
    """Asks the group by the member. *Sends*: `FetchOffsets`. *Receives*: `Committed`."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._retry_policy, self._clock, self._clients = context.retry_policy, context.clock, clients

    def committed(
        self, partitions: Collection[TopicPartition], within_ms: int
    ) -> Steps[Mapping[TopicPartition, OffsetAndMetadata]]:
        """The committed offsets of the partitions, in steps, once no transaction pends on any of them.

        `StaleGenerationError` when the membership is over, `NoAnswerError` when the time is up.
        """
        member = self._clients.member
        member.metadata()
        # One mailbox per question, instead of numbers: an answer that comes too late is lost with its mailbox.
        answers: Mailbox[Committed] = Mailbox(1, "answer to a recovery")
        member.fetch_offsets(0, frozenset(partitions), answers)
        until_ms, waited_ms, wait_ms = self._clock.monotonic_ms() + within_ms, 0, 0
        while (answer := answers.get(wait_ms)) is None:
            left_ms = min(until_ms - self._clock.monotonic_ms(), within_ms - waited_ms)
            if left_ms <= 0 or not self._retry_policy.rest_ms():
                raise NoAnswerError(f"the group's coordinator didn't tell what is committed within {within_ms} ms")
            wait_ms = min(LOOK_MS, left_ms, (yield))
            waited_ms += wait_ms
        if answer.error is not None:
            raise answer.error
        return answer.offsets

    def holds(self, within_ms: int) -> Steps[bool]:
        """Whether member and generation still hold, in steps. True, unasked, while the member joins: the answer to
        JoinGroup tells. A silent coordinator can have given the member up only when the session is over by the
        clock."""
        member = self._clients.member
        if member.joining():
            return True
        try:
            yield from self.committed((), within_ms)
        except StaleGenerationError:
            return False
        except NoAnswerError:
            return not member.session_over()
        return True
