"""`BufferedCollection`: processing threads fill output buffers, and the stream thread sends from them.

A task's buffer is the list of the outputs of its finished boundaries. One buffer per task is enough; buffers per
partition aren't needed. Only this task writes to its changelog partitions, and the client chooses the partition of a
sink's record when the record is sent.

*Guarantees*: everything that `DirectCollection` guarantees. In addition, `collect` doesn't wait for room. If the client
has no room for an output, the output stays in its task's buffer, and a task with a full buffer waits. Under
`exactly_once_v2` an output is in a transaction only if its task's offsets will be in it, too. So a task with a cache
sends only within a commit, after the cache was flushed. A task whose last commit isn't applied yet sends nothing before
it is applied.
*Assumes*: everything that `DirectCollection` assumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.baseline.collection import DirectCollection

if TYPE_CHECKING:
    from milestones.common.records import Emitted
    from milestones.common.task.task import Task


class BufferedCollection(DirectCollection):
    """*Owns*: nothing. The buffers belong to the tasks."""

    room_ms = 0

    def _take(self, task: Task) -> list[Emitted]:
        return task.take_outputs() if self._may_be_sent(task) else []

    def _may_be_sent(self, task: Task) -> bool:
        return not self._config.exactly_once or (task.committable and not task.cached)

    def _hold(self, held: bool) -> None:
        """Do nothing: each task waits on its own when its buffer is full."""
