"""Stores in memory: a dict for reads, and sorted keys from the first scan on.

Reads and writes cost what a dict costs. Keys are put in order by the first scan; from then on each new key finds its
place in about a microsecond (`sortedcontainers`). A running scan keeps the entries of its call: a write that meets
one copies the dict for it.

*Guarantees* and *assumes*: those of `engine.py`, but for disk: content and offsets are lost on `close`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sortedcontainers import SortedList

from milestones.common.errors import StateError
from milestones.common.state.engine import Batch
from milestones.common.state.rocks import closed, nothing_between

# Of an entry beyond its bytes: two bytes objects, the dict's slot, the key's place in the order.
_ENTRY_OVERHEAD = 2 * 33 + 100 + 8
_CHECKPOINT_BATCH = 2000


class MemoryEngines:
    """Opens engines that share nothing and need no directory."""

    name = "memory"

    def open(self, directory: Path, store: str | None = None) -> MemoryEngine:
        return MemoryEngine(store)

    def resize(self, block_cache_bytes: int, all_write_buffers_bytes: int) -> None:
        """Nothing is shared."""

    def memory_bytes(self) -> int:
        return 0


class _View:
    """What a running scan reads: the live dict until a write replaces it by a copy; None once it is closed."""

    def __init__(self, data: dict[bytes, bytes]) -> None:
        self.data: dict[bytes, bytes] | None = data


class MemoryNamespace:
    """See `Namespace`. `get` is the dict's own."""

    get: Callable[[bytes], bytes | None]

    def __init__(self, name: str) -> None:
        self.name = name
        self.changelog_offset: int | None = None
        self.bytes = 0
        self._data: dict[bytes, bytes] = {}
        self._keys: SortedList | None = None
        self._views: weakref.WeakSet[_View] = weakref.WeakSet()
        self._writing = threading.Lock()
        self.get = self._data.get

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if nothing_between(start, end):
            return iter(())
        with self._writing:
            if self._keys is None:
                self._keys = SortedList(self._data)
            keys = self._keys.irange(start, end, inclusive=(True, False), reverse=reverse)
            view = _View(self._data)
            self._views.add(view)
        return self._entries(view, keys)

    def offset(self) -> int | None:
        return self.changelog_offset

    def approximate_entries(self) -> int:
        return len(self._data)

    def write(self, batch: Batch) -> None:
        with self._writing:
            if self._views:
                self._leave_to_views()
            self._write(batch)

    def _write(self, batch: Batch) -> None:
        data, keys, changed = self._data, self._keys, 0
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
        for view in list(self._views):
            view.data = None
        self._data = {}
        self.get = self._refuse

    def _leave_to_views(self) -> None:
        """The scans at work go on with a copy of the entries, and with the order as it is."""
        copy = dict(self._data)
        for view in list(self._views):
            view.data = copy
        self._views.clear()
        if self._keys is not None:
            self._keys = self._keys.copy()

    def _entries(self, view: _View, keys: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            data = view.data
            if data is None:
                raise closed(self.name)
            yield key, data[key]

    def _refuse(self, key: bytes) -> bytes | None:
        raise closed(self.name)


class MemoryEngine:
    """See `Engine`. A checkpoint of it is a RocksDB database, as that of the default engine."""

    def __init__(self, store: str | None = None) -> None:
        self._store = store
        self._namespaces: dict[str, MemoryNamespace] | None = {}

    def open(self, namespace: str) -> MemoryNamespace:
        namespaces = self._opened()
        if namespace not in namespaces:
            namespaces[namespace] = MemoryNamespace(namespace)
        return namespaces[namespace]

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        namespaces = self._opened()
        for name in (*batches, *offsets):
            if name not in namespaces:
                raise StateError(f"bug: namespace {name!r} in memory is written but was not opened")
        for name, batch in batches.items():
            namespaces[name].write(batch)
        for name, offset in offsets.items():
            namespaces[name].changelog_offset = offset

    def ingest(self, namespace: str, files: Sequence[Path]) -> Iterator[None]:
        from milestones.common.state.sst import write_entries

        self._opened()
        return write_entries(self, namespace, files)

    def drop(self, namespace: str) -> None:
        dropped = self._opened().pop(namespace, None)
        if dropped is not None:
            dropped.release()

    def checkpoint(self, directory: Path) -> None:
        from milestones.common.state.rocksdict_engine import RocksDictEngines

        if directory.exists():
            raise StateError(f"{directory}: a checkpoint needs a directory that doesn't exist yet")
        copy = RocksDictEngines().open(directory, self._store)
        try:
            for name, namespace in self._opened().items():
                copy.open(name)
                chunk: dict[bytes, bytes | None] = {}
                for key, value in namespace.scan(None, None):
                    chunk[key] = value
                    if len(chunk) == _CHECKPOINT_BATCH:
                        copy.apply({name: chunk}, {})
                        chunk = {}
                offset = namespace.offset()
                copy.apply({name: chunk}, {} if offset is None else {name: offset})
        finally:
            copy.close()

    def memory_bytes(self) -> int:
        return sum(namespace.bytes for namespace in self._opened().values())

    def statistics(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        namespaces, self._namespaces = self._namespaces, None
        for namespace in (namespaces or {}).values():
            namespace.release()

    def _opened(self) -> dict[str, MemoryNamespace]:
        if self._namespaces is None:
            raise closed(self._store or "in memory")
        return self._namespaces
