"""A `Namespace` that is a column family, and its readers, for both RocksDB engines.

*Guarantees*: a read finds all writes that were made before it. A read of a released namespace raises `StateError`.
*Assumes*: threads keep to the table in `engine.py`. `written` is called after each write.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from milestones.common.errors import StateError
from milestones.common.state.engine import BoundedScan
from milestones.common.state.engines.rocks import Cursor, Seeker, entries, nothing_between

if TYPE_CHECKING:
    from milestones.common.state.engines.families import RocksEngine


class BoundedReader:
    """Makes the `scan_bounded` calls of one thread. A reader keeps its seeker (the library's iterator) from one read to
    the next, because only a write changes a column family, and writes are rare.

    *Concurrency*: after a write is complete, the writing thread replaces the namespace's `state`. The writing thread
    also drops the seeker, which would keep the replaced data in memory. The reading thread notes the state before it
    makes a seeker. So if the seeker misses a write, the state differs at the next read, and a new seeker is made.
    """

    def __init__(self, namespace: RocksNamespace, beyond: bytes | None = None) -> None:
        self._namespace, self._beyond = namespace, beyond
        self._kept: _Kept | None = None

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if start >= end:
            return []
        kept = self._kept
        if kept is None or kept.state is not self._namespace.state:
            kept = self._kept = _Kept(*self._namespace.new_seeker(self._beyond))
            self._namespace.seeking.add(self)  # a write before this line doesn't drop the seeker, but the next one does
        elif kept.first <= start and (kept.beyond is None or end <= kept.beyond):
            return []
        try:
            found, beyond = kept.seeker.scan_bounded(start, end, limit)
        except BaseException:
            self._kept = kept = None
            raise
        if not found:
            kept.note(start, beyond)
        return found

    def drop(self) -> None:
        """Drop the seeker."""
        self._kept = None


class _Kept:
    """A seeker, the state of the namespace that the seeker sees, and the last gap that it has met.

    The gap means that there is no key from `first` to before `beyond` (None: to the end of the seeker's keys). The gap
    is kept because many reads ask for rows later than a store's newest rows. For each such read the seeker might have
    to pass all expired rows that aren't flushed yet, one by one.
    """

    __slots__ = ("beyond", "first", "seeker", "state")

    beyond: bytes | None

    def __init__(self, state: object, seeker: Seeker) -> None:
        self.state, self.seeker = state, seeker
        self.first = self.beyond = b""

    def note(self, first: bytes, beyond: bytes | None) -> None:
        """Keep this gap, unless the kept one ends later."""
        if beyond is None or (self.beyond is not None and beyond >= self.beyond):
            self.first, self.beyond = first, beyond


class RocksNamespace(ABC):
    """A column family. `get` is a closure over the library's own method, so that the translation of errors costs a read
    nothing. `state`: an object that each write replaces. `seeking`: the readers that have a seeker."""

    name: str
    family: bytes
    scan_bounded: BoundedScan

    get: Callable[[bytes], bytes | None]

    def __init__(self, engine: RocksEngine[Any], name: str, family: str) -> None:
        self.name, self.family = name, family.encode()
        self.cursors: weakref.WeakSet[Cursor | Seeker] = weakref.WeakSet()
        self.state = object()
        self._engine = engine
        self.seeking: weakref.WeakSet[BoundedReader] = weakref.WeakSet()
        self.scan_bounded = self.reader()

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if nothing_between(start, end):
            return iter(())
        try:
            cursor = self._cursor(start, end, reverse)
        except Exception as error:
            raise self.failed(error) from error
        self.cursors.add(cursor)
        return entries(cursor)

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        return BoundedReader(self, beyond).scan_bounded

    def new_seeker(self, beyond: bytes | None = None) -> tuple[object, Seeker]:
        """Make a seeker of the keys before `beyond`. Returns it with the namespace's state. The seeker sees this state
        or a later one."""
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
        """Drop the seekers that readers keep between two reads."""
        while self.seeking:  # readers without a seeker aren't in the set, and cost a write nothing
            with suppress(KeyError):  # the last reader in the weak set may have been garbage-collected just now
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
        self.written()  # so that readers forget their gaps, and a read of the closed namespace raises an error
        for cursor in list(self.cursors):
            cursor.close()

    @abstractmethod
    def property(self, name: str) -> int:
        """Return one of RocksDB's numeric properties. Raises `StateError`."""

    @abstractmethod
    def _cursor(self, start: bytes | None, end: bytes | None, reverse: bool) -> Cursor: ...

    @abstractmethod
    def _seek(self, beyond: bytes | None) -> Seeker: ...
