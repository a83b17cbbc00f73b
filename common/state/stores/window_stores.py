"""Window stores as user code and operators see them: values by key and start of a window.

*Guarantees*: those of `segmented_rows.py`; the time of a row is the start of its window.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, overload

from milestones.common.errors import SerializationError
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.rows import StoreParts, TimedRows
from milestones.common.state.stores.segmented_rows import HEAD, SegmentedRows
from milestones.common.state.stores.sequences import LAST_SEQUENCE, Sequences
from milestones.common.state.stores.window_layouts import SEGMENT, WINDOWS, TimeOrder
from milestones.common.type_variables import K, V
from milestones.common.windowed import FOREVER, START_AND_SEQUENCE, Windowed

Row = tuple[Any, int, int]
"""Key, start and sequence: what a row is kept by."""


class _WindowRows(SegmentedRows[K, V]):
    """Rows by key, start and sequence. `window_ms`: the size of the windows, None for no end."""

    __slots__ = ("_duplicates", "_sequences", "window_ms")

    tail: ClassVar[struct.Struct] = START_AND_SEQUENCE
    order: ClassVar[TimeOrder] = WINDOWS

    def __init__(self, parts: StoreParts) -> None:
        self._duplicates = parts.spec.duplicates
        if self._duplicates:
            self._sequences = Sequences(parts.spec.name, parts.cells)
        self.window_ms: int | None = parts.spec.window_ms or None
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        encode, decode, segment_ms, size_ms = self._encode_key, self._decode_key, self._segment_ms, self.window_ms
        segment, pack, unpack, length = SEGMENT.pack, self.tail.pack, self.tail.unpack_from, self.tail.size

        def encode_row(row: Row) -> bytes:
            key, start, sequence = row
            return segment(start // segment_ms) + encode(key) + pack(start, sequence)

        def decode_row(local: bytes) -> Windowed[Any]:
            start = unpack(local, len(local) - length)[0]
            return Windowed(decode(local[HEAD:-length]), start, FOREVER if size_ms is None else start + size_ms)

        self._encode_key, self._decode_key = encode_row, decode_row

    def _next_sequence(self, value: Any) -> int:
        """The sequence number of a put."""
        return self._sequences.following(value) if self._duplicates else 0

    def _last_sequence(self) -> int:
        """That of the value that was put last."""
        return self._sequences.last() if self._duplicates else 0

    def _of(
        self, key: Any, call: str, first: int, last: int, *, reverse: bool = False
    ) -> Iterable[tuple[bytes, bytes]]:
        """Local keys and values of the rows of `key` with a start of these (both included), as of this call."""
        data = self._key_alone(key, call)
        first, last = max(first, self._observed.value - self._retention_ms + 1, 0), min(last, FOREVER - 1)
        if last < first:
            return ()
        tails = self.tail.pack(first, 0), self.tail.pack(last, LAST_SEQUENCE)
        return self._of_key(data, (first, last), tails, reverse=reverse)

    def _rows(
        self, call: str, first_key: Any, last_key: Any, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """Rows with a key of these (None: unbounded, both included) and a start of these (both included)."""
        keys = self._keys(first_key, last_key, call)
        first, last = max(first, self._earliest, 0), min(last, FOREVER - 1)
        tails = self.tail.pack(first, 0), self.tail.pack(max(0, last), LAST_SEQUENCE)
        return self._found(keys, (first, last), tails, lambda start, _: first <= start <= last, reverse=reverse)


class WindowStore(_WindowRows[K, V]):
    """Values by key and start of a window."""

    __slots__ = ()

    def put(self, key: K, value: V | None, start: int) -> bool:
        """Set the value of `key` in the window that starts at `start` (ms); None deletes. In a store of duplicates one
        more value is added, and None does nothing. Returns False when the window is gone already."""
        self._given(key, "put")
        if self._duplicates:
            return self.put_encoded(key, self.encode(value), start)
        if not self._may_put(start):
            return False
        place = self._place((key, start, self._next_sequence(value)))
        self._put_at(place, value)
        if self._closing:
            self._note_closing(place, there=value is not None)
        return True

    def encode(self, value: V | None) -> bytes | None:
        """The bytes of a value, for `put_encoded`; None for None."""
        if value is None:
            return None
        try:
            return self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)

    def put_encoded(self, key: K, data: bytes | None, start: int) -> bool:
        """`put`, into a store of duplicates, of a value that was encoded before."""
        sequence = self._next_sequence(data)
        if data is None:
            return True
        if not self._may_put(start):
            return False
        place = self._place((key, start, sequence))
        self._log(place, data, self._record.timestamp)
        self._layers.put(place, data)
        self._read_cache.forget(place)  # it is read by ranges of rows: there is no use in remembering it
        return True

    @overload
    def fetch(self, key: K, first: int) -> V | None: ...

    @overload
    def fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, V]]: ...

    def fetch(self, key: K, first: int, last: int | None = None) -> V | Iterator[tuple[int, V]] | None:
        """The value of `key` in the window that starts at `first`, None when absent, and in a store of duplicates
        unless it was put last of all, in this process; with `last`, an iterator of (start, value) over the windows that
        start from `first` to `last`, both included, in the order of time."""
        self._given(key, "fetch")
        if last is None:
            row: Any = (key, first, self._last_sequence())
            return None if first < max(0, self._earliest) else self._get_row(row)
        return self._starts(self._of(key, "fetch", first, last))

    def backward_fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, V]]:
        """`fetch` of the windows from `first` to `last`, the last one first."""
        return self._starts(self._of(key, "backward_fetch", first, last, reverse=True))

    def fetch_range(
        self, first_key: K | None, last_key: K | None, first: int, last: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """(window of a key, value) of all keys from `first_key` to `last_key` (None: unbounded, both included) and all
        starts from `first` to `last`."""
        return self._shown(self._rows("fetch_range", first_key, last_key, first, last))

    def backward_fetch_range(
        self, first_key: K | None, last_key: K | None, first: int, last: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """`fetch_range`, last first."""
        return self._shown(self._rows("fetch_range", first_key, last_key, first, last, reverse=True))

    def fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed[K], V]]:
        """(window of a key, value) of all keys and all starts from `first` to `last`."""
        return self._shown(self._rows("fetch_all", None, None, first, last))

    def backward_fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed[K], V]]:
        """`fetch_all`, last first."""
        return self._shown(self._rows("fetch_all", None, None, first, last, reverse=True))

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Every row that isn't gone."""
        return self.fetch_all(0, FOREVER - 1)

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        """`all`, last first."""
        return self.backward_fetch_all(0, FOREVER - 1)

    def _shown(self, rows: Iterator[tuple[Windowed[K], V]]) -> Iterator[tuple[Windowed[K], V]]:
        """Rows as user code sees them."""
        return rows

    def _starts(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, V]]:
        """Starts and values, as user code sees them, of local rows."""
        return self._rows_by_start(rows)

    def _rows_by_start(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, Any]]:
        unpack, length, decoded = self.tail.unpack_from, self.tail.size, self._decoded
        for local, value in rows:
            yield unpack(local, len(local) - length)[0], decoded(value)


