"""`GroupQuestions`: asks the group which offsets are committed, and whether the membership still holds.

*Guarantees*: the coordinator answers after the question was asked. In a stable generation the coordinator must first
accept a heartbeat of this member id and generation. So a process that stood still for longer than its session learns
here that its membership is over. While the member joins, no such heartbeat is needed: the offsets are true in any case,
and the answer to JoinGroup says whether the membership holds. A question waits for at most `within_ms`, and for less
when the thread must stop.
*Assumes*: the member's owner asks.
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
"""The longest wait for an answer before the time that is left is checked."""


class GroupQuestions:
    """Asks the group through the member. *Sends*: `FetchOffsets`. *Receives*: `Committed`."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._retry_policy, self._clock, self._clients = context.retry_policy, context.clock, clients

    def committed(
        self, partitions: Collection[TopicPartition], within_ms: int
    ) -> Steps[Mapping[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of the partitions, in steps, once no transaction has pending offsets for them.

        Raises `StaleGenerationError` when the membership is over, `NoAnswerError` when the time is up.
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
                raise NoAnswerError(f"the group's coordinator didn't say what is committed within {within_ms} ms")
            wait_ms = min(LOOK_MS, left_ms, (yield))
            waited_ms += wait_ms
        if answer.error is not None:
            raise answer.error
        return answer.offsets

    def holds(self, within_ms: int) -> Steps[bool]:
        """Return whether member and generation still hold, in steps. While the member joins, returns True without a
        question: the answer to JoinGroup will say. If the coordinator is silent, the membership counts as over once the
        session has ended by this process's clock."""
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
