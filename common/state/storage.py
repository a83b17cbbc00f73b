"""The interface between tasks and their stored state: `TaskStorage` has a task's stores, `StateManager` an instance's.

    task --namespace, apply, clear, ingest--> TaskStorage --namespaces--> Engine --> files
                                                  ^
    instance --open, clean, statistics--> StateManager (knows the engines, folders and damage of each task)

*Guarantees*: no method here returns an engine, a folder or a database. Until M6 `state_manager.py` implements this
interface, with a folder per task and an engine per store. M6 has another implementation.
*Assumes*: a task's storage is used by one thread at a time: the thread that has the task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engine import Batch, EngineMemory, Namespace, Span
from milestones.common.state.spec import StoreSpec


class CommitMade(NamedTuple):
    """A commit of a task that Kafka has confirmed.

    `number`: the commit number, as in the offset metadata. `positions`: the offset of the next record of each input
    partition. `stream_times`: the stream time of each input partition in ms, -1 before the first record."""

    number: int
    positions: Mapping[TopicPartition, int]
    stream_times: Mapping[TopicPartition, int]


class TaskStorage(Protocol):
    """A task's open stores, keyed by their names in the topology. The task's lock is held until `close`.

    A `StateCorruptError` from a method, or from a namespace of this storage, names the damaged stores."""

    def namespace(self, store: str) -> Namespace:
        """Return the store's entries, for reading. Each call returns the same object until the store is cleared."""
        ...

    def offsets(self) -> Mapping[str, int | None]:
        """Return the changelog offset up to which (exclusive) each store is complete after its last write.

        The offset of an empty store is None. The call asks no engine. After `close` the mapping is empty."""
        ...

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Write a commit. One call has the entries of all stores, and the changelog offset up to which (exclusive) each
        store is complete then. Entries and offsets are keyed by store.

        The entries are written in `steps`. A store's offset is written with the last step of the store, so that a
        replay repairs a call that breaks off. A store without changelog is written in one atomic step.

        Raises `StateError`. Raises `StateBusyError` if a part of the commit can't be written now: then the caller can
        do other work, and calls `apply` later with the same entries. Nothing else may be written to these stores in
        between."""
        ...

    def write_due_ms(self) -> int | None:
        """Return the monotonic time in ms when waiting commits must be written (`write`). None if no commit waits."""
        ...

    def write(self) -> None:
        """Write the confirmed commits that wait, if there are any. Raises the errors of `apply`."""
        ...

    def note(self, commit: CommitMade) -> None:
        """Announce that the next `apply` writes this commit. A storage that keeps commits writes its number, too.

        The note holds for one call of `apply`, even if that call fails."""
        ...

    def commit_number(self) -> int | None:
        """Return the number of the last commit that was written. None if this storage keeps no commit numbers.

        0 means that the storage has no commit of the task. A negative number means that a store without changelog has
        lost its rows."""
        ...

    def expire(self, store: str, spans: Collection[Span]) -> None:
        """Delete rows that no reader asks for any more: see `Engine.expire`. After a `StateBusyError` the caller may
        repeat the call later, and add rows that have expired since."""
        ...

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        """Empty the store, and return its new namespace, whose offset is None. The former namespace is closed.

        A `reason` says why the store's files can't be trusted. The reason is logged, and the files are set aside, so
        that a person can inspect them."""
        ...

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Put the entries of sorted table files into the store, which must be empty: see `Engine.ingest`.

        `prefix`: the bytes that each key in the files has in front of the store's key."""
        ...

    def changelog_ids(self) -> Mapping[str, str]:
        """Return Kafka's id of the topic that each persistent store follows. A store is left out while its topic's id
        is unknown."""
        ...

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Write the ids of the topics that the stores follow to the disk. Stores in memory are left out."""
        ...

    def memory(self) -> EngineMemory:
        """Return the memory of this task's engines, without shared memory. Any thread may ask."""
        ...

    def close(self) -> None:
        """Close the stores, and free the task's lock. A second call does nothing."""
        ...


class GlobalStorage(TaskStorage, Protocol):
    """An instance's open global stores. A global store follows all partitions of a topic, so it has a position for each
    partition in place of one changelog offset. Any thread may read a namespace during the writes."""

    def positions(self, store: str) -> Mapping[int, int]:
        """Return the offset up to which (exclusive) each partition of the topic is in the store after the last write.
        A partition that is missing in the mapping must be read from its beginning."""
        ...

    def write_at(self, batches: Mapping[str, Batch], positions: Mapping[str, Mapping[int, int]]) -> None:
        """Write the entries and the topic positions of several stores. Raises `StateError`.

        The entries and positions of one store are written in one atomic step, however many they are."""
        ...


OpenStores = Callable[[], TaskStorage]
"""Opens the stores of a task. Raises `StateLockedError`, after which it can be called once more, or `StateError`."""


class StateManager(Protocol):
    """The state of an instance: its open tasks, and the closed tasks on its disk. Any thread may call the methods."""

    def open(
        self, task: TaskId, specs: Sequence[StoreSpec], transactional_id: str | None = None, owner: str | None = None
    ) -> TaskStorage:
        """Lock `task` for `owner` (None: the calling thread) and open its stores. A damaged store starts empty.

        Raises `StateLockedError` while another holder has the task: call once more later. Raises `StateFormatError` or
        `StateError`."""
        ...

    def open_global(self, specs: Sequence[StoreSpec]) -> GlobalStorage:
        """Open the instance's global stores, for the calling thread. Raises the errors of `open`."""
        ...

    def closed_offsets(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, Mapping[str, int]]:
        """Return lower bounds of the changelog offsets of persistent stores, for each task that has state on this disk
        and isn't open.

        Tasks in `opening` count as not open. A task whose offsets are unknown has an empty mapping. The call reads no
        file."""
        ...

    def statistics(self) -> Mapping[tuple[TaskId, str], Mapping[str, int]]:
        """Return `Engine.statistics` keyed by task and store. Stores that are being opened or closed are left out."""
        ...

    def memory(self) -> EngineMemory:
        """Estimate the memory of all engines, with the memory that they share."""
        ...

    def remove(self, task: TaskId) -> None:
        """Remove the state of a task that no thread of this instance has. Raises `StateLockedError` or `StateError`."""
        ...

    def clean(self, now_ms: int, delay_ms: int) -> bool:
        """Remove the state of tasks that no thread of this instance has had for `delay_ms`. Returns True if any state
        was removed. `now_ms`: the time by `StateDirectory.now_ms`."""
        ...

    def release(self) -> None:
        """Free the instance's state for another process. A second call does nothing."""
        ...
