"""What a cached store has still to log and to emit (`statestore_cache_max_bytes` above 0, `StoreSpec.cached`).

A cached store stages its writes like any other, so that reads and scans see them. Only its changelog records and its
updates for downstream wait here, the last one per key, until a flush: before each commit, and when the waiting bytes
exceed the cache's share. Keys are flushed in the order of their last write, the least recently used first, as Kafka
Streams flushes them.

*Guarantees*: what a failed record marked is dropped with it. The old value given to the listener is the one that
downstream has seen.
*Assumes*: the task flushes before it freezes, each `emit` in a scope of its own.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from milestones.common.records import Headers, RecordMetadata
from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES, Log
from milestones.common.state.layers import Staging, StoreLayers
from milestones.common.state.spec import StoreKind

ENTRY_OVERHEAD_BYTES = 300
"""Memory of a waiting entry besides its key and value."""


class Origin(Protocol):
    """The record in work, as far as an update that is emitted later has to know it."""

    timestamp: int
    headers: Headers | None

    @property
    def metadata(self) -> RecordMetadata | None: ...


class Waiting(NamedTuple):
    """A key's update until its flush: the bytes downstream has seen, and the record of the last write."""

    old: bytes | None
    size: int
    timestamp: int
    headers: Headers | None
    metadata: RecordMetadata | None


class EmitBuffer:
    """The waiting updates of one cached store. `log` is the store's true changelog."""

    def __init__(
        self, kind: StoreKind, layers: StoreLayers, touched: list[Staging], record: Origin, log: Log
    ) -> None:
        self.bytes = 0
        self._timestamped = kind == "timestamped-key-value"
        self._layers, self._touched, self._record, self._log = layers, touched, record, log
        self._scope: dict[bytes, Waiting] = {}
        self._waiting: dict[bytes, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def mark(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """The store is about to stage this write: what it calls instead of its changelog (`changelog.Log`)."""
        scope, record = self._scope, self._record
        if not scope:
            self._touched.append(self)
        before = scope.pop(key, None) or self._waiting.get(key)
        old = self._layers.get(key) if before is None else before.old
        size = len(key) + len(value or b"") + len(old or b"") + ENTRY_OVERHEAD_BYTES
        scope[key] = Waiting(old, size, timestamp, record.headers, record.metadata)

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
        """Nothing waits."""
        self._scope.clear()
        self._waiting.clear()
        self.bytes = 0

    def oldest(self) -> tuple[bytes, Waiting]:
        """The next one to flush."""
        return next(iter(self._waiting.items()))

    def log(self, key: bytes, entry: Waiting) -> None:
        """Write the changelog record of a waiting update."""
        local = self._layers.get(key)
        if local is None or not self._timestamped:
            self._log(key, local, entry.timestamp)
        else:
            self._log(key, local[TIMESTAMP_BYTES:], TIMESTAMP.unpack_from(local)[0])

    def done(self, key: bytes) -> None:
        """The update has been logged and emitted."""
        update = self._waiting.pop(key, None)
        if update is not None:
            self.bytes -= update.size
