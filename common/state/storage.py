"""The seam between tasks and their stored state: `TaskStorage` for a task's stores, `StateManager` for an instance's.

    task --namespace, apply, clear, ingest--> TaskStorage --namespaces--> Engine --> files
                                                  ^
    instance --open, clean, statistics--> StateManager (which engine, folder and damage is whose)

*Guarantees*: no engine, folder or database comes out of here. Until M6 the implementation is `state_manager.py`: an
engine per store, a folder per task. M6 replaces the implementation.
*Assumes*: a task's storage is used by one thread at a time, the one that has the task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engine import Batch, Namespace, Span
from milestones.common.state.spec import StoreSpec


class CommitMade(NamedTuple):
    """A commit that Kafka has confirmed. `number`: the task's, as in the offset metadata; by input partition,
    `positions`: the next offset; `stream_times`: in ms, -1 before the first record."""

    number: int
    positions: Mapping[TopicPartition, int]
    stream_times: Mapping[TopicPartition, int]


class TaskStorage(Protocol):
    """A task's open stores, under the task's lock, by the names of the topology.

    A `StateCorruptError` of any call, and of any namespace's, names the damaged stores."""

    def namespace(self, store: str) -> Namespace:
        """The store's entries, for reading; the same object until the store is cleared."""
        ...

    def offsets(self) -> Mapping[str, int | None]:
        """By store, the changelog offset up to which (exclusive) it is complete, as of its last write; None when it is
        empty. No engine is asked. Nothing once the stores are closed."""
        ...

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Write a commit, all stores in one call: entries by store, and the changelog offsets up to which (exclusive)
        the stores are complete then.

        Written in `steps`; the offset of a store goes with the last of its entries, so that a replay repairs a call
        that breaks off. A store without changelog is written in one atomic step. `StateError`.

        `StateBusyError` says that not all of it can be written now, so that its caller doesn't stand still. The caller
        calls again, with the same entries, and nothing else is written to these stores before."""
        ...

    def write_due_ms(self) -> int | None:
        """The monotonic time at which confirmed commits that wait are to be written (`write`); None: none waits."""
        ...

    def write(self) -> None:
        """Write the confirmed commits that wait, if there are any. As `apply`."""
        ...

    def note(self, commit: CommitMade) -> None:
        """The next `apply` writes this commit, and its number with it, where the storage keeps commits: that call only,
        also when it fails."""
        ...

    def commit_number(self) -> int | None:
        """The number of the last commit that was written, 0 when the storage has none of the task, below 0 when a store
        without changelog has lost what it had; None when that isn't kept."""
        ...

    def expire(self, store: str, spans: Collection[Span]) -> None:
        """Delete what no reader asks for any more: see `Engine.expire`. `StateBusyError`: later, or with what is gone
        by then."""
        ...

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        """Empty the store, at offset None, and return its new namespace; the former one is closed. With a `reason`,
        which is logged, the store's files aren't trusted, and are set aside for an inspection."""
        ...

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Put the entries of sorted table files into the store, which is empty: see `Engine.ingest`. `prefix`: what the
        files' keys have in front of the store's own."""
        ...

    def changelog_ids(self) -> Mapping[str, str]:
        """Kafka's id of the topic that each persistent store follows, where the id is known."""
        ...

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Write down, on disk, the ids of the topics that the stores follow; stores in memory are passed over."""
        ...

    def memory_bytes(self) -> int:
        """The memory of this task's engines, without shared memory. From any thread."""
        ...

    def close(self) -> None:
        """Close the stores, and free the task's lock. Harmless when repeated."""
        ...


class GlobalStorage(TaskStorage, Protocol):
    """An instance's open global stores. Each follows all partitions of a topic, so that it has a position in each of
    them in place of an offset. Any thread may read a namespace during the writes."""

    def positions(self, store: str) -> Mapping[int, int]:
        """The offset up to which (exclusive) each partition is in the store, as of the last write; those without one
        are to be read from their beginning."""
        ...

    def write_at(self, batches: Mapping[str, Batch], positions: Mapping[str, Mapping[int, int]]) -> None:
        """Write the entries and changelog positions of several stores. Each store's are written in one atomic step,
        however many they are. Raises `StateError`."""
        ...


OpenStores = Callable[[], TaskStorage]
"""Opens the stores of a task. Raises `StateLockedError`, after which it can be called once more, or `StateError`."""


class StateManager(Protocol):
    """The state of an instance: its open tasks, and the closed ones on its disk. Called from any thread."""

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

    def open_global(self, specs: Sequence[StoreSpec]) -> GlobalStorage:
        """Open the instance's global stores, for the calling thread. As `open`."""
        ...

    def closed_offsets(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, Mapping[str, int]]:
        """Lower bounds of the changelog offsets of persistent stores, by task whose state lies closed on this disk, or
        is among `opening`; none for a task whose offsets aren't known. No file is read."""
        ...

    def statistics(self) -> Mapping[tuple[TaskId, str], Mapping[str, int]]:
        """`Engine.statistics` by task and open store, without stores that are being opened or closed."""
        ...

    def memory_bytes(self) -> int:
        """Memory of all engines, with what they share, about."""
        ...

    def remove(self, task: TaskId) -> None:
        """Remove the state of a task that no thread of this instance has. `StateLockedError`, `StateError`."""
        ...

    def clean(self, now_ms: int, delay_ms: int) -> bool:
        """Remove the state of tasks that no thread of this instance has had for `delay_ms`; True when there was any.
        `now_ms`: of `StateDirectory.now_ms`."""
        ...

    def release(self) -> None:
        """Free the instance's state for another process. Harmless when repeated."""
        ...
