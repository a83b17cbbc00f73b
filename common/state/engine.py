"""The interface between stores and the databases that hold their data: `Engine` and `Namespace`.

A task has no handle of a database. Instead, a task has a `Namespace`, which its `TaskStorage` opens in an `Engine`.
Until M6 each store has its own engine with one namespace. From M6 on one engine has many namespaces. An engine knows
only namespaces. The state manager knows the task and the store of each namespace. The engine gets a table of these
owners (`owners`), so that its errors can name tasks and stores.

*Guarantees* (of every engine): one call of `apply` is atomic, data together with offsets. After a crash, either all
writes of a call are in the engine or none. If the writes of a call are in the engine, so are those of all earlier
calls. Keys are in unsigned byte order. Engines raise only errors of `milestones.common.errors`. A `StateCorruptError`
names the owners of the damaged data. A namespace or a scan that is used after its engine was closed raises
`StateError`: a scan never ends as if there were no more entries.
*Assumes*: only committed data is ever applied. Threads keep to this table:

| call | what any thread may call during it |
|---|---|
| `get`, `scan` and its entries, `offset` of a namespace | everything but the `drop` of that namespace, and `close` |
| `scan_bounded` of a namespace, or one of its `reader`s | the same, but another call of the same one |
| `apply`, `expire`, `ingest`, `wipe` | everything but a write of the same keys, its `drop`, and `close` |
| `compact`, `interrupt`, `sync` | everything but the `drop` of that namespace, and `close` |
| `open` | everything but the `drop` of that namespace, and `close`; two threads get one object for one name |
| `drop` | everything on other namespaces, but `close` |
| `statistics`, `memory` | everything, `close` too: `statistics` then has nothing, or they raise `StateError` |
| `scanned` | everything but `close` |
| `close` | `statistics` and `memory`; nothing else is under way, on any thread |

So several threads may apply, open and drop in one engine, if each uses its own namespaces. Until M6, only the thread
that has the task calls its engines. `statistics` and `memory` are the exceptions: any thread calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from milestones.common.records import StoreId

Batch = Mapping[bytes, bytes | None]
"""Writes by key; None deletes."""

Span = tuple[bytes, bytes]
"""The keys with first <= key < second."""

BoundedScan = Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]
"""A function with the arguments (start, end, limit) of `Namespace.scan_bounded`, and its result."""

Owners = Mapping[str, Collection[StoreId]]
"""The stores that have entries in a namespace, keyed by the namespace's name."""

NOBODYS: Final[Owners] = MappingProxyType({})
"""The owners of an engine that belongs to no task: there are none."""


class EngineMemory(NamedTuple):
    """The memory of engines, in bytes.

    `block_cache`: blocks of table files, with their indexes and filters. Engines share it. `memtables`: entries that
    are in no table file yet. `table_readers`: what is kept of each open table file besides the block cache. `content`:
    the entries of engines in memory. `changed_keys`: the keys that have changed since the last snapshot."""

    block_cache: int = 0
    memtables: int = 0
    table_readers: int = 0
    content: int = 0
    changed_keys: int = 0

    @property
    def all_bytes(self) -> int:
        return sum(self)


def summed(memories: Iterable[EngineMemory]) -> EngineMemory:
    """Add up the memory of several engines, field by field."""
    return EngineMemory(*map(sum, zip(*memories, strict=True)))


