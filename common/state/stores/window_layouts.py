"""The local keys of window and session stores: by segments of time, so that what is gone goes with its segment.

    segment (8) | key of the changelog                           -> value
    2^64 - 1    | start (8) | key | sequence (4)                 -> nothing      (`StoreSpec.closing` only)
    2^64 - 1    | end (8) | start (8) | key                      -> nothing      (the same, of sessions)

A segment is a span of time, `StoreSpec.segment_ms`, and its number the time divided by that. A row's time is the start
of its window, or the end of its session.

*Guarantees*: within a segment rows are in the order of their changelog keys. `expired` names whole segments only, none
of which has a row that a reader may see.
*Assumes*: one per store and task; records of a changelog come in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from milestones.common.records import UNKNOWN_TIMESTAMP
from milestones.common.state.changelog import (
    TIMESTAMP,
    TIMESTAMP_BYTES,
    ChangelogRecord,
    Layout,
    Log,
    OneRowPerRecord,
    PlainLayout,
    TimestampedLayout,
)
from milestones.common.state.engine import EMPTY, Namespace, Span
from milestones.common.state.spec import StoreSpec
from milestones.common.windowed import END_AND_START, FOREVER, START_AND_SEQUENCE, Windowed

SEGMENT: Final = struct.Struct(">Q")
BY_TIME: Final = b"\xff" * SEGMENT.size
"""In place of a segment: the rows by time."""


class TimeOrder(NamedTuple):
    """The order of rows by time, as functions of changelog keys: a row's time; its local key in that order, and back.
    Rows of one time are in the order of their keys, as in Kafka Streams. `in_memory`: 1 when a store in memory has rows
    of one time and key in the order of the other number of their tails, -1 when in that order backwards."""

    time_of: Callable[[bytes], int]
    place: Callable[[bytes], bytes]
    row_of: Callable[[bytes], bytes]
    in_memory: int


class SegmentedLayout(OneRowPerRecord):
    """Rows of segments. `values`: how values are kept; `order`: the time of a row, and its place in time."""

    key_of: Callable[[bytes], bytes] = itemgetter(slice(SEGMENT.size, None))

    def __init__(self, spec: StoreSpec, values: Layout, order: TimeOrder) -> None:
        self._segment_ms, self._retention_ms, self._closing = spec.segment_ms, spec.retention_ms, spec.closing
        self._values, self._order = values, order
        self.restored_time = UNKNOWN_TIMESTAMP

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        entries: dict[bytes, bytes | None] = {}
        for key, value in self._values.restored(records, stored).items():
            time = self._order.time_of(key)
            self.restored_time = max(self.restored_time, time)
            entries[self.local(key, time)] = value
            if self._closing:
                entries[self._order.place(key)] = None if value is None else b""
        return entries

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        self._values.log_stored(log, key, stored, timestamp)

    def logs(self, local: bytes) -> bool:
        return not local.startswith(BY_TIME)

    def local(self, key: bytes, time: int) -> bytes:
        """The local key of a changelog key."""
        return SEGMENT.pack(time // self._segment_ms) + key

    def first_segment(self, observed: int) -> int:
        """The number of the first segment that isn't gone when `observed` is the highest time."""
        return first_segment(observed, self._retention_ms, self._segment_ms)

    def expired(self, observed: int) -> list[Span]:
        first = self.first_segment(observed)
        if first == 0:
            return []
        spans = [(b"", SEGMENT.pack(first))]
        if self._closing:
            spans.append((BY_TIME, BY_TIME + TIMESTAMP.pack(first * self._segment_ms)))
        return spans


def by_time_between(first: int, last: int) -> Span:
    """The span of rows by time, both included."""
    return BY_TIME + TIMESTAMP.pack(max(0, first)), BY_TIME + TIMESTAMP.pack(last + 1)


def first_segment(observed: int, retention_ms: int, segment_ms: int) -> int:
    """The number of the first segment that isn't gone when `observed` (ms) is the highest time."""
    return max(0, (observed - retention_ms) // segment_ms)


Scan = Callable[["bytes | None", "bytes | None"], Iterator[tuple[bytes, bytes]]]
"""Entries with first <= key < second, ascending."""

_FEW = 16
"""Fewer segments are all looked into, without a look first for those that have rows."""


def present_segments(scan: Scan, first: int, last: int) -> Sequence[int]:
    """The segments from `first` to `last`; of many, those that have rows."""
    if last - first < _FEW:
        return range(first, last + 1)
    found: list[int] = []
    while first <= last:
        local, _ = next(scan(SEGMENT.pack(first), SEGMENT.pack(last + 1)), (None, None))
        if local is None:
            break
        found += SEGMENT.unpack_from(local)
        first = found[-1] + 1
    return found


def span(segment: int, begin: bytes, end: bytes | None) -> Span:
    """The span of a segment's changelog keys with `begin` <= key <= `end` (None: unbounded)."""
    head = SEGMENT.pack(segment)
    return head + begin, SEGMENT.pack(segment + 1) if end is None else head + end + b"\x00"


def window_layout(spec: StoreSpec) -> Layout:
    """The layout of a window store of plain values."""
    return SegmentedLayout(spec, PlainLayout(), WINDOWS)


def timestamped_window_layout(spec: StoreSpec) -> Layout:
    """The layout of a window store of values with their time."""
    return SegmentedLayout(spec, TimestampedLayout(), WINDOWS)


def session_layout(spec: StoreSpec) -> Layout:
    """The layout of a session store."""
    return SegmentedLayout(spec, PlainLayout(), SESSIONS)


def window_of(spec: StoreSpec, key: bytes) -> Windowed[bytes]:
    """The key's bytes and the window, of a changelog key of a window store."""
    start = _start(key)
    return Windowed(key[:-_STARTS], start, start + spec.window_ms if spec.window_ms else FOREVER)


def session_of(_: StoreSpec, key: bytes) -> Windowed[bytes]:
    """The key's bytes and the session, of a changelog key of a session store."""
    end, start = END_AND_START.unpack_from(key, len(key) - _SESSION)
    return Windowed(key[:-_SESSION], start, end)


_INDEX = len(BY_TIME)
_STARTS, _SESSION = START_AND_SEQUENCE.size, END_AND_START.size
_SEQUENCE = _STARTS - TIMESTAMP_BYTES


def _start(key: bytes) -> int:
    start: int = START_AND_SEQUENCE.unpack_from(key, len(key) - _STARTS)[0]
    return start


def _by_start(key: bytes) -> bytes:
    return BY_TIME + key[-_STARTS:-_SEQUENCE] + key[:-_STARTS] + key[-_SEQUENCE:]


def _of_start(local: bytes) -> bytes:
    key = _INDEX + TIMESTAMP_BYTES
    return local[key:-_SEQUENCE] + local[_INDEX:key] + local[-_SEQUENCE:]


def _end(key: bytes) -> int:
    end: int = END_AND_START.unpack_from(key, len(key) - _SESSION)[0]
    return end


def _by_end(key: bytes) -> bytes:
    return BY_TIME + key[-_SESSION:] + key[:-_SESSION]


def _of_end(local: bytes) -> bytes:
    key = _INDEX + _SESSION
    return local[key:] + local[_INDEX:key]


WINDOWS: Final = TimeOrder(_start, _by_start, _of_start, 1)
SESSIONS: Final = TimeOrder(_end, _by_end, _of_end, -1)
