"""`RetainedCommit` says what follows from a failed commit in M5: its boundaries stay frozen, and are committed later.

*Why this way*:
- The tasks have gone on since the cut. To roll them back would throw away work that hasn't failed.
- A commit without an answer may have been made. With the same boundaries and numbers a repetition does no harm.
- The collector keeps the outputs of a boundary anyway, so that it can send them once more without user code.

*Guarantees*: a failed commit is repeated with the same boundaries and commit numbers. If a task is rolled back to its
last commit, its boundary is dropped.
*Assumes*: the collector keeps the outputs of each boundary.
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
    # The tasks stay: a commit that ends with an error may still have been made.
    **{(stage, CommitEvent.ERROR): CommitAction.GO_ON for stage in UNDER_WAY},
    **{(stage, CommitEvent.CUT_FAILED): CommitAction.WAIT for stage in CommitStage},
    **{(stage, CommitEvent.LAST_COMMIT_FAILED): CommitAction.TRY_ONCE_MORE for stage in CommitStage},
    **{(stage, CommitEvent.OUTPUTS_LEFT): CommitAction.REPLACE_PRODUCER for stage in CommitStage},
}


class RetainedCommit:
    """Keeps the boundaries of a failed commit frozen until Kafka has confirmed them."""

    answers = ANSWERS

    def __init__(self, context: ThreadContext) -> None:
        pass

    def failed(self, commit_set: CommitSet) -> None:
        """Do nothing: the boundaries stay frozen."""

    def retained(self, commit_set: CommitSet) -> CommitSet:
        return commit_set

    def reached(self, task: Task, frozen: PendingCommit | None) -> Mapping[TopicPartition, int]:
        """Return the offsets of the frozen boundary, if there is one: later work isn't in the transaction."""
        return task.reached() if frozen is None else frozen.offsets

    def most_bytes_of_commit(self, most_bytes: int) -> int:
        """Return half of the bound: a task may have two boundaries that wait."""
        return most_bytes // 2

    def added_bytes(self, uncommitted_bytes: int, committing_bytes: int) -> int:
        """Return all uncommitted bytes: if the commit fails, its own bytes are uncommitted once more."""
        return uncommitted_bytes

    def rest_ms(self, took_ms: int) -> int:
        """Return 0: tasks process records during the commit, so that no pause is needed."""
        return 0
