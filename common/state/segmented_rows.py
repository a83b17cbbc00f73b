"""Rows that are gone after a time: what window and session stores have in common.

A row's key is a key of the user's and a *tail*, two numbers, of which the row's time follows.

*Guarantees*: a row whose time is further than the retention before the highest time that the store has seen is
invisible, and a write of such a row is dropped: it is neither logged nor staged. Reads are as of their call, with the
store's own uncommitted writes; of one key in the order of the tails, of several keys by segments of time, then by the
keys' bytes, as in Kafka Streams. The rest as `rows.py`.
*Assumes*: as `rows.py`. Times are not negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from milestones.common.state.cells import observed_time
from milestones.common.state.rows import Rows, StoreParts
from milestones.common.state.window_layouts import (
    BY_TIME,
    SEGMENT,
    TimeOrder,
    by_time_between,
    first_segment,
    present_segments,
    span,
)
from milestones.common.windowed import Windowed

Found = Iterator[tuple[Windowed[Any], Any]]

HEAD = SEGMENT.size

class SegmentedRows(Rows):
    """Rows by key and tail. A subclass's `open` says how both are encoded."""

    __slots__ = ("_closing", "_last_segment", "_observed", "_retention_ms", "_segment_ms")

    tail: ClassVar[struct.Struct]
    order: ClassVar[TimeOrder]

    def __init__(self, parts: StoreParts) -> None:
        spec = parts.spec
        self._retention_ms, self._segment_ms, self._closing = spec.retention_ms, spec.segment_ms, spec.closing
        self._observed = parts.cells.cell(observed_time(spec.name), -1)
        self._last_segment = -1
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        newest = next(self._layers.scan(None, BY_TIME, reverse=True), None)
        if newest is not None:
            (self._last_segment,) = SEGMENT.unpack_from(newest[0])
            # In a new process: what was gone in the former one must not be seen again.
            if self._observed.value < (begins := self._last_segment * self._segment_ms):
                self._observed.back(begins)

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
        observed = self._observed
        if time > observed.value:
            observed.set(time)
        segment = time // self._segment_ms
        if segment < first_segment(observed.value, self._retention_ms, self._segment_ms):
            return False
        if segment > self._last_segment:
            self._last_segment = segment
        return True

    def _note_closing(self, row: Any, *, there: bool) -> None:
        """Keep the order by time beside a write."""
        if self._closing:
            self._layers.put(self.order.place(self._encode_key(row)[HEAD:]), b"" if there else None)

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
        begin, end = least or b"", None
        if least is not None and least == most:  # only rows of this key, and few others, lie between
            begin, end = least + tails[0], least + tails[1]
        last = min(times[1] // self._segment_ms, self._last_segment)
        numbers = present_segments(self._layers.scan, times[0] // self._segment_ms, last)
        if reverse:
            numbers = numbers[::-1]
        scans = [self._layers.scan(*span(number, begin, end), reverse=reverse) for number in numbers]
        return self._within(scans, least, most, wanted)

    def _within(
        self,
        scans: list[Iterator[tuple[bytes, bytes]]],
        least: bytes | None,
        most: bytes | None,
        wanted: Callable[[int, int], bool],
    ) -> Found:
        length, unpack = self.tail.size, self.tail.unpack_from
        for scan in scans:
            for local, value in scan:
                key = local[HEAD:-length]
                if (least is not None and key < least) or (most is not None and key > most):
                    continue
                if wanted(*unpack(local, len(local) - length)):
                    yield self._decode_key(local), self._decoded(value)

    def _keys(self, first: Any, last: Any, call: str) -> tuple[bytes | None, bytes | None]:
        """The bytes of the first and the last key, None for None. The store is open, or it is a `StateError`."""
        self._check_open()
        least = None if first is None else self._key_alone(first, call)
        if last is first:
            return least, least
        return least, None if last is None else self._key_alone(last, call)

    def _key_alone(self, key: Any, call: str) -> bytes:
        return self._key((key, 0, 0), call)[HEAD : -self.tail.size]

    def _given(self, key: Any, call: str) -> None:
        if key is None:
            raise self._no_key(call)
