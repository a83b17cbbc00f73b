"""A standby task: open stores that follow their changelogs, and nothing else.

*Guarantees*: it holds what the changelogs' committed records say up to its offsets; it has no program, no input, no
outputs, so nobody can write to it. It is given away whole by `recycle`, or closed.
*Assumes*: one owner at a time; its changelogs are read committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from milestones.common.records import TaskId
from milestones.common.task.lifecycle import Lifecycle, State
from milestones.common.task.scope import RecordScope
from milestones.common.task.task_stores import OpenState, OpenStores, TaskStores, source_changelogs
from milestones.common.task.work import Work

if TYPE_CHECKING:
    from milestones.common.task.buffers import InputRecord
    from milestones.common.topology.nodes import SubTopology


class StandbyTask:
    """Made once per assignment: `open`, then `restore` as records come; `recycle` or `close` at the end."""

    def __init__(self, id: TaskId, subtopology: SubTopology, open_stores: OpenStores) -> None:
        self.id, self.subtopology = id, subtopology
        self.source_changelogs = source_changelogs(subtopology, id)
        self.lifecycle = Lifecycle(id)
        self.work = Work()
        self._stores = TaskStores(id, subtopology, open_stores, RecordScope(), max_remembered=0)

    @property
    def state(self) -> State:
        """Where the task is in its life."""
        return self.lifecycle.state

    def open(self) -> None:
        """Open the stores. `StateLockedError` (ask again), `StateError`."""
        self.lifecycle.expect(State.CREATED)
        self._stores.open()
        self.lifecycle.move(State.STANDBY)

    def changelog_offsets(self) -> dict[str, int | None]:
        """By store with a changelog: the offset up to which it is complete; None: from the beginning."""
        return self._stores.changelog_offsets()

    def changelog_ids(self) -> Mapping[str, str]:
        """By store: Kafka's id of the topic that its offset is one of, where that is known."""
        return self._stores.state.changelog_ids()

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Remember, by store, which topics are followed, before the first record is. `StateError`."""
        self.lifecycle.expect(State.STANDBY)
        self._stores.state.keep_changelog_ids(ids)

    def restore(self, store: str, batch: Collection[InputRecord], next_offset: int) -> None:
        """Changelog records, in order, straight into the engine; the store is complete up to `next_offset` then."""
        self.lifecycle.expect(State.STANDBY)
        self._stores.restore(store, batch, next_offset)
        self.work.restored += len(batch)

    def clear(self, store: str, reason: object) -> None:
        """Empty the store, to be restored from the beginning: its changelog or its files aren't what they were."""
        self.lifecycle.expect(State.STANDBY)
        self._stores.clear(store, reason)

    def recycle(self) -> OpenState:
        """Give the open stores away: this object is closed, they aren't."""
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
