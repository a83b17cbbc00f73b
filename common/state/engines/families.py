"""The common part of both RocksDB engines: a column family per namespace, and the table of open namespaces.

A column family's name is the namespace's name plus a unique suffix. If a namespace is dropped and created anew, it gets
another column family. So if a crash leaves the offset of the former column family, the new one never finds that offset.

*Guarantees*: a namespace that several threads open at the same time is created once. The library isn't asked for a
property of a namespace that is being closed, because this could end the process.
*Assumes*: threads keep to the table in `engine.py`. `_guard` is held while a column family is created and while handles
are closed. The guard isn't held while data is written.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from milestones.common.errors import StateBusyError, StateError
from milestones.common.state.engine import Batch, EngineMemory, Owners, Span
from milestones.common.state.engines.rocks import STATISTICS, Contents, Gate, unpack_offset, unstalled
from milestones.common.state.engines.rocks_namespace import RocksNamespace

Opened = TypeVar("Opened", bound=RocksNamespace)


def family_name(namespace: str) -> str:
    """Make a new, unique name of a column family for the namespace."""
    return f"{namespace}#{uuid.uuid4().hex[:12]}"


class FamilyTable(dict[str, Opened]):
    """The open namespaces of one database, keyed by name. `names`: the column families that the database had when it
    was opened."""

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
        """The names of all namespaces, open ones and others."""
        return list(self._families)

    def __missing__(self, namespace: str) -> Opened:
        raise StateError(f"bug: namespace {namespace!r} in {self._path} is written but was not opened")

    def open(self, namespace: str, create: Callable[[str], object], opener: Callable[[str], Opened]) -> Opened:
        """Open the namespace. `create` makes a column family of the given name, and `opener` opens it."""
        with self._guard:
            if namespace in self:
                return self[namespace]
            if namespace not in self._families:
                family = family_name(namespace)
                create(family)
                self._families[namespace] = family
            opened = self[namespace] = opener(self._families[namespace])
            return opened

    def drop(self, namespace: str) -> str | None:
        """Close and forget the namespace. Returns the column family that the caller must remove, None if there is none.

        A column family's name is never used for another one, so the caller removes it without holding the guard."""
        with self._guard:
            opened = self.pop(namespace, None)
            if opened is not None:
                opened.release()
            return self._families.pop(namespace, None)

    def memory(self) -> EngineMemory:
        """Return the bytes of memtables and of readers of table files. 0 while a namespace is being opened or
        closed."""
        if not self._guard.acquire(blocking=False):
            return EngineMemory()
        try:
            memtables = sum(one.property("rocksdb.cur-size-all-mem-tables") for one in self.values())
            readers = sum(one.property("rocksdb.estimate-table-readers-mem") for one in self.values())
            return EngineMemory(memtables=memtables, table_readers=readers)
        finally:
            self._guard.release()

    def statistics(self) -> Mapping[str, int]:
        """Return the sum over the open namespaces of each of `STATISTICS`. Empty while a namespace is being opened or
        closed."""
        if not self._guard.acquire(blocking=False):
            return {}
        try:
            if not self:
                return {}
            return {name: sum(one.property(f"rocksdb.{name}") for one in self.values()) for name in STATISTICS}
        finally:
            self._guard.release()

    def scanned(self) -> bool:
        """True if an iterator of an open namespace is still in use."""
        with self._guard:
            for opened in self.values():
                opened.drop_seekers()
            return any(len(opened.cursors) for opened in self.values())

    def unflushed(self) -> Mapping[str, int]:
        """Return the bytes of the memtable of each open namespace. Empty while a namespace is being opened or
        closed."""
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
    """An `Engine` that is one RocksDB database. A subclass per library makes the calls."""

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
        """Do nothing. A subclass whose library can interrupt a compaction does so."""

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

    def memory(self) -> EngineMemory:
        return self._namespaces.memory()

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
        """Read a value of the default column family."""

    @abstractmethod
    def _write(self, db: Any, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        """Write everything in one atomic step. Raises the library's error if RocksDB refuses the write."""

    @abstractmethod
    def _expire(self, db: Any, namespace: str, spans: Collection[Span], *, wait: bool) -> None:
        """Delete the keys of these spans."""

    @abstractmethod
    def _wipe(self, db: Any, spans: Mapping[str, Span], batches: Mapping[str, Batch]) -> None:
        """Delete the keys of these spans and write the batches, in one atomic step. Raises the library's error if
        RocksDB refuses the write."""

    @abstractmethod
    def _compact(self, db: Any, opened: Opened, span: Span) -> None: ...

    @abstractmethod
    def _sync(self, db: Any) -> None:
        """Sync the write-ahead log to the disk."""

    def _flush(self, opened: Opened) -> None:
        """Begin to write the memtable of a column family into a file."""

    @abstractmethod
    def _drop(self, db: Any, family: str) -> None:
        """Remove a column family and its offset."""

    @abstractmethod
    def _delayed_write_rate(self, db: Any) -> int: ...
