"""The local bytes of values that are stored with headers (KIP-1271).

| store | a value without headers | a value with headers |
|---|---|---|
| timestamped | time (8), value: as in the kind without headers | time with its highest bit set, size, headers, value |
| session | 0, value | size, headers, value |

The bytes of headers are those of Kafka Streams: the number of headers, then for each header the length of its name, the
name, the length of its value (-1 means None), and the value. Sizes, counts and lengths are varints.

*Guarantees*: equal values, times and headers have equal bytes. Each read of headers returns a new list, which the
caller may change.
*Assumes*: times are not negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from milestones.common.records import Header, Headers
from milestones.common.state.changelog import (
    TIMESTAMP,
    TIMESTAMP_BYTES,
    ChangelogRecord,
    Log,
    OneRowPerRecord,
    SameKeys,
    TimestampedLayout,
    without_none,
)
from milestones.common.state.engine import EMPTY, Namespace
from milestones.common.varint import read_varint, varint
from milestones.common.writable import first_timestamp

MARK: Final = 0x80
"""The highest bit of a time's first byte. This bit is set if headers follow the time."""


def headed(headers: Sequence[Header] | None) -> bytes:
    """Serialise headers: their size in bytes, then the headers."""
    if not headers:
        return b"\x00"
    block = b"".join((varint(len(headers)), *map(_header, headers)))
    return varint(len(block)) + block


def _header(header: Header) -> bytes:
    name, value = header[0].encode(), header[1]
    if value is None:
        return b"".join((varint(len(name)), name, varint(-1)))
    return b"".join((varint(len(name)), name, varint(len(value)), value))


def behind(data: bytes, start: int = 0) -> int:
    """Return the index of the first byte after the headers that begin at `start`."""
    size, begins = read_varint(data, start)
    return begins + size


def headers_in(data: bytes, start: int = 0) -> Headers:
    """Read the headers that begin at `start`, into a new list."""
    size, at = read_varint(data, start)
    if not size:
        return []
    count, at = read_varint(data, at)
    found: Headers = []
    for _ in range(count):
        length, at = read_varint(data, at)
        name, at = data[at : at + length].decode(), at + length
        length, at = read_varint(data, at)
        found.append((name, None if length < 0 else data[at : at + length]))
        at += max(0, length)
    return found


# -- values with their time


def timed_row(value: bytes, timestamp: int, headers: Sequence[Header] | None) -> bytes:
    """Return the local bytes of a value with its time and headers."""
    time = TIMESTAMP.pack(timestamp)
    if not headers:
        return time + value
    return b"".join((bytes((time[0] | MARK,)), time[1:], headed(headers), value))


def without_headers(local: bytes) -> bytes:
    """Remove the headers from a local value. Returns the bytes of its time and value."""
    if local[0] < MARK:
        return local
    return b"".join((bytes((local[0] & ~MARK,)), local[1:TIMESTAMP_BYTES], local[behind(local, TIMESTAMP_BYTES) :]))


def timed_headers(local: bytes) -> Headers:
    """Return the headers of a local value that has a time."""
    return [] if local[0] < MARK else headers_in(local, TIMESTAMP_BYTES)


class TimedHeadersLayout(TimestampedLayout):
    """A layout of values with time and headers, which are those of their changelog records."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        return without_none({
            record.key(): None
            if (value := record.value()) is None
            else timed_row(value, record.timestamp()[1] or first_timestamp(), record.headers())
            for record in records
        })  # fmt: skip

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        if stored is None or stored[0] < MARK:
            super().log_stored(log, key, stored, timestamp)
        else:
            plain = without_headers(stored)
            log(key, plain[TIMESTAMP_BYTES:], TIMESTAMP.unpack_from(plain)[0], timed_headers(stored))

    log_rows = OneRowPerRecord.log_rows


# -- sessions


class HeadersLayout(SameKeys):
    """A layout of values without time and with headers, which are those of their changelog records."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        return without_none({
            record.key(): None if (value := record.value()) is None else headed(record.headers()) + value
            for record in records
        })

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        if stored is None:
            log(key, None, timestamp)
        else:
            log(key, stored[behind(stored) :], timestamp, headers_in(stored) or None)
