"""What an active task and a standby have in common: stores that are filled from changelogs.

*Guarantees*: records reach the stores in one state of the task only, its `following`.
*Assumes*: one owner at a time; changelogs are read committed. Whoever derives makes `_stores`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from milestones.common.records import TaskId
from milestones.common.task.counters import TaskCounters
from milestones.common.task.lifecycle import Lifecycle, State
from milestones.common.task.task_stores import TaskStores, source_changelogs

if TYPE_CHECKING:
    from milestones.common.task.buffers import InputRecord
    from milestones.common.topology.nodes import SubTopology


class ChangelogTask:
    """A task on its way along its changelogs. `source_changelogs`: those of them that are input partitions too."""

    following: ClassVar[State]
    """The state in which it takes changelog records."""

    _stores: TaskStores

    def __init__(self, id: TaskId, subtopology: SubTopology) -> None:
        self.id, self.subtopology = id, subtopology
        self.source_changelogs = source_changelogs(subtopology, id)
        self.lifecycle = Lifecycle(id)
        self.counters = TaskCounters()

    @property
    def state(self) -> State:
        """Where the task is in its life."""
        return self.lifecycle.state

    def changelog_offsets(self) -> dict[str, int | None]:
        """By store with a changelog: the offset up to which it is complete; None: restore from the beginning."""
        return self._stores.changelog_offsets()

    def changelog_ids(self) -> Mapping[str, str]:
        """By store: Kafka's id of the topic that its offset is one of, where that is known."""
        return self._stores.storage.changelog_ids()

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Remember, by store, which topics are followed, before the first record is. `StateError`."""
        self.lifecycle.expect(self.following)
        self._stores.storage.keep_changelog_ids(ids)

    def restore(self, store: str, batch: Collection[InputRecord], next_offset: int) -> None:
        """Changelog records, in order, straight into the engine; the store is complete up to `next_offset` then."""
        self.lifecycle.expect(self.following)
        self._stores.restore(store, batch, next_offset)
        self.counters.restored += len(batch)

    def ingest(self, store: str, files: Sequence[Path]) -> Iterator[None]:
        """Put the entries of sorted table files into the store, which is empty, a step per item of the iterator. They
        count once `restore` says up to which offset they go; until then `discard` takes them out again."""
        self.lifecycle.expect(self.following)
        return self._stores.ingest(store, files)

    def discard(self, store: str) -> None:
        """Empty the store, whose content has no offset yet."""
        self.lifecycle.expect(self.following)
        self._stores.discard(store)

    def clear(self, store: str, reason: object) -> None:
        """Empty the store, to be restored from the beginning: its changelog or its files aren't what they were."""
        self.lifecycle.expect(self.following)
        self._stores.clear(store, reason)
