"""The seam between stores and the databases that keep them: `Engine` and `Namespace`.

A task never holds a database handle but a `Namespace`, which its `TaskStorage` opens in an `Engine`. Until M6 each
store has an engine of its own with one namespace; M6 puts many into one engine. An engine knows namespaces only: the
state manager knows their tasks and stores, and names them to the engine for errors (`owners`).

*Guarantees* (of every engine): `apply` is atomic per call, data together with offsets: after a crash either all of a
call is there or nothing of it, and calls are there in their order, as a prefix. Keys are in unsigned byte order.
Only errors of `milestones.common.errors` come out; a `StateCorruptError` names the owners of what is damaged. A
namespace or a scan that outlives its engine raises `StateError`, it never ends silently.
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
"""By namespace, the stores that have entries there."""

NOBODYS: Final[Owners] = MappingProxyType({})
"""The owners of an engine that isn't a task's."""


class Namespace(Protocol):
    """The sorted keys and values of one store of one task. `name`: the name in its engine."""

    name: str

    def get(self, key: bytes, /) -> bytes | None:
        """The value of `key`, None when absent. The hot path: bind it once, `get = namespace.get`."""
        ...

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries with start <= key < end (None: unbounded), as they were at the call; raises on corruption."""
        ...

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first `limit` entries with start <= key < end, at once: cheaper than a `scan` that finds as few; raises
        on corruption."""
        ...

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        """A `scan_bounded` of its own for one more thread. `beyond`: the key from which on it is asked for nothing; an
        engine that can stops there, and passes nothing that has expired behind it."""
        ...

    def offset(self) -> int | None:
        """The changelog offset up to which (exclusive) the content is complete; None when never set."""
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
"""Of a store that nothing was ever written to."""


class Engine(Protocol):
    """Physical storage of one or more namespaces."""

    def open(self, namespace: str) -> Namespace:
        """The namespace, created empty when absent; the same object until it is dropped.

        `StateCorruptError`, `StateLockedError`, `StateError`."""
        ...

    def namespaces(self) -> Collection[str]:
        """The names of all namespaces that there are, opened or not."""
        ...

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int], *, wait: bool = True) -> None:
        """Write all batches and offsets (by namespace, each opened) in one atomic step.

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
        """Delete the namespace with its offset, opened or not. Harmless when absent."""
        ...

    def wipe(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool = True) -> None:
        """Delete all keys of a span per namespace, then write the batches, in one atomic step. Room is given back by
        `compact`. `wait` as in `apply`. `StateError`."""
        ...

    def compact(self, namespace: str, span: Span) -> None:
        """Give back the room of what was deleted in the span. May take long, and holds no lock. `StateError`."""
        ...

    def interrupt(self) -> None:
        """Have a `compact` that is under way come to its end. Only `sync` and `close` are to follow."""
        ...

    def sync(self) -> None:
        """Have all that was applied on the disk, for after a power failure, too. Raises `StateBusyError` if it is full,
        `StateError`."""
        ...

    def unflushed(self) -> Mapping[str, int]:
        """Bytes of memory that hold what was applied and is in no table file yet, by open namespace. `StateError`."""
        ...

    def flush(self, namespace: str) -> None:
        """Have what the namespace has in memory written into a table file; this only begins it. Does nothing where the
        library can't. `StateError`."""
        ...

    def memory_bytes(self) -> int:
        """Bytes of memory that belong to this engine alone: content in memory, memtables, readers."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """The engine's statistics, by RocksDB's names (`STATISTICS`); empty if it has none."""
        ...

    def scanned(self) -> bool:
        """True if a scan that began isn't over. Any thread may ask."""
        ...

    def close(self) -> None:
        """Release everything; applied data stays (in memory: is lost). Harmless when repeated."""
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
