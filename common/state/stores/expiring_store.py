"""`ExpiringStore`: a key-value store whose entries expire after a time to live (`ttl`), by the time of the records.

    0 | key             -> time (8), value
    1 | time (8) | key  -> nothing
    2                   -> time (8)          the highest time that the store has seen

*Guarantees*: the store's time is the highest time of the records that have read or written the store. An entry expires
when the store's time is later than the entry's time by more than the time to live. A restart never makes an expired
entry visible, because the metadata of the committed offsets contains the store's time, even if only reads have raised
it. An entry's time is that of the input record that put it. An entry that a punctuation puts has the store's time,
because there is no input record. Each write deletes a bounded number of entries that had expired at the last commit,
from the changelog, too. All other guarantees are those of `rows.py`.
*Assumes*: as `rows.py`. Times are positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from milestones.common.records import UNKNOWN_TIMESTAMP
from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES, ChangelogRecord, Log, OneRowPerRecord
from milestones.common.state.engine import EMPTY, Namespace
from milestones.common.state.layers import StoreLayers
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.rows import StoreParts, TimedRows
from milestones.common.state.stores.versioned_layout import NothingRemembered
from milestones.common.state.times import time_name
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER
from milestones.common.writable import FIRST_TIMESTAMP, first_timestamp

VALUES: Final = b"\x00"
BY_TIME: Final = b"\x01"
HIGHEST: Final = b"\x02"

AT_ONCE: Final = 100
"""The most expired entries that one write deletes."""

_pack, _unpack = TIMESTAMP.pack, TIMESTAMP.unpack_from


def placed(layers: StoreLayers, key: bytes, time: int | None) -> None:
    """Update the index by time for a write of an entry. `time`: the entry's new time, None for a deletion. Called
    before the write."""
    former = layers.get(VALUES + key)
    if former is not None:
        layers.put(BY_TIME + former[:TIMESTAMP_BYTES] + key, None)
    if time is not None:
        layers.put(BY_TIME + _pack(time) + key, b"")


class ExpiringStore(TimedRows[K, V], KeyValueStore[K, V]):
    """Values by key. Each entry expires after the time to live."""

    __slots__ = ("_cells", "_first_time", "_highest", "_highest_name", "_ttl_ms")

    def __init__(self, parts: StoreParts) -> None:
        name = parts.spec.name
        self._ttl_ms, self._cells = parts.spec.ttl_ms, parts.cells
        self._highest_name = time_name(f"store {name} highest time")
        self._highest = parts.cells.time(self._highest_name)
        self._first_time = parts.cells.cell(f"store {name} first time", FOREVER)
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        encode, decode = self._encode_key, self._decode_key
        self._encode_key = lambda key: VALUES + encode(key)
        self._decode_key = lambda local: decode(local[len(VALUES) :])
        stored = self._layers.get(HIGHEST)
        if stored is not None and not self._cells.exact:
            self._highest.back(max(self._highest.value, _unpack(stored)[0]))
        self._first_time.back(self._find_first())

    def get(self, key: K) -> V | None:
        row: Any = self.get_raw(key)
        self._note_time()
        return None if row is None or row[1] < self._over_before() else row[0]

    def put(self, key: K, value: V | None) -> None:
        local = self._key(key, "put")
        if value is not None:
            self._encodable(value)
        self._note_time()
        time = self._time()
        placed(self._layers, local[len(VALUES) :], None if value is None else time)
        if value is None:
            self._delete(local, time)
        else:
            self.put_raw(key, value, time)
            if time < self._first_time.value:
                self._first_time.set(time)
        self._delete_what_is_over()

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, V]]:
        if serializer is None:
            return super().prefix_scan(prefix)
        return super().prefix_scan(prefix, lambda value: VALUES + serializer(value))

    def approximate_num_entries(self) -> int:
        return super().approximate_num_entries() // 2  # each entry has a second row, in the index by time

    def _scan_rows(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        self._note_time()
        return super()._scan_rows(start or VALUES, end or BY_TIME, reverse=reverse)

    def _entries(self, scanned: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        first = self._over_before()
        return (
            (self._decode_key(local), self._decoded(row)[0]) for local, row in scanned if _unpack(row)[0] >= first
        )

    def _encodable(self, value: V) -> None:
        try:
            self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)

    def _over_before(self) -> int:
        """Return the time before which all entries have expired."""
        return int(self._highest.value) - self._ttl_ms

    def _time(self) -> int:
        """Return the time of a write: that of the current input record, or the store's time in a punctuation."""
        record = self._record
        time = self._highest.value if record.metadata is None else record.timestamp
        return time if time > 0 else first_timestamp()

    def _note_time(self) -> None:
        """Raise the store's time to that of the current input record. A punctuation doesn't raise it, because its time
        may be that of another clock."""
        self._check_open()
        record = self._record
        if record.metadata is not None and record.timestamp > self._highest.value:
            self._highest.set(record.timestamp)
            self._layers.put(HIGHEST, _pack(record.timestamp))

    def _delete_what_is_over(self) -> None:
        """Delete entries that have expired now and had expired at the last commit.

        After a crash under `at_least_once`, records since the last commit are processed once more. These records must
        find the entries that hadn't expired at that commit."""
        first = min(self._over_before(), self._cells.confirmed_time(self._highest_name) - self._ttl_ms)
        if self._first_time.value >= first:
            return
        over = [local for local, _ in islice(self._layers.scan(BY_TIME, BY_TIME + _pack(max(0, first))), AT_ONCE)]
        for local in over:
            self._layers.put(local, None)
            self._delete(VALUES + local[len(BY_TIME) + TIMESTAMP_BYTES :], self._time())
        self._first_time.set(self._find_first())

    def _find_first(self) -> int:
        found = next(self._layers.scan(BY_TIME, HIGHEST), None)
        return FOREVER if found is None else int(_unpack(found[0], len(BY_TIME))[0])


class ExpiringLayout(OneRowPerRecord):
    """The layout of an expiring store. An entry's time is the timestamp of its changelog record."""

    def __init__(self, _: StoreSpec) -> None:
        self._highest = UNKNOWN_TIMESTAMP

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        layers = StoreLayers(stored, [], NothingRemembered())
        highest = layers.get(HIGHEST)
        self._highest = max(self._highest, -1 if highest is None else _unpack(highest)[0])
        for record in records:
            key, value, time = record.key(), record.value(), record.timestamp()[1] or first_timestamp()
            if key is not None:
                placed(layers, key, None if value is None else time)
                layers.put(VALUES + key, None if value is None else _pack(time) + value)
                self._highest = max(self._highest, time)
        if self._highest >= 0:
            layers.put(HIGHEST, _pack(self._highest))
        layers.merge()
        layers.freeze()
        return dict(layers.frozen() or {})

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        if stored is None:
            log(key, None, timestamp)
        else:
            log(key, stored[TIMESTAMP_BYTES:], _unpack(stored)[0])

    def log_again(self, log: Log, doubt: bytes, stored: Namespace, timestamp: int) -> None:
        """Log the stored value. A deletion is logged at the store's time.

        A deletion at the time of the wall clock would raise the store's time to it in a restoration, and all entries
        might expire."""
        highest = stored.get(HIGHEST)
        time = FIRST_TIMESTAMP if highest is None else int(_unpack(highest)[0])
        self.log_stored(log, doubt, stored.get(doubt), time)

    def key_of(self, local: bytes) -> bytes:
        return local[len(VALUES) :]

    def logs(self, local: bytes) -> bool:
        return local.startswith(VALUES)
