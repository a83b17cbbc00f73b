"""The set of one commit: tasks, each with its frozen boundary.

*Guarantees*: all tasks of a set are frozen, or none.
*Assumes*: the caller freezes, confirms and thaws; the tasks may be at work meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.boundary import PendingCommit
from milestones.common.task.task import Task

CommitSet: TypeAlias = Mapping[Task, PendingCommit]


def freeze(tasks: Iterable[Task]) -> CommitSet:
    """Freeze each task at its last boundary. A task with updates in a cache, which isn't `committable` any more, is
    left to the next commit."""
    frozen: dict[Task, PendingCommit] = {}
    try:
        for task in tasks:
            boundary = task.freeze_if_flushed()
            if boundary is not None:
                frozen[task] = boundary
    except BaseException:
        for task, boundary in frozen.items():
            task.put_back(boundary.outputs)
            task.thaw(boundary)
        raise
    return frozen


def offsets_of(commit_set: CommitSet) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offset and metadata to commit of each input partition, also of one that didn't move."""
    return {
        partition: OffsetAndMetadata(offset, boundary.metadata[partition])
        for boundary in commit_set.values()
        for partition, offset in boundary.offsets.items()
    }
