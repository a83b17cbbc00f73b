"""Failed commits of M5: their boundaries stay frozen, and are committed once more.

*Guarantees*: a failed commit is repeated with the same boundaries and numbers. If a task is rolled back to its last
commit, nothing of it is kept.
*Assumes*: what is kept of a boundary's outputs is the collector's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from milestones.parts.transaction import Answers, CommitAction, CommitEvent, CommitStage
from milestones.stream_thread.commits.transaction_register import UNDER_WAY

if TYPE_CHECKING:
    from milestones.common.records import TopicPartition
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext

ANSWERS: Final[Answers] = {
    # Its tasks stay where they are: the commit may well be made.
    **{(stage, CommitEvent.ERROR): CommitAction.GO_ON for stage in UNDER_WAY},
    **{(stage, CommitEvent.CUT_FAILED): CommitAction.WAIT for stage in CommitStage},
    **{(stage, CommitEvent.LAST_COMMIT_FAILED): CommitAction.TRY_ONCE_MORE for stage in CommitStage},
    **{(stage, CommitEvent.OUTPUTS_LEFT): CommitAction.REPLACE_PRODUCER for stage in CommitStage},
}


class RetainedCommit:
    """Keeps the boundaries frozen until Kafka has confirmed them."""

    answers = ANSWERS

    def __init__(self, context: ThreadContext) -> None:
        pass

    def failed(self, commit_set: CommitSet) -> None:
        """Do nothing: the boundaries stay frozen."""

    def retained(self, commit_set: CommitSet) -> CommitSet:
        return commit_set

    def reached(self, task: Task, frozen: PendingCommit | None) -> Mapping[TopicPartition, int]:
        """As far as its boundary: nothing of what came since the cut is in the transaction."""
        return task.reached() if frozen is None else frozen.offsets

    def most_bytes_of_commit(self, most_bytes: int) -> int:
        """Half: two boundaries of a task may wait at once."""
        return most_bytes // 2

    def added_bytes(self, uncommitted_bytes: int, committing_bytes: int) -> int:
        """All of it: what the commit has may come back."""
        return uncommitted_bytes

    def rest_ms(self, took_ms: int) -> int:
        """None: tasks process during the commit."""
        return 0
