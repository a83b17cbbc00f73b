"""Failed commits up to M4: nothing of them is kept frozen.

*Guarantees*: at least once the boundaries are thawed, and the next commit has what they had; exactly once the recovery
that follows rolls the tasks back to their last commit.
*Assumes*: as `FailedCommit`.
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
    from milestones.parts import Clients

ANSWERS: Final[Answers] = {
    # The commit's tasks are rolled back, or lost, in any case: what Kafka can't have committed isn't waited for.
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
    """Thaws or rolls back, by the processing guarantee."""

    answers = ANSWERS

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._config = context.config

    def failed(self, commit_set: CommitSet) -> None:
        """At least once: thaw. Exactly once nothing: what follows is up to the recovery."""
        if not self._config.exactly_once:
            for task, boundary in commit_set.items():
                task.thaw(boundary)

    def retained(self, commit_set: CommitSet) -> CommitSet:
        return {}

    def reached(self, task: Task, frozen: PendingCommit | None) -> Mapping[TopicPartition, int]:
        """As far as it has processed: outputs of what came since the cut are in the transaction, too."""
        return task.reached()

    def most_bytes_of_commit(self, most_bytes: int) -> int:
        return most_bytes

    def added_bytes(self, uncommitted_bytes: int, committing_bytes: int) -> int:
        """What came since the cut: all of it goes back with the commit, or the commit takes its part away."""
        return uncommitted_bytes - committing_bytes

    def rest_ms(self, took_ms: int) -> int:
        """As long as the commit took, `commit_interval_ms` at most: during a commit tasks fill up, as nothing of theirs
        is sent, and a slow Kafka would leave one turn of processing to each commit."""
        return min(took_ms, self._config.commit_interval_ms)
