"""The seam between tasks and whatever keeps their state: what a task may do with its stores, and who opens them.

    task --namespace, apply, clear, ingest--> TaskStorage --namespaces--> Engine --> files
                                                  ^
    instance --open, clean, statistics--> StateManager (which engine, folder and damage is whose)

*Guarantees*: no engine, folder or database comes out of here. Until M6 the implementation is `state_manager.py`: an
engine per store, a folder per task. M6 puts another in its place.
*Assumes*: a task's storage is used by one thread at a time, the one that has the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from milestones.common.records import TaskId
from milestones.common.state.engine import Batch, Namespace
from milestones.common.state.spec import StoreSpec


class TaskStorage(Protocol):
    """A task's open stores, locked for it. Stores are named as in the topology, whatever their engines call them.

    `StateCorruptError` of any call, and of any namespace's, names the stores that are damaged."""

    def namespace(self, store: str) -> Namespace:
        """The store's entries, to be read; the same object until the store is cleared."""
        ...

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Write what is committed, by store: entries, and the changelog offset up to which (exclusive) the store is
        complete then. All stores of a commit in one call.

        Written in `steps`; the offset of a store goes with the last of its entries, so that replay mends a call that
        breaks off. A store without changelog is written in one atomic step. `StateError`."""
        ...

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        """Make the store empty, at offset None: its new namespace; the former one is closed. With a `reason`, which is
        logged, its files aren't trusted: they are set aside, for whoever wants to know what happened to them."""
        ...

    def ingest(self, store: str, files: Sequence[Path]) -> Iterator[None]:
        """Put the entries of sorted table files into the store, which is empty: see `Engine.ingest`."""
        ...

    def changelog_ids(self) -> Mapping[str, str]:
        """By persistent store: Kafka's id of the topic that it follows, where it is known."""
        ...

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Remember, on disk, which topics the stores follow; stores in memory are passed over."""
        ...

    def memory_bytes(self) -> int:
        """Memory that is this task's alone. From any thread."""
        ...

    def close(self) -> None:
        """Close the stores, give the task's lock back. Harmless when repeated."""
        ...


OpenStores = Callable[[], TaskStorage]
"""Opens the stores of a task: `StateLockedError` (ask again), `StateError`."""


class StateManager(Protocol):
    """The state of an instance: all tasks that are open here, and all that lie here closed. Called from any thread."""

    def open(
        self,
        task: TaskId,
        specs: Sequence[StoreSpec],
        transactional_id: str | None = None,
        owner: str | None = None,
    ) -> TaskStorage:
        """Lock `task` for `owner` (None: the calling thread) and open its stores. A damaged store starts empty.

        `StateLockedError` (ask again), `StateFormatError`, `StateError`."""
        ...

    def closed_offsets(self) -> Mapping[TaskId, Mapping[str, int]]:
        """By task whose state lies here, open to nobody: a lower bound of its persistent stores' changelog offsets. A
        task that nothing is known of has none. `StateError`."""
        ...

    def statistics(self) -> Mapping[tuple[TaskId, str], Mapping[str, int]]:
        """By task and store that is open here: what its engine tells of itself (`Engine.statistics`), without those
        that are opened or closed right now."""
        ...

    def memory_bytes(self) -> int:
        """Memory of all engines, about, and of what they share."""
        ...

    def clean(self, now_ms: int, delay_ms: int) -> bool:
        """Remove the state of tasks that nobody here has had for `delay_ms`; whether there was any. `now_ms`: wall
        clock."""
        ...

    def release(self) -> None:
        """Give the instance's state back, for another process to have. Harmless when repeated."""
        ...
