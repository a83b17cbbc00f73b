"""The engine in memory: a dict for reads, and sorted keys from the first scan on.

Reads and writes cost what a dict costs. The first scan sorts the keys. From then on each new key is put in its place in
about a microsecond (`sortedcontainers`). A scan shows the entries that exist when it begins: a write during a scan
keeps the values that it replaces, and the scan reads these.

*Guarantees* and *assumes*: those of `engine.py`, but nothing is on a disk: content and offsets are lost on `close`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from sortedcontainers import SortedDict, SortedList

from milestones.common.errors import StateError
from milestones.common.state.engine import NOBODYS, Batch, BoundedScan, EngineMemory, Owners, Span
from milestones.common.state.engines.rocks import Contents, entries, nothing_between

# Memory of an entry besides its bytes: two bytes objects, the dict's slot, the key's place in the sorted list.
_ENTRY_OVERHEAD = 2 * 33 + 100 + 8


class MemoryEngines:
    """Opens engines in memory. These engines share no memory and use no directory."""

    name = "memory"

    def open(self, directory: Path, owners: Owners = NOBODYS, namespaces: Collection[str] = ()) -> MemoryEngine:
        return MemoryEngine(owners)

    def memory(self) -> EngineMemory:
        return EngineMemory()

    def for_many_tasks(self) -> MemoryEngines:
        return self

    def crowded(self) -> bool:
        return False


class _View:
    """A running scan, as a `Cursor`. `former`: the values that keys had at the scan's call, for keys that were written
    since and that the scan hasn't reached. None means that the key had no value."""

    def __init__(self, namespace: MemoryNamespace, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        self._namespace, self._reverse = namespace, reverse
        self._low, self._high, self._with_low = start, end, True  # the rest of the range; `_high` is never included
        self.former: SortedDict | None = None
        self.done = self.closed = False

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        with self._namespace.writing:
            found: list[tuple[bytes, bytes]] = []
            while not (found or self.done):
                found = self._chunk(count)
            return found

    def _chunk(self, count: int) -> list[tuple[bytes, bytes]]:
        """Return the entries of the next `count` keys, and of all keys between these that were written since the scan's
        call."""
        if self.closed:
            raise self._namespace.closed()
        data, former = self._namespace.data, self.former
        keys = list(islice(self._irange(self._namespace.order()), count))
        low, high, with_low = self._low, self._high, self._with_low
        if len(keys) < count:
            self.done = True
        elif self._reverse:
            low, with_low, self._high = keys[-1], True, keys[-1]
        else:
            high, self._low, self._with_low = keys[-1] + b"\x00", keys[-1], False
        if not former:
            return list(zip(keys, map(data.__getitem__, keys), strict=True))
        then = {key: data[key] for key in keys}
        then.update((key, former[key]) for key in former.irange(low, high, inclusive=(with_low, False)))
        return [(key, then[key]) for key in sorted(then, reverse=self._reverse) if then[key] is not None]

    def _irange(self, keys: SortedList) -> Iterator[bytes]:
        found: Iterator[bytes] = keys.irange(
            self._low, self._high, inclusive=(self._with_low, False), reverse=self._reverse
        )
        return found

    def keep(self, batch: Batch, data: Mapping[bytes, bytes]) -> None:
        """Keep the former values of the keys of `batch`, before the batch is written to `data`."""
        former = self.former = SortedDict() if self.former is None else self.former
        for key in batch:
            if key not in former and self._left(key):
                former[key] = data.get(key)

    def _left(self, key: bytes) -> bool:
        if self._low is not None and (key < self._low or (key == self._low and not self._with_low)):
            return False
        return self._high is None or key < self._high

    def close(self) -> None:
        with self._namespace.writing:
            self._namespace.views.discard(self)


class MemoryNamespace:
    """A `Namespace` in memory. `get` is the dict's own method. A write holds the lock `writing`. A scan holds it while
    it reads a chunk of entries."""

    name: str

    get: Callable[[bytes], bytes | None]

    def __init__(self, name: str, contents: Contents) -> None:
        self.name, self._contents = name, contents
        self.changelog_offset: int | None = None
        self.bytes: int = 0
        self.data: dict[bytes, bytes] = {}
        self.views: weakref.WeakSet[_View] = weakref.WeakSet()
        self.writing: threading.Lock = threading.Lock()
        self._keys: SortedList | None = None
        self.get = self.data.get

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if nothing_between(start, end):
            return iter(())
        view = _View(self, start, end, reverse)
        with self.writing:
            self.views.add(view)
        return entries(view)

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        with self.writing:
            if self.get == self._refuse:
                raise self.closed()
            keys = islice(self.order().irange(start, end, inclusive=(True, False)), limit) if start < end else ()
            return [(key, self.data[key]) for key in keys]

    def reader(self, beyond: bytes | None = None) -> BoundedScan:
        return self.scan_bounded

    def order(self) -> SortedList:
        """Return all keys, sorted. The first call sorts them, and from then on the list is kept up to date."""
        if self._keys is None:
            self._keys = SortedList(self.data)
        return self._keys

    def offset(self) -> int | None:
        return self.changelog_offset

    def approximate_entries(self) -> int:
        return len(self.data)

    def write(self, batch: Batch) -> None:
        with self.writing:
            for view in list(self.views):
                view.keep(batch, self.data)
            self._write(batch)

    def _write(self, batch: Batch) -> None:
        data, keys, changed = self.data, self._keys, 0
        for key, value in batch.items():
            old = data.get(key)
            if value is None:
                if old is not None:
                    del data[key]
                    changed -= len(key) + len(old) + _ENTRY_OVERHEAD
                    if keys is not None:
                        keys.remove(key)
            elif old is not None:
                data[key] = value
                changed += len(value) - len(old)
            else:
                data[key] = value
                changed += len(key) + len(value) + _ENTRY_OVERHEAD
                if keys is not None:
                    keys.add(key)
        self.bytes += changed

    def release(self) -> None:
        for view in list(self.views):
            view.closed = True
        self.data = {}
        self.get = self._refuse

    def closed(self) -> StateError:
        return self._contents.closed(self.name)

    def _refuse(self, key: bytes) -> bytes | None:
        raise self.closed()


class MemoryEngine:
    """An `Engine` in memory."""

    def __init__(self, owners: Owners = NOBODYS) -> None:
        self._contents = Contents("memory", owners)
        self._guard = threading.Lock()
        self._namespaces: dict[str, MemoryNamespace] | None = {}

    def open(self, namespace: str) -> MemoryNamespace:
        with self._guard:
            namespaces = self._opened()
            if namespace not in namespaces:
                namespaces[namespace] = MemoryNamespace(namespace, self._contents)
            return namespaces[namespace]

    def namespaces(self) -> list[str]:
        return list(self._opened())

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int], *, wait: bool = True) -> None:
        namespaces = self._opened()
        for name in (*batches, *offsets):
            if name not in namespaces:
                raise StateError(f"bug: namespace {name!r} in memory is written but was not opened")
        for name, batch in batches.items():
            namespaces[name].write(batch)
        for name, offset in offsets.items():
            namespaces[name].changelog_offset = offset

    def expire(self, namespace: str, spans: Collection[Span], *, wait: bool = True) -> None:
        written = self._opened()[namespace]
        for first, beyond in spans:
            written.write(dict.fromkeys(key for key, _ in written.scan(first, beyond)))

    def ingest(self, namespace: str, files: Sequence[Path]) -> Iterator[None]:
        from milestones.common.state.engines.sst import write_entries

        self._opened()
        return write_entries(lambda step: self.apply(step, {}), namespace, files)

    def wipe(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool = True) -> None:
        for namespace, span in spans.items():
            self.expire(namespace, (span,))
        self.apply(batches, {})

    def compact(self, namespace: str, span: Span) -> None:
        """Do nothing: a deleted entry takes no room."""

    def interrupt(self) -> None:
        """Do nothing: no compaction runs."""

    def sync(self) -> None:
        """Do nothing: nothing is on a disk."""

    def drop(self, namespace: str) -> None:
        with self._guard:
            dropped = self._opened().pop(namespace, None)
        if dropped is not None:
            dropped.release()

    def memory(self) -> EngineMemory:
        with self._guard:
            return EngineMemory(content=sum(namespace.bytes for namespace in self._opened().values()))

    def unflushed(self) -> Mapping[str, int]:
        return {}

    def flush(self, namespace: str) -> None:
        """Do nothing: there are no files."""

    def statistics(self) -> Mapping[str, int]:
        return {}

    def scanned(self) -> bool:
        with self._guard:
            return any(len(namespace.views) for namespace in (self._namespaces or {}).values())

    def close(self) -> None:
        with self._guard:
            namespaces, self._namespaces = self._namespaces, None
        for namespace in (namespaces or {}).values():
            namespace.release()

    def _opened(self) -> dict[str, MemoryNamespace]:
        if self._namespaces is None:
            raise self._contents.closed()
        return self._namespaces
