"""The column families of a RocksDB database: one per namespace, with the namespaces that are open.

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
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from milestones.common.errors import StateError
from milestones.common.state.rocks import STATISTICS


class OpenedFamily(Protocol):
    """A library's open column family."""

    def property(self, name: str) -> int:
        """One of RocksDB's numbers. `StateError`."""
        ...

    def release(self) -> None:
        """Close the library's handles."""
        ...


Opened = TypeVar("Opened", bound=OpenedFamily)


def new_family(namespace: str) -> str:
    """A column family's name for `namespace` that was never used before."""
    return f"{namespace}#{uuid.uuid4().hex[:12]}"


def families(names: Iterable[str]) -> dict[str, str]:
    """The column families of a database, by namespace."""
    return {name.rpartition("#")[0]: name for name in names if "#" in name}


class FamilyTable(dict[str, Opened]):
    """The open namespaces of one database, by name. `names`: its column families as it was opened."""

    def __init__(self, path: object, names: Iterable[str]) -> None:
        super().__init__()
        self._path, self._families = path, families(names)
        self._guard = threading.Lock()

    @property
    def families(self) -> list[str]:
        """The names of all column families."""
        return list(self._families.values())

    def __missing__(self, namespace: str) -> Opened:
        raise StateError(f"bug: namespace {namespace!r} in {self._path} is written but was not opened")

    def open(self, namespace: str, create: Callable[[str], object], opener: Callable[[str], Opened]) -> Opened:
        """Open the namespace. `create` makes a column family of a name, `opener` opens one."""
        with self._guard:
            if namespace in self:
                return self[namespace]
            if namespace not in self._families:
                family = new_family(namespace)
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

    def close(self) -> None:
        """Close all namespaces."""
        with self._guard:
            for opened in self.values():
                opened.release()
            self.clear()
