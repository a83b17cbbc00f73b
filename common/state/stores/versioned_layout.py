"""The layout of a versioned store: each record of its changelog is a version, none takes the place of another key's.

*Guarantees*: restoring the whole changelog gives the versions that the store had, also when it is done in parts.
*Assumes*: one per store and task; records of a changelog come in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milestones.common.records import UNKNOWN_TIMESTAMP
from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES, ChangelogRecord, Log, OneRowPerRecord
from milestones.common.state.engine import EMPTY, Namespace, Span
from milestones.common.state.layers import StoreLayers
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.versions import LATEST, OBSERVED, VersionReader, Versions
from milestones.common.state.stores.window_layouts import SEGMENT, first_segment
from milestones.common.writable import first_timestamp


class NothingRemembered:
    """The remembered values of no store."""

    def forget(self, key: bytes) -> None: ...

    def clear(self) -> None: ...


class VersionedLayout:
    """See `versions.py` for the rows. Of these the latest versions count as entries of the changelog."""

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec
        self.restored_time = UNKNOWN_TIMESTAMP

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        layers = StoreLayers(stored, [], NothingRemembered())
        versions = Versions(layers, self._spec)
        observed = max(self.restored_time, versions.observed())
        for record in records:
            key, time = record.key(), record.timestamp()[1] or first_timestamp()
            if key is None or versions.too_old(time, observed):
                continue  # as in Kafka Streams, which logs what it didn't put, too
            observed = max(observed, time)
            versions.put(key, record.value(), time, observed)
        if observed >= 0:
            versions.observe(observed)
        self.restored_time = observed
        layers.merge()
        layers.freeze()
        return dict(layers.frozen() or {})

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        if stored is None:
            log(key, None, timestamp)
        else:
            log(key, stored[TIMESTAMP_BYTES:], TIMESTAMP.unpack_from(stored)[0])

    log_rows = OneRowPerRecord.log_rows

    def key_of(self, local: bytes) -> bytes:
        return local[len(LATEST) :]

    def logs(self, local: bytes) -> bool:
        return local.startswith(LATEST)

    def doubtful(self, writes: Iterable[tuple[bytes, bytes | None]], stored: Namespace) -> Iterator[bytes]:
        """Key and time of each version that the writes are of."""
        for local, value in writes:
            if local.startswith(LATEST):
                row = value or stored.get(local)
                if row is not None:
                    yield local[len(LATEST) :] + row[:TIMESTAMP_BYTES]
            elif not local.startswith(OBSERVED):
                key = local[SEGMENT.size : -TIMESTAMP_BYTES]
                yield key + local[-TIMESTAMP_BYTES:]
                if value is not None:
                    yield key + value[1 : 1 + TIMESTAMP_BYTES]

    def log_again(self, log: Log, doubt: bytes, stored: Namespace, timestamp: int) -> None:
        """Log what holds at the time of a version that isn't there, as if it were one: a version that is in the
        changelog can be replaced, not taken back."""
        history = VersionReader(stored, self._spec)
        key, (time,) = doubt[:-TIMESTAMP_BYTES], TIMESTAMP.unpack(doubt[-TIMESTAMP_BYTES:])
        newest = history.observed()
        held = history.at(key, time, newest, newest)
        log(LATEST + key, None if held is None else held.row[TIMESTAMP_BYTES:], time)

    def expired(self, observed: int) -> list[Span]:
        first = first_segment(observed, self._spec.retention_ms, self._spec.segment_ms)
        return [(b"", SEGMENT.pack(first))] if first else []