class TimestampedWindows(TimedRows[K, V], WindowStore[K, V]):
    """Rows with their time, by key and start of a window. Inside, and for operators (`fetch_raw`, `put_window`), a row
    is a plain tuple; user code sees a `V`."""

    __slots__ = ()

    def place(self, key: Any, start: int) -> bytes:
        """The serialised key of `key` in the window that starts at `start`, for `row_at` and `put_at`."""
        try:
            return self._encode_key((key, start, 0))
        except Exception as error:
            self._refused(0, key, error)

    def row_at(self, place: bytes, start: int) -> tuple[Any, int] | None:
        """(value, timestamp) at `place`, in the window that starts at `start`, None when absent."""
        row: Any = self._row_at(place) if start > self._observed.value - self._retention_ms else None
        return row  # type: ignore[no-any-return]  # of the value serde's type, and a time

    def fetch_raw(self, key: Any, start: int) -> tuple[Any, int] | None:
        """(value, timestamp) of `key` in the window that starts at `start`, None when absent."""
        return self.row_at(self._place((key, start, 0)), start)

    def get_raw(self, windowed: Any) -> Any:
        """(value, timestamp) of a window of a key, a `Windowed`, None when absent."""
        return self.fetch_raw(windowed.key, windowed.start)

    def rows(self, key: Any, first: int, last: int) -> Iterator[tuple[int, tuple[Any, int]]]:
        """(start, (value, timestamp)) of the windows of `key` that start from `first` to `last`, ascending."""
        return self._rows_by_start(self._of(key, "fetch", first, last))

    def backward_rows(self, key: Any, first: int, last: int) -> Iterator[tuple[int, tuple[Any, int]]]:
        """`rows`, the last one first."""
        return self._rows_by_start(self._of(key, "fetch", first, last, reverse=True))

    def put_at(self, place: bytes, value: Any, timestamp: int, start: int) -> bool:
        """Set value and time at `place`, in the window that starts at `start`; a value of None deletes, at that time.
        Returns False when the window is gone already."""
        if not self._may_put(start):
            return False
        if value is None:
            self._delete(place, timestamp)
        else:
            self._put_timed(place, value, timestamp)
        if self._closing:
            self._note_closing(place, there=value is not None)
        return True

    def put_window(self, key: Any, value: Any, timestamp: int, start: int) -> bool:
        """`put_at` of `key` in the window that starts at `start`."""
        return self.put_at(self._place((key, start, 0)), value, timestamp, start)


