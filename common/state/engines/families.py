"""What both RocksDB engines are made of: a column family per namespace, and the table of those that are open.

A column family's name is the namespace's name plus a unique suffix: a namespace that is dropped and created again
gets another column family, and an offset of the former one can't be taken for its own, whatever a crash leaves.

*Guarantees*: a namespace that several threads open at once is created once. No library is asked for a property of a
namespace while that namespace is closed, which could end the process.
*Assumes*: the threads' part of the contract in `engine.py`. `_guard` is held while a column family is created, and
while handles are closed; never while data is written.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from milestones.common.errors import StateBusyError, StateError
from milestones.common.state.engine import Batch, Few, Owners, Span
from milestones.common.state.engines.rocks import (
    STATISTICS,
    Contents,
    Cursor,
    Gate,
    Seeker,
    entries,
    nothing_between,
    unpack_offset,
    unstalled,
)


class FewReader:
    """`few`, for one thread: keeps its seeker from one read to the next, as only a write changes a column family, and
    writes are rare.

    *Concurrency*: a thread that writes changes the namespace's `state` when all of it is there, and drops the seeker,
    which would hold what the write replaced. A thread that reads notes the state before it makes a seeker: one that
    misses a write has another one.
    """

    def __init__(self, namespace: RocksNamespace, beyond: bytes | None = None) -> None:
        self._namespace, self._beyond = namespace, beyond
        self._kept: _Kept | None = None

    def few(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if start >= end:
            return []
        kept = self._kept
        if kept is None or kept.state is not self._namespace.state:
            kept = self._kept = _Kept(*self._namespace.new_seeker(self._beyond))
            self._namespace.seeking.add(self)  # a write that is too early for it is followed by one that drops it
        elif kept.first <= start and (kept.beyond is None or end <= kept.beyond):
            return []
        try:
            found, beyond = kept.seeker.few(start, end, limit)
        except BaseException:
            self._kept = kept = None
            raise
        if not found:
            kept.note(start, beyond)
        return found

    def drop(self) -> None:
        """Let go of the seeker."""
        self._kept = None


class _Kept:
    """A seeker, the state of the namespace that the seeker sees, and of the gaps that it has met the last one: no key
    is from `first` to before `beyond` (None: to its end). What is behind a store's newest rows is looked for again and
    again; there the seeker may have to pass, one by one, all that has expired and isn't flushed yet.
    """

    __slots__ = ("beyond", "first", "seeker", "state")

    beyond: bytes | None

    def __init__(self, state: object, seeker: Seeker) -> None:
        self.state, self.seeker = state, seeker
        self.first = self.beyond = b""

    def note(self, first: bytes, beyond: bytes | None) -> None:
        """Take this gap if no other one is behind it."""
        if beyond is None or (self.beyond is not None and beyond >= self.beyond):
            self.first, self.beyond = first, beyond


class RocksNamespace(ABC):
    """A column family. `get` is a closure over the library's own method: mapping errors costs it nothing. `state`: a
    new object after each write; `seeking`: the readers that have a seeker."""

    name: str
    family: bytes
    few: Few

    get: Callable[[bytes], bytes | None]

    def __init__(self, engine: RocksEngine[Any], name: str, family: str) -> None:
        self.name, self.family = name, family.encode()
        self.cursors: weakref.WeakSet[Cursor | Seeker] = weakref.WeakSet()
        self.state = object()
        self._engine = engine
        self.seeking: weakref.WeakSet[FewReader] = weakref.WeakSet()
        self.few = self.reader()

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if nothing_between(start, end):
            return iter(())
        try:
            cursor = self._cursor(start, end, reverse)
        except Exception as error:
            raise self.failed(error) from error
        self.cursors.add(cursor)
        return entries(cursor)

    def reader(self, beyond: bytes | None = None) -> Few:
        return FewReader(self, beyond).few

    def new_seeker(self, beyond: bytes | None = None) -> tuple[object, Seeker]:
        """A seeker of the keys before `beyond`, and the state of the namespace that it sees, or an earlier one."""
        state = self.state
        try:
            seeker = self._seek(beyond)
        except Exception as error:
            raise self.failed(error) from error
        self.cursors.add(seeker)
        return state, seeker

    def written(self) -> None:
        """Note that a write was made."""
        self.state = object()
        self.drop_seekers()

    def drop_seekers(self) -> None:
        """Let go of iterators that no read is at."""
        while self.seeking:  # a write costs nothing for the readers that have none
            with suppress(KeyError):  # the last one is gone by itself
                self.seeking.pop().drop()

    def offset(self) -> int | None:
        return self._engine.offset(self)

    def approximate_entries(self) -> int:
        return self.property("rocksdb.estimate-num-keys")

    def failed(self, error: Exception) -> StateError:
        return self._engine.contents.failure(error, self.name)

    def closed(self) -> StateError:
        return self._engine.contents.closed(self.name)

    def release(self) -> None:
        """Close the library's handles."""
        self.written()  # what a reader remembers isn't an answer of a closed namespace
        for cursor in list(self.cursors):
            cursor.close()

    @abstractmethod
    def property(self, name: str) -> int:
        """One of RocksDB's numbers. `StateError`."""

    @abstractmethod
    def _cursor(self, start: bytes | None, end: bytes | None, reverse: bool) -> Cursor: ...

    @abstractmethod
    def _seek(self, beyond: bytes | None) -> Seeker: ...


