"""A standby task only keeps its stores open and updates them from their changelogs.

*Guarantees*: the stores contain what the committed changelog records up to the standby's offsets lead to. A standby has
no program, no input and no outputs, so only changelogs change its stores. Expired rows are deleted by the times that
the group has committed. A window stays until the group has committed that it was emitted. Until the standby knows the
committed times, it deletes no row as expired.
*Assumes*: one owner at a time. Changelogs are read with isolation level read_committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.state.cells import Cells
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches, TaskCaches
from milestones.common.state.spec import BOUNDED
from milestones.common.state.storage import OpenStores, TaskStorage
from milestones.common.task.changelog_task import ChangelogTask
from milestones.common.task.lifecycle import TaskState
from milestones.common.task.metadata import NOT_COMMITTED, NOTHING_COMMITTED, committed_numbers
from milestones.common.task.scope import RecordScope
from milestones.common.task.task_stores import TaskStores

if TYPE_CHECKING:
    from milestones.common.topology.nodes import SubTopology


class StandbyTask(ChangelogTask):
    """A standby task, made once per assignment.

    The owner calls `open`, then `restore` as records come, and `recycle` or `close` at the end. `told_by`: the input
    partitions whose committed offsets carry the times of the stores. `told_by` is empty if no store has rows that
    expire.
    """

    following = TaskState.STANDBY

    def __init__(self, id: TaskId, subtopology: SubTopology, open_stores: OpenStores) -> None:
        super().__init__(id, subtopology)
        nothing = ReadCaches(0), TaskCaches(RecordCaches(0)), Cells([])
        self._stores = TaskStores(id, subtopology, open_stores, RecordScope(), *nothing, following=True)
        bounded = any(spec.kind in BOUNDED for spec in subtopology.stores)
        topics = subtopology.source_topics if bounded else ()
        self.told_by: frozenset[TopicPartition] = frozenset(TopicPartition(topic, id.partition) for topic in topics)
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._stores.know(NOTHING_COMMITTED)

    def open(self) -> None:
        """Open the stores. Raises `StateLockedError` (repeat the call later) or another `StateError`."""
        self.lifecycle.expect(TaskState.CREATED)
        self._stores.open()
        self.lifecycle.move(TaskState.STANDBY)

    def know(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take the committed offsets of the group. Harmless when repeated. A partition without a commit, such as that
        of a new source, is ignored, as in the active task."""
        of_task = {partition: committed[partition] for partition in self.told_by & committed.keys()}
        told = {partition: at for partition, at in of_task.items() if at != NOT_COMMITTED}
        if not told.items() <= self._committed.items():
            self._committed |= told
            self._stores.know(committed_numbers(self._committed))

    def recycle(self) -> TaskStorage:
        """End the standby, and return its stores, still open."""
        self.lifecycle.move(TaskState.CLOSING)
        self.lifecycle.move(TaskState.CLOSED)
        return self._stores.release()

    def close(self) -> None:
        """Close the stores. Harmless when repeated."""
        if self.state is TaskState.CLOSED:
            return
        self.lifecycle.move(TaskState.CLOSING)
        try:
            self._stores.close()
        finally:
            self.lifecycle.move(TaskState.CLOSED)
