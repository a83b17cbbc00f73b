"""Rows that are gone after a time: what window and session stores have in common.

A row's key is a key of the user's and a *tail*, two numbers, of which the row's time follows.

*Guarantees*: a row whose time is further than the retention before the highest time that the store has seen is
invisible, and a write of such a row is dropped: it is neither logged nor staged. A read shows the rows of the moment of
its call, uncommitted ones included. The order is that of Kafka Streams: of one key by the tails; of several keys by
segments of time, then by the keys' bytes; of a store in memory by time, then by the keys' bytes. The rest as `rows.py`.
*Assumes*: as `rows.py`. Times are not negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

from milestones.common.state.stores.rows import Rows, StoreParts
from milestones.common.state.stores.window_layouts import (
    BY_TIME,
    SEGMENT,
    TimeOrder,
    by_time_between,
    present_segments,
    span,
)
from milestones.common.state.times import observed_time
from milestones.common.type_variables import K, V
from milestones.common.windowed import Windowed

Found = Iterator[tuple[Windowed[Any], Any]]

HEAD = SEGMENT.size


class SegmentedRows(Rows[K, V]):
    """Rows by key and tail. A subclass's `open` says how both are encoded."""

    __slots__ = (
        "_cells", "_closing", "_encode_alone", "_in_memory", "_newest_segment", "_observed", "_retention_ms",
        "_segment_ms",
    )  # fmt: skip

    tail: ClassVar[struct.Struct]
    order: ClassVar[TimeOrder]

    _shown_value = Rows._decoded
    """A local value as user code sees it."""

    def __init__(self, parts: StoreParts) -> None:
        spec = parts.spec
        self._retention_ms, self._segment_ms, self._closing = spec.retention_ms, spec.segment_ms, spec.closing
        self._observed = parts.cells.time(observed_time(spec.name))
        self._cells, self._in_memory = parts.cells, not spec.persistent
        self._newest_segment = 0
        """Of the rows that the store was opened with, which may be ahead of its time."""
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        self._encode_alone = self._encode_key
        newest = next(self._layers.scan(None, BY_TIME, reverse=True), None)
        if newest is not None:
            (self._newest_segment,) = SEGMENT.unpack_from(newest[0])
            begins = self._newest_segment * self._segment_ms
            # Where no commit has the time, as those of Java: what was gone must not be seen again.
            if self._observed.value < begins and not self._cells.exact:
                self._cells.begin(observed_time(self.name), begins)

    def close(self) -> None:
        super().close()
        self._encode_alone = self._not_open

    def closed_between(self, first: int, last: int) -> Found:
        """Rows with a time of these (both included), by time, then by the keys' bytes; of a `closing` store. Also rows
        that the newest write has made invisible: they close with it."""
        self._check_open()
        for local, _ in self._layers.scan(*by_time_between(first, last)):
            key = self.order.row_of(local)
            row = SEGMENT.pack(self.order.time_of(key) // self._segment_ms) + key
            value = self._layers.get(row)
            if value is not None:
                yield self._decode_key(row), self._decoded(value)

    @property
    def _earliest(self) -> int:
        """The first time that a reader may see."""
        return int(self._observed.value) - self._retention_ms + 1

    def _may_put(self, time: int) -> bool:
        """Note the time of a write; False when its row is gone already."""
        observed = self._observed.value
        if time >= observed:
            if time > observed:
                self._observed.set(time)
            return True
        # `first_segment`
        return bool(time // self._segment_ms >= (observed - self._retention_ms) // self._segment_ms)

    def _note_closing(self, place: bytes, *, there: bool) -> None:
        """Update the order by time for a write to `place`, a local key of a `closing` store."""
        self._layers.put(self.order.place(place[HEAD:]), b"" if there else None)

    def _place(self, row: Any) -> bytes:
        """The local key of a row."""
        try:
            return self._encode_key(row)
        except Exception as error:
            self._refused(0, row[0], error)

    def _put_unread(self, place: bytes, value: Any) -> None:
        """Set the value at `place`, of a store that is read by ranges of rows: there is no use in remembering it."""
        timestamp = self._record.timestamp
        if value is None:
            return self._delete(place, timestamp)
        try:
            encoded = self._encode_value(value)
        except Exception as error:
            self._refused(1, value, error)
        self._log(place, encoded, timestamp)
        self._layers.put(place, encoded)
        self._read_cache.forget(place)
        return None

    def _of_key(
        self, key: bytes, times: tuple[int, int], tails: tuple[bytes, bytes], *, reverse: bool = False
    ) -> Iterable[tuple[bytes, bytes]]:
        """Local keys and values of the rows of a key, in the segments of these times, with a tail of these (both
        included), as of this call, in the order of the tails."""
        first, last = tails
        numbers = self._segments(times)
        found: list[tuple[bytes, bytes]] = []
        for number in numbers:
            few = self._layers.scan_bounded(SEGMENT.pack(number) + key, first, last)
            if few is None:
                return self._many_of_key(key, numbers, tails, reverse=reverse)
            found += few
        if reverse:
            found.reverse()
        return found

    def _many_of_key(
        self, key: bytes, numbers: Sequence[int], tails: tuple[bytes, bytes], *, reverse: bool
    ) -> Iterable[tuple[bytes, bytes]]:
        spans = [span(number, key + tails[0], key + tails[1]) for number in numbers]
        if reverse:
            spans.reverse()
        scans = [self._layers.scan(*one, reverse=reverse) for one in spans]
        size = HEAD + len(key) + self.tail.size
        return (entry for entry in chain.from_iterable(scans) if len(entry[0]) == size)

    def _found(
        self,
        keys: tuple[bytes | None, bytes | None],
        times: tuple[int, int],
        tails: tuple[bytes, bytes],
        wanted: Callable[[int, int], bool],
        *,
        reverse: bool,
    ) -> Found:
        """Rows with a key of these bytes (None: unbounded, both included), in the segments of these times, whose tail
        is `wanted`. `tails`: the least and the greatest tail that may be wanted."""
        least, most = keys
        if least is not None and least == most:
            rows = self._of_key(least, times, tails, reverse=reverse)
            return self._decoded_rows(self._by_time(rows, reverse=reverse) if self._in_memory else rows, wanted)
        numbers = self._segments(times)
        if reverse:
            numbers = numbers[::-1]
        scans = [self._layers.scan(*span(number, least or b"", None), reverse=reverse) for number in numbers]
        segments = (self._by_time(scan, reverse=reverse) for scan in scans) if self._in_memory else scans
        return self._decoded_rows(_within(segments, least, most, self.tail.size), wanted)

    def _by_time(self, rows: Iterable[tuple[bytes, bytes]], *, reverse: bool) -> list[tuple[bytes, bytes]]:
        """The rows by time, then by the keys' bytes."""
        length, unpack, order = self.tail.size, self.tail.unpack_from, self.order.in_memory

        def place(row: tuple[bytes, bytes]) -> tuple[int, bytes, int]:
            local = row[0]
            first, second = unpack(local, len(local) - length)
            return first, local[HEAD:-length], order * second

        return sorted(rows, key=place, reverse=reverse)

    def _segments(self, times: tuple[int, int]) -> Sequence[int]:
        """The segments of these times, both included."""
        last = min(times[1] // self._segment_ms, max(self._observed.value // self._segment_ms, self._newest_segment))
        return present_segments(self._layers.scan, times[0] // self._segment_ms, last)

    def _decoded_rows(self, rows: Iterable[tuple[bytes, bytes]], wanted: Callable[[int, int], bool]) -> Found:
        length, unpack = self.tail.size, self.tail.unpack_from
        for local, value in rows:
            if wanted(*unpack(local, len(local) - length)):
                yield self._decode_key(local), self._shown_value(value)

    def _keys(self, first: Any, last: Any, call: str) -> tuple[bytes | None, bytes | None]:
        """The bytes of the first and the last key, None for None. The store is open, or it is a `StateError`."""
        self._check_open()
        least = None if first is None else self._key_alone(first, call)
        if last is first:
            return least, least
        return least, None if last is None else self._key_alone(last, call)

    def _key_alone(self, key: Any, call: str) -> bytes:
        if key is None:
            raise self._no_key(call)
        try:
            return self._encode_alone(key)
        except Exception as error:
            self._refused(0, key, error)

    def _given(self, key: Any, call: str) -> None:
        if key is None:
            raise self._no_key(call)


def _within(
    scans: Iterable[Iterable[tuple[bytes, bytes]]], least: bytes | None, most: bytes | None, tail_bytes: int
) -> Iterator[tuple[bytes, bytes]]:
    """The entries whose keys, without segment and tail, are at least `least` and at most `most`."""
    for local, value in chain.from_iterable(scans):
        key = local[HEAD:-tail_bytes]
        if (least is None or key >= least) and (most is None or key <= most):
            yield local, value
