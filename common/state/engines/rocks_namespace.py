"""A column family as a namespace, and the readers of it, for both RocksDB engines.

*Guarantees*: a read finds what was written before it. What is released refuses to be read.
*Assumes*: the threads' part of the contract in `engine.py`; `written` is called after each write.
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
    """`scan_bounded`, for one thread. It keeps its seeker from one read to the next: only a write changes a column
    family, and writes are rare.

    *Concurrency*: a thread that writes changes the namespace's `state` when all of it is there, and drops the seeker,
    which would hold what the write replaced. A thread that reads notes the state before it makes a seeker: one that
    misses a write has another one.
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
            self._namespace.seeking.add(self)  # a write that is too early for it is followed by one that drops it
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
