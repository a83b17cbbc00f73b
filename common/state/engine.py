"""The interface between stores and the databases that hold their data: `Engine` and `Namespace`.

A task has no handle of a database. It has a `Namespace`, which its `TaskStorage` opens in an `Engine`. Until M6 each
store has its own engine with one namespace. From M6 on one engine has many namespaces. An engine knows only namespaces.
The state manager knows which task and store each belongs to, and gives that to the engine for errors (`owners`).

*Guarantees* (of every engine): one call of `apply` is atomic, data together with offsets. After a crash, either the
whole call is there or nothing of it. If a call is there, all earlier calls are there, too. Keys are in unsigned byte
order. Engines raise only errors of `milestones.common.errors`. A `StateCorruptError` names the owners of the damaged
data. If a namespace or a scan is used after its engine was closed, it raises `StateError`. It never just ends.
*Assumes*: only committed data is ever applied. Threads keep to this table:

| call | during it, on any thread |
|---|---|
| `get`, `scan` and its entries, `offset` of a namespace | everything but the `drop` of that namespace, and `close` |
| `scan_bounded` of a namespace, or one of its `reader`s | the same, but another call of the same one |
| `apply`, `expire`, `ingest`, `wipe` | everything but a write of the same keys, its `drop`, and `close` |
| `compact`, `interrupt`, `sync` | everything but the `drop` of that namespace, and `close` |
| `open` | everything but the `drop` of that namespace, and `close`; two threads get one object for one name |
| `drop` | everything on other namespaces, but `close` |
| `statistics`, `memory_bytes` | everything, `close` too: `statistics` then has nothing, or they raise `StateError` |
| `scanned` | everything but `close` |
| `close` | `statistics` and `memory_bytes`; nothing else is under way, on any thread |

So N threads may apply, open and drop in one engine, each its own namespaces. Until M6 all calls but `statistics` are
those of the one thread that has the task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from milestones.common.records import StoreId

Batch = Mapping[bytes, bytes | None]
"""Writes by key; None deletes."""

Span = tuple[bytes, bytes]
"""The keys with first <= key < second."""

BoundedScan = Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]
"""(start, end, limit): see `Namespace.scan_bounded`."""

Owners = Mapping[str, Collection[StoreId]]
"""By namespace: the stores that have entries in it."""

NOBODYS: Final[Owners] = MappingProxyType({})
"""No owners, for an engine that belongs to no task."""


class Namespace(Protocol):
    """The sorted keys and values of one store of one task. `name`: the name in its engine."""

    name: str

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of `key`, None if there is none. It is called for every record, so callers keep the bound
        method: `get = namespace.get`."""
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
        """Make a separate `scan_bounded` for one more thread. `beyond`: the caller asks for no key from this one on. An
        engine that can stop there needn't pass over expired entries behind it."""
        ...

    def offset(self) -> int | None:
        """The changelog offset up to which the content is complete, not including it. None if it was never set."""
        ...

    def approximate_entries(self) -> int:
        """An estimate of the number of entries."""
        ...


class _Empty:
    """The namespace of no engine."""

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

        `StateCorruptError`, `StateLockedError`, `StateError`."""
        ...

    def namespaces(self) -> Collection[str]:
        """The names of all namespaces, whether they are open or not."""
        ...

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int], *, wait: bool = True) -> None:
        """Write all batches and offsets in one atomic step. Both are keyed by namespace, and every namespace must have
        been opened.

        Raises `StateError` if the disk is full: then no reader sees any of it, and after the next open it is there
        entirely or not at all. Such an engine may refuse every later write: close it and open it again.

        `wait`: for as long as the engine is behind with earlier writes. Otherwise that is a `StateBusyError` at once,
        and so is a full disk."""
        ...

    def expire(self, namespace: str, spans: Collection[Span], *, wait: bool = True) -> None:
        """Delete all keys of these spans (first <= key < second), which no reader asks for any more. Not atomic: after
        a crash some may be there. `wait` as in `apply`. `StateError`."""
        ...

    def ingest(self, namespace: str, files: Sequence[Path]) -> Iterator[None]:
        """Put the entries of sorted table files (`sst.py`) into the namespace, which is opened and empty: a step per
        item of the iterator. The engine owns the files from now on. The offset stays None: after a crash, or an
        iterator that isn't read to its end, a part of the entries is there. Raises `StateCorruptError` if a file is
        damaged, `StateError`."""
        ...

    def drop(self, namespace: str) -> None:
        """Delete the namespace and its offset, whether it is open or not. Does nothing if it doesn't exist."""
        ...

    def wipe(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool = True) -> None:
        """For each namespace delete all keys of a span, then write the batches, in one atomic step. The disk space is
        freed by `compact`. `wait`: as in `apply`. Raises `StateError`."""
        ...

    def compact(self, namespace: str, span: Span) -> None:
        """Free the disk space of deleted keys in the span. May take long, and holds no lock. Raises `StateError`."""
        ...

    def interrupt(self) -> None:
        """End a `compact` that is running. After this only `sync` and `close` may be called."""
        ...

    def sync(self) -> None:
        """Have all that was applied on the disk, for after a power failure, too. Raises `StateBusyError` if it is full,
        `StateError`."""
        ...

    def unflushed(self) -> Mapping[str, int]:
        """By open namespace: the bytes of memory with applied data that is in no table file yet. Raises
        `StateError`."""
        ...

    def flush(self, namespace: str) -> None:
        """Begin to write the namespace's data in memory into a table file, without waiting for the end. Does nothing if
        the library can't do it. Raises `StateError`."""
        ...

    def memory_bytes(self) -> int:
        """The bytes of memory that only this engine uses: content in memory, memtables, readers of table files."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """The engine's statistics, by RocksDB's names (`STATISTICS`); empty if it has none."""
        ...

    def scanned(self) -> bool:
        """True if a scan that began isn't over. Any thread may ask."""
        ...

    def close(self) -> None:
        """Release everything. Applied data stays on the disk. An engine in memory loses it. A second call does
        nothing."""
        ...


class Engines(Protocol):
    """Opens engines of one kind, and owns the memory that they share. One object per process."""

    name: str

    def open(self, directory: Path, owners: Owners = NOBODYS, namespaces: Collection[str] = ()) -> Engine:
        """The engine in `directory`, created when absent. `owners`: the stores of its namespaces, for errors; the
        caller may change the mapping later. `namespaces`: those that are made with a new engine, where that is cheaper
        than to make each as it is opened.

        `StateCorruptError`, `StateLockedError`, `StateError`."""
        ...

    def memory_bytes(self) -> int:
        """Bytes of the shared caches, without the memory of single engines."""
        ...

    def for_many_tasks(self) -> Engines:
        """The same memory for few engines, each of which has the stores of many tasks."""
        ...

    def crowded(self) -> bool:
        """True if little is left of the memory for what is in no table file yet. Once none is left an engine that is
        written flushes, however little it has, and those that hold the memory don't. From any thread."""
        ...
