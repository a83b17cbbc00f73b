"""The common base class of active tasks and standby tasks: a task whose stores are filled from changelogs.

*Guarantees*: changelog records reach the stores only while the task is in its `following` state.
*Assumes*: one owner at a time. Changelogs are read with isolation level read_committed. A subclass sets `_stores`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.counters import TaskCounters
from milestones.common.task.lifecycle import Lifecycle, TaskState
from milestones.common.task.source_changelogs import source_changelogs
from milestones.common.task.task_stores import TaskStores

if TYPE_CHECKING:
    from milestones.common.state.engine import Span
    from milestones.common.task.buffers import InputRecord
    from milestones.common.topology.nodes import SubTopology


class ChangelogTask:
    """A task with changelogs. `source_changelogs`: the changelogs that are input partitions, too."""

    id: TaskId
    subtopology: SubTopology

    following: ClassVar[TaskState]
    """The state in which the task accepts changelog records."""

    _stores: TaskStores

    def __init__(self, id: TaskId, subtopology: SubTopology) -> None:
        self.id, self.subtopology = id, subtopology
        self.source_changelogs: frozenset[TopicPartition] = source_changelogs(subtopology, id)
        self.lifecycle: Lifecycle = Lifecycle(id)
        self.counters: TaskCounters = TaskCounters()
        self.reusable = True
        """True if another task may take over the stores when this task ends. False after an error of the stores, or
        while one of them holds an incomplete snapshot."""

    @property
    def state(self) -> TaskState:
        """The state of the task (`lifecycle.py`)."""
        return self.lifecycle.state

    def changelog_offsets(self) -> dict[str, int | None]:
        """Return, for each store with a changelog, the offset up to which the store is complete. None: restore from the
        beginning. No engine is asked."""
        return self._stores.changelog_offsets()

    def position(self) -> int:
        """Return the sum of the stores' changelog offsets, which the member reports to the group."""
        return sum(offset or 0 for offset in self.changelog_offsets().values())

    def changelog_ids(self) -> Mapping[str, str]:
        """Return, by store, the id of the topic to which the store's offset belongs. Stores with an unknown id are left
        out."""
        return self._stores.storage.changelog_ids()

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Store the ids of the changelog topics, by store. Call this method before the first record of these topics is
        restored. Raises `StateError`."""
        self.lifecycle.expect(self.following)
        self._stores.storage.keep_changelog_ids(ids)

    def restore(self, store: str, batch: Collection[InputRecord], next_offset: int) -> None:
        """Write changelog records, in order, to the storage. The store is then complete up to `next_offset`. If records
        are `unwritten`, it is complete after `write_restored`."""
        self.lifecycle.expect(self.following)
        self._stores.restore(store, batch, next_offset)
        self.counters.restored += len(batch)

    @property
    def unwritten(self) -> bool:
        """True if restored records wait, because their engine was busy. Restore no more before `write_restored` has
        written them."""
        return self._stores.unwritten

    def write_restored(self) -> None:
        """Write the restored records that wait. Raises `StateBusyError` while the engine is busy: repeat the call after
        the error's `pause_ms`."""
        self._stores.write_restored()

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Load the entries of sorted table files into the empty store. Each item of the returned iterator is one step.

        The entries count when `restore` has set their offset. Until then `discard` removes them. `prefix`: the bytes
        that the files' keys have before the store's own keys.
        """
        self.lifecycle.expect(self.following)
        return self._stores.ingest(store, files, prefix)

    def expire(self, store: str, spans: Collection[Span]) -> None:
        """Delete the expired rows (`spans`) that an `ingest` has loaded. Raises `StateBusyError` while the engine is
        busy: repeat the call later."""
        self.lifecycle.expect(self.following)
        self._stores.storage.expire(store, spans)

    def discard(self, store: str) -> None:
        """Empty the store, whose entries have no offset yet."""
        self.lifecycle.expect(self.following)
        self._stores.discard(store)

    def clear(self, store: str, reason: object) -> None:
        """Empty the store because its changelog or its files were replaced. The store will be restored from the
        beginning."""
        self.lifecycle.expect(self.following)
        self._stores.clear(store, reason)
