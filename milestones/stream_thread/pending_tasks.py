"""Tasks that are to be opened.

*Guarantees*: nothing is opened or closed here.
*Assumes*: one owner, the thread that has the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.records import TaskId, TopicPartition
    from milestones.common.task.task import TaskStorage


@dataclass
class PendingTask:
    """A task that is to be opened: its input partitions, None for a standby; and the stores that its other role has
    left open."""

    partitions: frozenset[TopicPartition] | None
    opened: TaskStorage | None = None


def names(ids: Iterable[TaskId]) -> str:
    return ", ".join(str(id) for id in sorted(ids))
