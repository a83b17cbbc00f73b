"""`DroppedCommit` says what follows from a failed commit up to M4: none of its boundaries stays frozen.

*Guarantees*: under `at_least_once` the boundaries are thawed, and the next commit has their content. Under
`exactly_once_v2` a recovery follows, which rolls the tasks back to their last commit.
*Assumes*: everything that `FailedCommit` assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from milestones.parts.transaction import Answers, CommitAction, CommitEvent, CommitStage

if TYPE_CHECKING:
    from milestones.common.records import TopicPartition
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext

ANSWERS: Final[Answers] = {
    # The commit's tasks are rolled back, or lost, in any case. In these stages Kafka can't have committed, so the
    # commit is given up without waiting.
    **{(stage, CommitEvent.ERROR): CommitAction.ABANDON for stage in (CommitStage.SENDING, CommitStage.FLUSHING)},
    **{
        (stage, CommitEvent.ERROR): CommitAction.FINISH
        for stage in (CommitStage.OFFSETS, CommitStage.ENDING, CommitStage.RESOLVING, CommitStage.COMMITTING_OFFSETS)
    },
    **{(stage, CommitEvent.CUT_FAILED): CommitAction.ANSWER for stage in CommitStage},
    **{(stage, CommitEvent.LAST_COMMIT_FAILED): CommitAction.RAISE for stage in CommitStage},
    **{(stage, CommitEvent.OUTPUTS_LEFT): CommitAction.FLUSH for stage in CommitStage},
}


class DroppedCommit:
    """Thaws the boundaries of a failed commit, or leaves them to a roll-back, as the processing guarantee says."""

    answers = ANSWERS

    def __init__(self, context: ThreadContext) -> None:
        self._config = context.config

    def failed(self, commit_set: CommitSet) -> None:
        """Thaw the boundaries under `at_least_once`. Do nothing under `exactly_once_v2`: the recovery decides what
        follows."""
        if not self._config.exactly_once:
            for task, boundary in commit_set.items():
                task.thaw(boundary)

    def retained(self, commit_set: CommitSet) -> CommitSet:
        return {}

    def reached(self, task: Task, frozen: PendingCommit | None) -> Mapping[TopicPartition, int]:
        """Return how far the task has processed: outputs that were made after the cut are in the transaction, too."""
        return task.reached()

    def most_bytes_of_commit(self, most_bytes: int) -> int:
        return most_bytes

    def added_bytes(self, uncommitted_bytes: int, committing_bytes: int) -> int:
        """Return only the bytes that were added since the cut."""
        return uncommitted_bytes - committing_bytes

    def rest_ms(self, took_ms: int) -> int:
        """Return the time that the commit took, but `commit_interval_ms` at most. During a commit nothing is sent, so
        the tasks' buffers fill up. Without this pause a slow Kafka would leave only one turn of processing between two
        commits."""
        return min(took_ms, self._config.commit_interval_ms)