class Namespace(Protocol):
    """The sorted keys and values of one store of one task. `name`: the namespace's name in its engine."""

    name: str

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of `key`, None if there is none. Callers keep the bound method (`get = namespace.get`),
        because they call `get` for every record."""
        ...

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with start <= key < end (None: no bound), as they were at the call. Raises an error if data
        is damaged."""
        ...

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first `limit` entries with start <= key < end as a list. For few entries this is cheaper than a
        `scan`. Raises an error if data is damaged."""
        ...

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        """Make a separate `scan_bounded` for one more thread.

        `beyond`: the caller never asks for this key or a higher one. An engine that can stop at this key needn't read
        the expired entries that follow."""
        ...

    def offset(self) -> int | None:
        """Return the changelog offset up to which (exclusive) the content is complete. None if it was never set."""
        ...

    def approximate_entries(self) -> int:
        """Estimate the number of entries."""
        ...


class _Empty:
    """A namespace without an engine and without entries."""

    name = ""

    def get(self, key: bytes, /) -> bytes | None:
        return None

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return []

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        return self.scan_bounded

    def offset(self) -> int | None:
        return None

    def approximate_entries(self) -> int:
        return 0


EMPTY: Final[Namespace] = _Empty()
"""The namespace of a store that has never been written to."""


class Engine(Protocol):
    """Physical storage of one or more namespaces."""

    def open(self, namespace: str) -> Namespace:
        """Open the namespace, and create it if it doesn't exist. Returns the same object until the namespace is
        dropped.

        Raises `StateCorruptError`, `StateLockedError` or `StateError`."""
        ...

    def namespaces(self) -> Collection[str]:
        """List the names of all namespaces, open ones and others."""
        ...

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int], *, wait: bool = True) -> None:
        """Write all batches and offsets in one atomic step. Batches and offsets are keyed by namespace, and every
        namespace must have been opened.

        Raises `StateError` if the disk is full. After that error no reader sees any of these writes. When the engine is
        opened the next time, it has either all of them or none. An engine that met a full disk may refuse every later
        write: close it, then open it anew.

        If the engine is behind with earlier writes, a call with `wait` waits until it has caught up. A call without
        `wait` raises `StateBusyError` immediately. A full disk raises `StateBusyError`, too, if the call is without
        `wait`."""
        ...

    def expire(self, namespace: str, spans: Collection[Span], *, wait: bool = True) -> None:
        """Delete all keys of these spans (first <= key < second), which no reader asks for any more.

        The call isn't atomic: after a crash some of the keys may still be there. `wait`: as in `apply`. Raises
        `StateError`."""
        ...

    def ingest(self, namespace: str, files: Sequence[Path]) -> Iterator[None]:
        """Put the entries of sorted table files (`sst.py`) into the namespace, one step per item of the iterator.

        The namespace must be open and empty. The engine owns the files from now on. The namespace's offset stays None,
        because a part of the entries may be missing: after a crash, or if the caller doesn't read the iterator to its
        end. Raises `StateCorruptError` if a file is damaged, and `StateError`."""
        ...

    def drop(self, namespace: str) -> None:
        """Delete the namespace and its offset. The namespace may be open or closed. Does nothing if it doesn't
        exist."""
        ...

    def wipe(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool = True) -> None:
        """Delete all keys of one span per namespace, then write the batches. All of this is one atomic step.

        The disk space of deleted keys is freed later, by `compact`. `wait`: as in `apply`. Raises `StateError`."""
        ...

    def compact(self, namespace: str, span: Span) -> None:
        """Free the disk space of deleted keys in the span. The call may take long, and holds no lock. Raises
        `StateError`."""
        ...

    def interrupt(self) -> None:
        """End a `compact` that is running. After this only `sync` and `close` may be called."""
        ...

    def sync(self) -> None:
        """Make all applied data durable, so that it survives a power failure. Raises `StateBusyError` if the disk is
        full, and `StateError`."""
        ...

    def unflushed(self) -> Mapping[str, int]:
        """Return the bytes of applied data that is only in memory (in no table file yet), keyed by open namespace.
        Raises `StateError`."""
        ...

    def flush(self, namespace: str) -> None:
        """Begin to write the namespace's data in memory into a table file, without waiting for the end. Does nothing if
        the library has no such call. Raises `StateError`."""
        ...

    def memory(self) -> EngineMemory:
        """Return the memory that only this engine uses."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """Return the engine's statistics, keyed by RocksDB's names (`STATISTICS`). Empty if the engine has none."""
        ...

    def scanned(self) -> bool:
        """True while a scan of this engine has begun and not ended. Any thread may ask."""
        ...

    def close(self) -> None:
        """Release memory, files and locks. Applied data stays on the disk; an engine in memory loses its data. A second
        call does nothing."""
        ...


class Engines(Protocol):
    """Opens engines of one kind, and owns the memory that they share. One object per process."""

    name: str

    def open(self, directory: Path, owners: Owners = NOBODYS, namespaces: Collection[str] = ()) -> Engine:
        """Open the engine in `directory`, and create it if it doesn't exist.

        `owners`: the stores of each namespace, for error texts. The caller may change the mapping later.
        `namespaces`: the names of namespaces that a new engine creates together, if its library does that faster than
        one by one.

        Raises `StateCorruptError`, `StateLockedError` or `StateError`."""
        ...

    def memory(self) -> EngineMemory:
        """Return the memory that all engines share, without the memory of single engines."""
        ...

    def for_many_tasks(self) -> Engines:
        """Return `Engines` that divide the same memory among few engines, each of which stores many tasks."""
        ...

    def crowded(self) -> bool:
        """True while little memory is left for data that is in no table file yet (unflushed data). Any thread may ask.

        When no memory is left, an engine must flush at its next write. Any engine that is written must then flush, even
        one with little unflushed data. An engine that takes up most of the memory but isn't written doesn't flush."""
        ...
