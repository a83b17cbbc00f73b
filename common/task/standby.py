"""A standby task: open stores that follow their changelogs, and nothing else.

*Guarantees*: the stores are as the changelogs' committed records make them, up to the standby's offsets. A standby has
no program, no input and no outputs, so only its changelogs change its stores. Windows that the group hasn't committed
as emitted stay, as long as the standby is told what the group has committed.
*Assumes*: one owner at a time; the changelogs are read committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.cells import Cells
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches, TaskCaches
from milestones.common.state.storage import OpenStores, TaskStorage
from milestones.common.task.changelog_task import ChangelogTask
from milestones.common.task.lifecycle import State
from milestones.common.task.metadata import OffsetMetadata
from milestones.common.task.scope import RecordScope
from milestones.common.task.task_stores import TaskStores

if TYPE_CHECKING:
    from milestones.common.topology.nodes import SubTopology


class StandbyTask(ChangelogTask):
    """A standby task, made once per assignment: `open`, then `restore` as records come; `recycle` or `close` at the
    end. `told_by`: the input partitions whose committed offsets say how far windows are emitted; none without stores
    of such windows."""

    following = State.STANDBY

    def __init__(self, id: TaskId, subtopology: SubTopology, open_stores: OpenStores) -> None:
        super().__init__(id, subtopology)
        nothing = ReadCaches(0), TaskCaches(RecordCaches(0)), Cells([])
        self._stores = TaskStores(id, subtopology, open_stores, RecordScope(), *nothing, following=True)
        closing = any(spec.closing for spec in subtopology.stores)
        topics = subtopology.source_topics if closing else ()
        self.told_by: frozenset[TopicPartition] = frozenset(TopicPartition(topic, id.partition) for topic in topics)
        self._metadata: dict[TopicPartition, str] = {}

    def open(self) -> None:
        """Open the stores. `StateLockedError` (ask again), `StateError`."""
        self.lifecycle.expect(State.CREATED)
        self._stores.open()
        self.lifecycle.move(State.STANDBY)

    def know(self, metadata: Mapping[TopicPartition, str]) -> None:
        """Take the metadata of committed offsets. Harmless when repeated."""
        for partition in self.told_by & metadata.keys():
            text = metadata[partition]
            if text != self._metadata.get(partition):
                self._metadata[partition] = text
                self._stores.know(OffsetMetadata.decode(text).others)

    def recycle(self) -> TaskStorage:
        """Close the standby, and return its stores, open."""
        self.lifecycle.move(State.CLOSING)
        self.lifecycle.move(State.CLOSED)
        return self._stores.release()

    def close(self) -> None:
        """Close the stores. Harmless when repeated."""
        if self.state is State.CLOSED:
            return
        self.lifecycle.move(State.CLOSING)
        try:
            self._stores.close()
        finally:
            self.lifecycle.move(State.CLOSED)
