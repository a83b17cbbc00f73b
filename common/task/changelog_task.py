"""The common base of active tasks and standbys: stores that are filled from changelogs.

*Guarantees*: changelog records reach the stores in one state of the task only, its `following`.
*Assumes*: one owner at a time; changelogs are read committed. A subclass makes `_stores`.
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
    """The state in which the task takes changelog records."""

    _stores: TaskStores

    def __init__(self, id: TaskId, subtopology: SubTopology) -> None:
        self.id, self.subtopology = id, subtopology
        self.source_changelogs: frozenset[TopicPartition] = source_changelogs(subtopology, id)
        self.lifecycle: Lifecycle = Lifecycle(id)
        self.counters: TaskCounters = TaskCounters()
        self.reusable = True
        """Whether another task may be made of the stores when this one leaves; not after an error of theirs, nor with
        half of a snapshot in one."""

    @property
    def state(self) -> TaskState:
        """The task's state, by `lifecycle.py`."""
        return self.lifecycle.state

    def changelog_offsets(self) -> dict[str, int | None]:
        """The offset up to which each store with a changelog is complete; None: restore from the beginning. No engine
        is asked."""
        return self._stores.changelog_offsets()

    def position(self) -> int:
        """The sum of the stores' changelog offsets, as reported to the group."""
        return sum(offset or 0 for offset in self.changelog_offsets().values())

    def changelog_ids(self) -> Mapping[str, str]:
        """The id of the topic to which each store's offset belongs, where the id is known."""
        return self._stores.storage.changelog_ids()

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Write down, by store, the ids of the topics that are followed, before their first record. `StateError`."""
        self.lifecycle.expect(self.following)
        self._stores.storage.keep_changelog_ids(ids)

    def restore(self, store: str, batch: Collection[InputRecord], next_offset: int) -> None:
        """Write changelog records, in order, to the storage; the store is complete up to `next_offset` then, or, while
        the task has something `unwritten`, after `write_restored`."""
        self.lifecycle.expect(self.following)
        self._stores.restore(store, batch, next_offset)
        self.counters.restored += len(batch)

    @property
    def unwritten(self) -> bool:
        """True if restored records wait, as their engine was busy: restore nothing before `write_restored`."""
        return self._stores.unwritten

    def write_restored(self) -> None:
        """Write the restored records that wait. `StateBusyError`: call again after its `pause_ms`."""
        self._stores.write_restored()

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Put the entries of sorted table files into the store, which is empty, a step per item of the iterator. The
        entries count once `restore` has named their offset; until then `discard` takes them out again. `prefix`: what
        the files' keys have in front of the store's own."""
        self.lifecycle.expect(self.following)
        return self._stores.ingest(store, files, prefix)

    def expire(self, store: str, spans: Collection[Span]) -> None:
        """Delete what is gone of the store by what an `ingest` has brought. `StateBusyError`: call again."""
        self.lifecycle.expect(self.following)
        self._stores.storage.expire(store, spans)

    def discard(self, store: str) -> None:
        """Empty the store, whose content has no offset yet."""
        self.lifecycle.expect(self.following)
        self._stores.discard(store)

    def clear(self, store: str, reason: object) -> None:
        """Empty the store, to be restored from the beginning, since its changelog or its files were replaced."""
        self.lifecycle.expect(self.following)
        self._stores.clear(store, reason)
