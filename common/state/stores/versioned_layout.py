"""The layout of a versioned store. Each record of its changelog is one version of a key.

*Guarantees*: if the whole changelog is restored, at one go or in parts, the store has the versions that it had.
*Assumes*: each store of a task has its own layout object. Records of a changelog come in order.

*Why this way*: a new version changes the rows of its neighbours. So a restoration can't turn a record into a row by
itself: it puts each version into layers over the stored rows, with the same code as the store.
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
    """Takes the place of a store's `ReadCache` where no values are remembered."""

    def forget(self, key: bytes) -> None: ...

    def clear(self) -> None: ...


class VersionedLayout:
    """The layout of the rows of `versions.py`. Only the rows of latest versions count as entries of the changelog."""

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
                continue  # as in Kafka Streams: a version that is too old is logged, and not put
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
        """Yield the key and the time (as bytes) of each version that these writes have changed."""
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
        """Log the value that is valid at the time of a version that was rolled back.

        A version in the changelog can't be taken back, but a version of the same time replaces it. So the valid value
        is logged as if it were a version of that time."""
        history = VersionReader(stored, self._spec)
        key, (time,) = doubt[:-TIMESTAMP_BYTES], TIMESTAMP.unpack(doubt[-TIMESTAMP_BYTES:])
        newest = history.observed()
        held = history.at(key, time, newest, newest)
        log(LATEST + key, None if held is None else held.row[TIMESTAMP_BYTES:], time)

    def expired(self, observed: int) -> list[Span]:
        first = first_segment(observed, self._spec.retention_ms, self._spec.segment_ms)
        return [(b"", SEGMENT.pack(first))] if first else []