Opened = TypeVar("Opened", bound=RocksNamespace)


class FamilyTable(dict[str, Opened]):
    """The open namespaces of one database, by name. `names`: its column families as it was opened."""

    def __init__(self, path: object, names: Iterable[str]) -> None:
        super().__init__()
        self._path, self._families = path, {name.rpartition("#")[0]: name for name in names if "#" in name}
        self._guard = threading.Lock()

    @property
    def families(self) -> list[str]:
        """The names of all column families."""
        return list(self._families.values())

    @property
    def names(self) -> list[str]:
        """The names of all namespaces, open or not."""
        return list(self._families)

    def __missing__(self, namespace: str) -> Opened:
        raise StateError(f"bug: namespace {namespace!r} in {self._path} is written but was not opened")

    def open(self, namespace: str, create: Callable[[str], object], opener: Callable[[str], Opened]) -> Opened:
        """Open the namespace. `create` makes a column family of a name, `opener` opens one."""
        with self._guard:
            if namespace in self:
                return self[namespace]
            if namespace not in self._families:
                family = f"{namespace}#{uuid.uuid4().hex[:12]}"  # a name that was never used before
                create(family)
                self._families[namespace] = family
            opened = self[namespace] = opener(self._families[namespace])
            return opened

    def drop(self, namespace: str) -> str | None:
        """Close and forget the namespace, and return the column family that is to be removed, None when there is none.
        A family's name is never used again, so the family is removed without the guard."""
        with self._guard:
            opened = self.pop(namespace, None)
            if opened is not None:
                opened.release()
            return self._families.pop(namespace, None)

    def memory_bytes(self) -> int:
        """Memtables and readers of the open namespaces; 0 while a namespace is opened or closed right now."""
        if not self._guard.acquire(blocking=False):
            return 0
        try:
            return sum(
                one.property("rocksdb.cur-size-all-mem-tables") + one.property("rocksdb.estimate-table-readers-mem")
                for one in self.values()
            )
        finally:
            self._guard.release()

    def statistics(self) -> Mapping[str, int]:
        """The sums of `STATISTICS`; nothing while a namespace is opened or closed right now."""
        if not self._guard.acquire(blocking=False):
            return {}
        try:
            if not self:
                return {}
            return {name: sum(one.property(f"rocksdb.{name}") for one in self.values()) for name in STATISTICS}
        finally:
            self._guard.release()

    def scanned(self) -> bool:
        """Whether a namespace has an iterator that is read, or may be."""
        with self._guard:
            for opened in self.values():
                opened.drop_seekers()
            return any(len(opened.cursors) for opened in self.values())

    def unflushed(self) -> Mapping[str, int]:
        """The memtables of the open namespaces; nothing while a namespace is opened or closed right now."""
        if not self._guard.acquire(blocking=False):
            return {}
        try:
            return {name: one.property("rocksdb.cur-size-active-mem-table") for name, one in self.items()}
        finally:
            self._guard.release()

    def close(self) -> None:
        """Close all namespaces."""
        with self._guard:
            for opened in self.values():
                opened.release()
            self.clear()