class TimestampedWindowStore(TimestampedWindows[K, ValueAndTimestamp[V]]):
    """Values with their time, `ValueAndTimestamp`, by key and start of a window. Windowed aggregations keep their rows
    in it."""

    __slots__ = ()

    def put(self, key: K, value: ValueAndTimestamp[V] | None, start: int) -> bool:
        """Set the value of `key`, a `ValueAndTimestamp`, in the window that starts at `start`; None, or one without a
        value, deletes. Returns False when the window is gone already."""
        self._given(key, "put")
        if value is None:
            return self.put_window(key, None, self._record.timestamp, start)
        if isinstance(value, ValueAndTimestamp):
            return self.put_window(key, value.value, value.timestamp, start)
        raise SerializationError(
            f"store {self.name} of task {self._task} keeps timestamps: put a ValueAndTimestamp(value, timestamp in "
            f"ms), not a {type(value).__qualname__}"
        )

    @overload
    def fetch(self, key: K, first: int) -> ValueAndTimestamp[V] | None: ...

    @overload
    def fetch(self, key: K, first: int, last: int) -> Iterator[tuple[int, ValueAndTimestamp[V]]]: ...

    def fetch(
        self, key: K, first: int, last: int | None = None
    ) -> ValueAndTimestamp[V] | Iterator[tuple[int, ValueAndTimestamp[V]]] | None:
        """`WindowStore.fetch`, of `ValueAndTimestamp`s."""
        self._given(key, "fetch")
        if last is not None:
            return self._starts(self._of(key, "fetch", first, last))
        row = self.fetch_raw(key, first)
        return None if row is None else ValueAndTimestamp(*row)

    def _shown(
        self, rows: Iterator[tuple[Windowed[Any], Any]]
    ) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        return ((windowed, ValueAndTimestamp(*row)) for windowed, row in rows)

    def _starts(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[int, ValueAndTimestamp[V]]]:
        return ((start, ValueAndTimestamp(*row)) for start, row in self._rows_by_start(rows))
