"""Decides what happens to the boundaries of a failed commit, and what that means for the next commits.

*Guarantees*: uncommitted work is never lost. It is kept for the next commit, or its records are processed once more.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.records import TopicPartition
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.parts.transaction import Answers


class FailedCommit(Protocol):
    """The part that decides about the boundaries of a failed commit. `answers`: the rows of the register's table that
    depend on this decision."""

    answers: Answers

    def failed(self, commit_set: CommitSet) -> None:
        """Keep the boundaries of a commit that has just failed frozen, or undo their freeze."""
        ...

    def retained(self, commit_set: CommitSet) -> CommitSet:
        """Return the boundaries of a failed commit that stay frozen. They will be committed once more, with the same
        numbers."""
        ...

    def reached(self, task: Task, frozen: PendingCommit | None) -> Mapping[TopicPartition, int]:
        """Return the input offsets that the task had reached with its part of the failed transaction. `frozen`: the
        task's boundary in the last commit; None if it had none."""
        ...

    def most_bytes_of_commit(self, most_bytes: int) -> int:
        """Return the number of bytes at which a commit is due, if at most `most_bytes` may be uncommitted."""
        ...

    def added_bytes(self, uncommitted_bytes: int, committing_bytes: int) -> int:
        """Return the number of bytes that count against the limit of uncommitted bytes during a commit.
        `committing_bytes`: the part of the uncommitted bytes that is in the commit."""
        ...

    def rest_ms(self, took_ms: int) -> int:
        """Return the time, in ms, for which tasks process before the next commit, after a commit that took
        `took_ms`."""
        ...