class RocksEngine(ABC, Generic[Opened]):
    """One RocksDB database. See `Engine`."""

    _namespaces: FamilyTable[Opened]
    _database: Any

    def __init__(self, path: object, owners: Owners) -> None:
        self.contents: Contents = Contents(path, owners)
        self.interrupted = False
        self._gate = Gate()

    def namespaces(self) -> Collection[str]:
        self.db()
        return self._namespaces.names

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int], *, wait: bool = True) -> None:
        db = self.db()
        try:
            self._unstalled(lambda: self._write(db, batches, offsets), batches.values(), wait=wait)
        except StateBusyError:
            raise
        except Exception as error:
            raise self.contents.failure(error) from error
        finally:
            for namespace in batches:
                self._written(namespace)

    def expire(self, namespace: str, spans: Collection[Span], *, wait: bool = True) -> None:
        db = self.db()
        try:
            self._expire(db, namespace, spans, wait=wait)
        except StateBusyError:
            raise
        except Exception as error:
            raise self.contents.failure(error, namespace) from error
        finally:
            self._written(namespace)

    def wipe(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool = True) -> None:
        db = self.db()
        try:
            self._unstalled(lambda: self._wipe(db, spans, batches), batches.values(), wait=wait)
        except StateBusyError:
            raise
        except Exception as error:
            raise self.contents.failure(error) from error
        finally:
            for namespace in {**spans, **batches}:
                self._written(namespace)

    def compact(self, namespace: str, span: Span) -> None:
        db = self.db()
        try:
            self._compact(db, self._namespaces[namespace], span)
        except Exception as error:
            raise self.contents.failure(error, namespace) from error

    def interrupt(self) -> None:
        """Do nothing: not each library can."""

    def sync(self) -> None:
        db = self.db()
        try:
            unstalled(lambda: self._sync(db), lambda: 0, (), str(self.contents), wait=False)
        except StateBusyError:
            raise
        except Exception as error:
            raise self.contents.failure(error) from error

    def _written(self, namespace: str) -> None:
        opened = self._namespaces.get(namespace)
        if opened is not None:
            opened.written()

    def unflushed(self) -> Mapping[str, int]:
        self.db()
        return self._namespaces.unflushed()

    def flush(self, namespace: str) -> None:
        self.db()
        try:
            self._flush(self._namespaces[namespace])
        except Exception as error:
            raise self.contents.failure(error, namespace) from error

    def _unstalled(self, write: Callable[[], None], batches: Collection[Batch], *, wait: bool = True) -> None:
        db = self.db()

        def attempt() -> None:
            unstalled(write, lambda: self._delayed_write_rate(db), batches, str(self.contents), wait=wait)

        if wait:
            attempt()
        else:
            self._gate.pass_through(attempt)

    def drop(self, namespace: str) -> None:
        db = self.db()
        family = self._namespaces.drop(namespace)
        if family is None:
            return
        try:
            self._drop(db, family)
        except Exception as error:
            raise self.contents.failure(error, namespace) from error

    def memory_bytes(self) -> int:
        return self._namespaces.memory_bytes()

    def statistics(self) -> Mapping[str, int]:
        self.db()
        return self._namespaces.statistics()

    def scanned(self) -> bool:
        return self._namespaces.scanned()

    def offset(self, namespace: Opened) -> int | None:
        try:
            return unpack_offset(self._read(self.db(), namespace.family))
        except Exception as error:
            raise self.contents.failure(error, namespace.name) from error

    def db(self) -> Any:
        if self._database is None:
            raise self.contents.closed()
        return self._database

    @abstractmethod
    def _read(self, db: Any, key: bytes) -> bytes | None:
        """A value of the default column family."""

    @abstractmethod
    def _write(self, db: Any, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Write all at once, or be refused."""

    @abstractmethod
    def _expire(self, db: Any, namespace: str, spans: Collection[Span], *, wait: bool) -> None:
        """Delete the keys of these spans."""

    @abstractmethod
    def _wipe(self, db: Any, spans: Mapping[str, Span], batches: Mapping[str, Batch]) -> None:
        """Delete the keys of these spans and write the batches, all at once, or be refused."""

    @abstractmethod
    def _compact(self, db: Any, opened: Opened, span: Span) -> None: ...

    @abstractmethod
    def _sync(self, db: Any) -> None:
        """Have the write-ahead log on the disk."""

    def _flush(self, opened: Opened) -> None:
        """Begin to write the memtable of a column family into a file."""

    @abstractmethod
    def _drop(self, db: Any, family: str) -> None:
        """Remove a column family and its offset."""

    @abstractmethod
    def _delayed_write_rate(self, db: Any) -> int: ...
