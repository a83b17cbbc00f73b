"""The tasks of one commit, each with its frozen boundary.

*Guarantees*: either all tasks of a set are frozen, or none is.
*Assumes*: the caller freezes, confirms and thaws. The tasks may process records at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.boundary import PendingCommit
from milestones.common.task.task import Task

CommitSet: TypeAlias = Mapping[Task, PendingCommit]


def freeze(tasks: Iterable[Task]) -> CommitSet:
    """Freeze the last boundary of each task. A task that isn't `committable` any more, because updates wait in its
    caches, is left out and belongs to the next commit."""
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
    """Return the offset and metadata to commit for each input partition, even if the partition hasn't moved."""
    return {
        partition: OffsetAndMetadata(offset, boundary.metadata[partition])
        for boundary in commit_set.values()
        for partition, offset in boundary.offsets.items()
    }
