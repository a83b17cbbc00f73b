"""`SuppressBuffer`: the updates of a table that `suppress` keeps back, by key, and in the order of their times.

    keep ---> places (by key, in memory) ---pack, at the commit---> layers (bytes by key) ---> changelog
         +--> order (time and key), in memory: made from the layers when the store is opened

*Guarantees*: if an update of a key is already kept back, a new update replaces it, and takes over its time. Updates of
the same time are in the order of their keys' bytes. If a record fails, its changes of rows and order are undone. The
number of updates and their bytes are counted as in Kafka Streams. All other guarantees are those of `rows.py`.
*Assumes*: as `rows.py`.

*Why this way*: an update is often replaced before the commit. So the bytes of a row are made once per commit, as in
Kafka Streams. Until then its parts are kept, as bytes, so that user code can't change them. All that a row's bytes
could refuse is refused when its parts are made, in the record, where a handler can skip it.

*Concurrency*: a commit may take the rows in another thread, while a record of the task is in work. It takes what
finished records have left in `_changed`, and writes nothing but `UnpackedRow.row`. A reader that finds None there
finds the row in the layers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from milestones.common.records import Change, Headers, RecordMetadata
from milestones.common.serdes import Serde
from milestones.common.state.layers import ABSENT, ENTRY_OVERHEAD_BYTES
from milestones.common.state.stores.bytes_of_rows import key_part
from milestones.common.state.stores.rows import Rows, StoreParts
from milestones.common.state.stores.suppress_layout import (
    Context,
    check_time,
    decoded,
    decoded_headers,
    encoded_headers,
    encoded_parts,
    prior_of,
    size_of,
    size_of_parts,
)
from milestones.common.windowed import FOREVER, SessionWindowedSerde, WindowedSerde

PLACE_BYTES: Final = 450
"""Memory of a key of usual length in the order: the key, its `Place`, its places in the dictionary and the list."""

UNPACKED_BYTES: Final = 200
"""Memory of a row's parts besides their bytes: a tuple, the heads of bytes objects, numbers."""

REMEMBERED_BYTES: Final = 64
"""A prior value of at most this number of bytes is remembered with the key's place. Others are read from their rows."""

Row = tuple[int, "bytes | None", "RecordMetadata | None", "bytes | None", "bytes | None", "bytes | None"]
"""Timestamp, serialised headers and origin of an update, its prior, its old and its new value."""


class UnpackedRow:
    """The parts of a row until the layers have the row. Then `row` is None."""

    __slots__ = ("row",)

    def __init__(self, row: Row | None) -> None:
        self.row = row


IN_LAYERS: Final = UnpackedRow(None)

Place = tuple[int, int, Any, UnpackedRow]
"""Time and size of an update that is kept back, the bytes of its prior value, and its parts. `ABSENT` as prior value:
it must be taken from the parts, or read from the row."""


class Kept(NamedTuple):
    """An update that was kept back, in the form in which it is sent."""

    key: Any
    change: Change
    context: Context


class FirstRow(NamedTuple):
    """The serialised update that is sent next. `inner`: the key without its window. None as value: the row is gone."""

    inner: bytes
    key: bytes
    value: bytes | None
    timestamp: int
    headers: Headers | None


