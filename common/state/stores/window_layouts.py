"""The local keys of window and session stores. The keys begin with a segment of time, so that expired rows are deleted
by whole segments.

    segment (8) | key of the changelog                           -> value
    2^64 - 1    | start (8) | key | sequence (4)                 -> nothing      (`StoreSpec.closing` only)
    2^64 - 1    | end (8) | start (8) | key                      -> nothing      (the same, for sessions)

A segment spans `StoreSpec.segment_ms` of time. A row's segment number is the row's time divided by this span. A row's
time is the start of its window, or the end of its session.

*Guarantees*: within a segment, rows are in the order of their changelog keys. `expired` returns only whole segments in
which no row is visible to a reader.
*Assumes*: each store of a task has its own layout object. Records of a changelog come in order.

*Why this way*: one deletion of a key range removes all expired rows of a segment, and no row is read for it. Kafka
Streams has a database per segment; here the segment is part of the key, so any `Engine` can store the rows.
The rows with 2^64 - 1 in front are an index by time: an operator that emits windows when they close finds them there.
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
"""The index by time has this in place of a segment number."""


class TimeOrder(NamedTuple):
    """The index of rows by time. Rows of the same time are in the order of their keys, as in Kafka Streams.

    `time_of`: returns the time of a changelog key. `place`: returns the key in the index. `row_of`: returns the
    changelog key of a key in the index. `in_memory`: how a store in memory sorts rows of the same time and key, by the
    second number of their tails: 1 means ascending, -1 descending."""

    time_of: Callable[[bytes], int]
    place: Callable[[bytes], bytes]
    row_of: Callable[[bytes], bytes]
    in_memory: int


class SegmentedLayout(OneRowPerRecord):
    """A layout of rows in segments. `values`: the layout of the values. `order`: the times of rows, and their index."""

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
        """Return the local key of a changelog key whose row has this time."""
        return SEGMENT.pack(time // self._segment_ms) + key

    def first_segment(self, observed: int) -> int:
        """Return the number of the first segment that hasn't expired when `observed` (ms) is the highest time."""
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
    """Return the span of the index by time from `first` to `last`, both included."""
    return BY_TIME + TIMESTAMP.pack(max(0, first)), BY_TIME + TIMESTAMP.pack(last + 1)


def first_segment(observed: int, retention_ms: int, segment_ms: int) -> int:
    """Return the number of the first segment that hasn't expired when `observed` (ms) is the highest time."""
    return max(0, (observed - retention_ms) // segment_ms)


Scan = Callable[["bytes | None", "bytes | None"], Iterator[tuple[bytes, bytes]]]
"""A function that yields the entries with first <= key < second, ascending."""

_FEW = 16
"""If a read spans at most this number of segments, all are scanned. Otherwise the segments that have rows are looked up
first."""


def present_segments(scan: Scan, first: int, last: int) -> Sequence[int]:
    """Return the segments from `first` to `last`. If there are many, only those that have rows."""
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
    """Return the span of a segment's rows whose changelog key is `begin` <= key <= `end` (None: no bound)."""
    head = SEGMENT.pack(segment)
    return head + begin, SEGMENT.pack(segment + 1) if end is None else head + end + b"\x00"


def window_layout(spec: StoreSpec) -> Layout:
    """Make the layout of a window store of plain values."""
    return SegmentedLayout(spec, PlainLayout(), WINDOWS)


def timestamped_window_layout(spec: StoreSpec) -> Layout:
    """Make the layout of a window store of values with their time."""
    return SegmentedLayout(spec, TimestampedLayout(), WINDOWS)


def session_layout(spec: StoreSpec) -> Layout:
    """Make the layout of a session store."""
    return SegmentedLayout(spec, PlainLayout(), SESSIONS)


def window_of(spec: StoreSpec, key: bytes) -> Windowed[bytes]:
    """Return the key's bytes and the window of a changelog key of a window store."""
    start = _start(key)
    return Windowed(key[:-_STARTS], start, start + spec.window_ms if spec.window_ms else FOREVER)


def session_of(_: StoreSpec, key: bytes) -> Windowed[bytes]:
    """Return the key's bytes and the session of a changelog key of a session store."""
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
