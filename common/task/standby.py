"""A standby task only keeps its stores open and updates them from their changelogs.

*Guarantees*: up to the standby's offsets, the stores hold what the committed records of their changelogs lead to. A
standby has no program, no input and no outputs, so only changelogs change its stores. Rows that expire are deleted by
the times that the group has committed. A window stays until the group has committed it as emitted. Until the standby
knows what is committed, it deletes no row.
*Assumes*: one owner at a time; the changelogs are read committed.
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
    """A standby task, made once per assignment: `open`, then `restore` as records come; `recycle` or `close` at the
    end. `told_by`: the input partitions whose committed offsets say the times of its stores; none without stores whose
    rows are gone after a time."""

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
        """Open the stores. `StateLockedError` (ask again), `StateError`."""
        self.lifecycle.expect(TaskState.CREATED)
        self._stores.open()
        self.lifecycle.move(TaskState.STANDBY)

    def know(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take what the group has committed. Harmless when repeated. A partition without a commit, as that of a new
        source, says nothing, as to the active task."""
        of_task = {partition: committed[partition] for partition in self.told_by & committed.keys()}
        told = {partition: at for partition, at in of_task.items() if at != NOT_COMMITTED}
        if not told.items() <= self._committed.items():
            self._committed |= told
            self._stores.know(committed_numbers(self._committed))

    def recycle(self) -> TaskStorage:
        """Close the standby, and return its stores, open."""
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
