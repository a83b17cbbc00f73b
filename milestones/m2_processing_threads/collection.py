"""Collection from output buffers: processing threads append, the stream thread sends what the client has room for.

A task's buffer is the list of its finished boundaries' outputs. One per task does for one per partition: only this task
writes to its changelog partitions, and where a sink's record goes the client decides, when it is sent.

*Guarantees*: as `DirectCollection`; and `collect` doesn't wait for room: an output for which the client has none stays
in its task's buffer, and a full buffer keeps the task waiting. Under exactly once an output is in a transaction only if
its task's offsets will be. So a task with a cache, which has to be flushed before, sends within a commit only; a task
whose last commit isn't applied yet sends nothing before the apply.
*Assumes*: as `DirectCollection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.baseline.collection import DirectCollection

if TYPE_CHECKING:
    from milestones.common.records import Emitted
    from milestones.common.task.task import Task


class BufferedCollection(DirectCollection):
    """*Owns*: nothing; the buffers are the tasks'."""

    room_ms = 0

    def _take(self, task: Task) -> list[Emitted]:
        return task.take_outputs() if self._may_be_sent(task) else []

    def _may_be_sent(self, task: Task) -> bool:
        return not self._config.exactly_once or (task.committable and not task.cached)

    def _hold(self, held: bool) -> None:
        """Each task waits for itself, once its buffer is full."""