class SuppressBuffer(Rows):
    """The updates of a table that are kept back, by key."""

    __slots__ = ("_by_key", "_by_time", "_bytes", "_changed", "_changed_bytes", "_inner_end", "_packed", "_undo",
                 "first_time")  # fmt: skip

    first_time: int
    """The time of the first update. `FOREVER` if none is kept back."""

    def __init__(self, parts: StoreParts) -> None:
        self._forget()
        key = parts.key
        self._inner_end = -key.tail.size if isinstance(key, WindowedSerde | SessionWindowedSerde) else None
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        self._forget()
        for key, data in self._layers.scan():
            row = decoded(data)
            self._by_key[key] = row.time, size_of(key, row), _to_remember(row.prior), IN_LAYERS
        self._by_time.update((place[0], key) for key, place in self._by_key.items())
        self._bytes = sum(place[1] for place in self._by_key.values())
        self._find_first()

    def close(self) -> None:
        super().close()
        self._forget()

    def _forget(self) -> None:
        self._by_key: dict[bytes, Place] = {}
        self._by_time: Any = SortedList()
        self._undo: list[tuple[bytes, Place | None]] = []
        self._changed: dict[bytes, Place | None] = {}
        """The places that finished records have changed since the last commit. None: the key was removed."""
        self._changed_bytes = 0
        self._packed: dict[bytes, Place | None] = {}
        self._bytes, self.first_time = 0, FOREVER

    def held(self) -> tuple[int, int]:
        """Return the number of updates that are kept back, and their bytes. Any thread may ask."""
        return len(self._by_key), self._bytes

    def put(self, time: int, key: Any, change: Change, context: Context) -> None:
        """Keep an update back. `time` is ignored if an update of the same key is already kept back."""
        timestamp, headers, origin = context
        check_time(timestamp)
        data = self._key(key, "put")
        self.keep(time, data, self._part(change[0]), change[1], timestamp, headers, origin)

    def keep(
        self,
        time: int,
        key: bytes,
        new: bytes | None,
        old_value: Any,
        timestamp: int,
        headers: Headers | None,
        origin: RecordMetadata | None,
    ) -> None:
        """Keep an update back, as `put` does. The caller has serialised the key and the new value, but not the old one,
        and has checked the timestamp."""
        if new is not None and type(new) is not bytes:  # a serde may use its object once more
            new = bytes(new)
        prior = old = self._part(old_value)
        before = self._by_key.get(key)
        if before is None:
            check_time(time)
        else:
            time, former_size, prior, parts = before
            if prior is ABSENT:
                prior = self._prior(key, parts)
        size = size_of_parts(key, headers, origin, prior, old, new)
        row = timestamp, encoded_headers(headers) if headers else None, origin, prior, old, new
        undo = self._undo
        if not undo:
            self._layers.join(self, self)
        undo.append((key, before))
        self._by_key[key] = time, size, _to_remember(prior), UnpackedRow(row)
        if before is not None:
            self._bytes += size - former_size
            return
        self._bytes += size
        self._by_time.add((time, key))
        if time < self.first_time:
            self.first_time = time

    def part_of_keys(self, store: Any) -> slice | None:
        """Return the part of a local key of `store` that is the key here. None if this buffer serialises keys or values
        in another way than `store`, or if the rows of `store` go through its cache."""
        key, value = self._serdes
        return key_part(store, self._topic, key, value)

    def is_written_by(self, topic: str, key: Serde[Any], value: Serde[Any]) -> bool:
        """True if these serdes write the very bytes for `topic` that this buffer has."""
        own, own_value = self._serdes
        if value.serializer(topic) is not own_value.serializer(self._topic):
            return False
        for windowed in (WindowedSerde, SessionWindowedSerde):
            if isinstance(own, windowed) and isinstance(key, windowed):
                own, key = own.inner, key.inner
                break
        return key.serializer(topic) is own.serializer(self._topic)

    def first(self) -> Kept:
        """Return the first update by time. The buffer must not be empty."""
        key = self._by_time[0][1]
        row = self._by_key[key][3].row
        if row is None:
            context, _, old, new, _ = decoded(self._data(key))
        else:
            timestamp, headers, origin, _, old, new = row
            context = Context(timestamp, decoded_headers(headers) if headers else None, origin)
        change = None if new is None else self._decoded(new), None if old is None else self._decoded(old)
        return Kept(self._decode_key(key), change, context)

    def first_row(self) -> FirstRow:
        """Return the first update by time, as it is serialised. The buffer must not be empty."""
        key = self._by_time[0][1]
        row = self._by_key[key][3].row
        if row is None:
            (timestamp, headers, _), _, _, new, _ = decoded(self._data(key))
        else:
            timestamp, packed, _, _, _, new = row
            headers = decoded_headers(packed) if packed else None
        return FirstRow(key[: self._inner_end], key, new, timestamp, headers)

    def remove_first(self) -> None:
        """Remove the first update by time. The buffer must not be empty."""
        key = self._by_time[0][1]
        if not self._undo:
            self._layers.join(self, self)
        self._undo.append((key, self._by_key[key]))
        self._place(key, None)

    def prior(self, key: Any) -> Any:
        """Return the value that the table's row had before its first update that is kept back. `ABSENT` if no update of
        the key is kept back."""
        data = self._key(key, "prior")
        place = self._by_key.get(data)
        if place is None:
            return ABSENT
        prior = self._prior(data, place[3]) if place[2] is ABSENT else place[2]
        return None if prior is None else self._decoded(prior)

    def _prior(self, key: bytes, parts: UnpackedRow) -> bytes | None:
        """Return a prior value that isn't remembered."""
        row = parts.row
        return prior_of(self._data(key)) if row is None else row[3]

    def _data(self, key: bytes) -> bytes:
        data = self._layers.get(key)
        assert data is not None  # a key whose place has no parts
        return data

    def _part(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            data = self._encode_value(value)
            return data if type(data) is bytes else bytes(data)
        except Exception as error:
            self._refused(1, value, error)

    # -- the order

    def _place(self, key: bytes, place: Place | None) -> None:
        """Set the place of a key, whatever it was before. None removes the key."""
        before = self._by_key.pop(key, None)
        if before is not None:
            self._bytes -= before[1]
        if place is not None:
            self._by_key[key] = place
            self._bytes += place[1]
        if before is None and place is not None:
            self._by_time.add((place[0], key))
        elif before is not None and place is None:
            self._by_time.remove((before[0], key))
        self._find_first()

    def _find_first(self) -> None:
        self.first_time = self._by_time[0][0] if self._by_time else FOREVER

    # -- the current record

    def merge(self) -> None:
        """Keep the changes of the current record for the next commit."""
        changed, by_key, size = self._changed, self._by_key, self._changed_bytes
        for key, _ in self._undo:
            former, place = changed.get(key), by_key.get(key)
            if former is not None:
                size -= former[1]
            if place is not None:
                size += place[1]
            changed[key] = place
        self._changed_bytes = size
        self._undo.clear()

    def drop_scope(self) -> None:
        """Undo the changes of the current record."""
        for key, before in reversed(self._undo):
            self._place(key, before)
        self._undo.clear()

    # -- the commit, perhaps in another thread

    def pack(self) -> dict[bytes, bytes | None]:
        """Return the rows that finished records have changed since the last commit, None for a deleted row."""
        rows: dict[bytes, bytes | None] = {}
        for key, place in self._changed.items():
            if place is None:
                rows[key] = None
                continue
            row = place[3].row
            assert row is not None  # the place was made since the last commit
            timestamp, headers, origin, prior, old, new = row
            rows[key] = encoded_parts(timestamp, headers, origin, prior, old, new, place[0])
        self._packed = self._changed
        self._changed, self._changed_bytes = {}, 0
        return rows

    def packed(self) -> None:
        """Drop the parts of the rows that `pack` has returned, because the layers have these rows now."""
        for place in self._packed.values():
            if place is not None:
                place[3].row = None
        self._packed = {}

    def unpacked_bytes(self) -> int:
        """Estimate the memory of these rows. Any thread may ask."""
        return len(self._changed) * (ENTRY_OVERHEAD_BYTES + UNPACKED_BYTES) + self._changed_bytes


def _to_remember(prior: bytes | None) -> Any:
    return prior if prior is None or len(prior) <= REMEMBERED_BYTES else ABSENT
