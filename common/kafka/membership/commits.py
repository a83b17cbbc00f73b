"""`PendingCommits`: sends the commits that wait for the coordinator.

*Guarantees*: commits are sent in the order in which they came. Each commit is answered exactly once: at the latest when
the request that is running at its deadline ends.
*Assumes*: one owner, `MemberMachine`, which knows when the generation can commit.
"""

from __future__ import annotations

from collections import deque

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8 import OffsetCommitResponse

from milestones.common.errors import MilestonesError, OffsetsRefusedError
from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError, code_of
from milestones.common.kafka.membership.events import CommitOffsets, Membership
from milestones.common.kafka.membership.reactions import CommitRetriableError, Reaction, failure, reaction_to
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.records import TopicPartition

COMMIT = "OffsetCommit"


class PendingCommits:
    """A queue of commits. After an error the first commit waits before it is sent once more."""

    def __init__(self, settings: MemberSettings, now_ms: int) -> None:
        self._settings = settings
        self._waiting: deque[CommitOffsets] = deque()
        self._resume_ms = now_ms

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, commit: CommitOffsets) -> None:
        self._waiting.append(commit)

    def step(self, coordinator: Coordinator, held: Membership, now_ms: int) -> ErrorCode | None:
        """Send the first commit under the generation of `held`, if it is due. The commit stays first in the queue until
        its owner gets an answer. Returns the coordinator's code, or None if nothing was sent. Raises `CoordinatorError`
        for a code that isn't about this commit alone."""
        if not self._waiting or not self._resume_ms <= now_ms < self._waiting[0].deadline_ms:
            return None
        request = protocol.commit_request(self._settings, held.generation, held.member_id, self._waiting[0].offsets)
        answer = coordinator.call(request, OffsetCommitResponse)
        code = code_of(answer)
        if code is ErrorCode.none:
            self._answer(None)
        elif reaction_to(code) is Reaction.REFUSE:
            refused = _refused(answer)
            where = ", ".join(map(str, refused))
            self._answer(OffsetsRefusedError(f"{failure(self._settings, COMMIT, code)} ({where})", refused))
        else:
            raise CoordinatorError(COMMIT, code)
        return code

    def next_ms(self) -> int:
        """Returns the time at which the first commit can be sent, or must be given up."""
        return min(self._resume_ms, self._waiting[0].deadline_ms)

    def pause(self, until_ms: int) -> None:
        self._resume_ms = until_ms

    def _answer(self, error: MilestonesError | None) -> None:
        """Answer the first commit, and remove it."""
        self._waiting.popleft().reply.try_put(error)

    def expire(self, now_ms: int) -> None:
        """Give up the commits whose deadline has passed."""
        while self._waiting and now_ms >= self._waiting[0].deadline_ms:
            late = "the offsets weren't committed in time: the coordinator didn't accept them"
            self._answer(CommitRetriableError(late))

    def reject(self, error: MilestonesError) -> None:
        """Answer all commits with this error."""
        while self._waiting:
            self._answer(error)


def _refused(answer: OffsetCommitResponse) -> list[TopicPartition]:
    """Returns the partitions whose offsets the coordinator will never accept, sorted."""
    return sorted(
        TopicPartition(topic.name, partition.partition_index)
        for topic in answer.topics
        for partition in topic.partitions
        if reaction_to(partition.error_code) is Reaction.REFUSE
    )
