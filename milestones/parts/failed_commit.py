"""What a commit that fails leaves behind, and what that means for the commits after it.

*Guarantees*: nothing that isn't committed is lost: it is kept for the next commit, or its records are processed once
more.
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
    """`answers`: the rows of the register's table that depend on what a failed commit leaves."""

    answers: Answers

    def failed(self, commit_set: CommitSet) -> None:
        """Do with the boundaries of a commit that has just failed what must be done at once."""
        ...

    def retained(self, commit_set: CommitSet) -> CommitSet:
        """The boundaries of a failed commit that stay frozen, to be committed once more with the same numbers."""
        ...

    def reached(self, task: Task, frozen: PendingCommit | None) -> Mapping[TopicPartition, int]:
        """How far in its input a task's part of the failed transaction was. `frozen`: its boundary in the last commit;
        None when it had none."""
        ...

    def most_bytes_of_commit(self, most_bytes: int) -> int:
        """The bytes at which a commit is due, when at most `most_bytes` may be uncommitted."""
        ...

    def added_bytes(self, uncommitted_bytes: int, committing_bytes: int) -> int:
        """What counts against the bound during a commit, in bytes. `committing_bytes`: the part of the uncommitted
        bytes that the commit has."""
        ...

    def rest_ms(self, took_ms: int) -> int:
        """How long tasks process before the next commit, after one that took `took_ms`."""
        ...
