"""The updates of a cached store that wait to be logged and emitted (`statestore_cache_max_bytes`, `StoreSpec.cached`).

A cached store writes into its layers like any other store, so that reads and scans see its writes. Only its changelog
records and its updates for downstream wait here, the last one per key, until a flush. The task flushes before each
commit, and when the waiting bytes exceed the cache's share. As in Kafka Streams, the key whose last write is the
longest ago is flushed first.

A flush may lead to a write to the same store. Such a write is logged immediately and isn't emitted, as if there were no
cache. (If its key already waits for a flush, the write waits, too.) Otherwise a flush that writes its own key would
never end. The same danger exists if several cached stores write to each other in their flushes. So flushes may be
nested as deep as the task has cached stores: in a deeper nesting, one store would be flushed within its own flush.

*Guarantees*: if a record fails, its updates are dropped. Each write is logged, or a later write of its key is logged.
The old value that the listener gets is the value that downstream has seen last.
*Assumes*: the task flushes before it freezes. Each update is emitted in a scope that is made for it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from milestones.common.records import Headers, RecordMetadata
from milestones.common.state.changelog import Layout, Log
from milestones.common.state.layers import Staging, StoreLayers

ENTRY_OVERHEAD_BYTES = 300
"""Memory of a waiting entry besides its key and value."""


class RecordOrigin(Protocol):
    """The properties of the current record that an update keeps until it is emitted."""

    timestamp: int
    headers: Headers | None
    flushes: int
    """The number of nested flushes that have led to the record."""
    most_flushes: int
    """The deepest nesting of flushes that is allowed: the number of the task's cached stores."""

    @property
    def metadata(self) -> RecordMetadata | None: ...


class PendingUpdate(NamedTuple):
    """A key's update that waits for its flush. `old`: the bytes that downstream has seen last. `flushes`: the number of
    nested flushes that have led to the key's first write. The other fields are those of the last write."""

    old: bytes | None
    size: int
    timestamp: int
    headers: Headers | None
    metadata: RecordMetadata | None
    flushes: int


class EmitBuffer:
    """The waiting updates of one cached store. `log` is the function that writes the store's changelog records."""

    def __init__(
        self, layout: Layout, layers: StoreLayers, touched: list[Staging], record: RecordOrigin, log: Log
    ) -> None:
        self.bytes: int = 0
        self._layout = layout
        self._layers, self._touched, self._record, self._log = layers, touched, record, log
        self._scope: dict[bytes, PendingUpdate] = {}
        self._waiting: dict[bytes, PendingUpdate] = {}
        self._flushing: bytes | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def mark(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        """Note a write before it is put into the layers. A cached store calls this as its `changelog.Log`."""
        scope, record = self._scope, self._record
        again = self._flushing is not None or record.flushes >= record.most_flushes
        if again and record.flushes and (key == self._flushing or key not in self._waiting):
            self._log(key, value, timestamp, headers)
            return
        if not scope:
            self._touched.append(self)
        before = scope.pop(key, None) or self._waiting.get(key)
        old = self._layers.get(key) if before is None else before.old
        size = len(key) + len(value or b"") + len(old or b"") + ENTRY_OVERHEAD_BYTES
        flushes = record.flushes if before is None else before.flushes
        scope[key] = PendingUpdate(old, size, timestamp, record.headers, record.metadata, flushes)

    def merge(self) -> None:
        waiting = self._waiting
        for key, entry in self._scope.items():
            before = waiting.pop(key, None)
            self.bytes += entry.size - (0 if before is None else before.size)
            waiting[key] = entry
        self._scope.clear()

    def drop_scope(self) -> None:
        self._scope.clear()

    def abort(self) -> None:
        """Drop all waiting updates."""
        self._scope.clear()
        self._waiting.clear()
        self.bytes = 0
        self._flushing = None

    def oldest(self) -> tuple[bytes, PendingUpdate]:
        """Return the next update to flush. The caller calls `done` or `stays` afterwards."""
        key, update = next(iter(self._waiting.items()))
        self._flushing = key
        return key, update

    def stays(self) -> None:
        """Keep the oldest update as the next one to flush, because its flush has failed."""
        self._flushing = None

    def log(self, key: bytes, entry: PendingUpdate) -> None:
        """Write the changelog record of a waiting update."""
        self._layout.log_stored(self._log, key, self._layers.get(key), entry.timestamp)

    def done(self, key: bytes) -> None:
        """Drop an update that has been logged and emitted."""
        self._flushing = None
        update = self._waiting.pop(key, None)
        if update is not None:
            self.bytes -= update.size
