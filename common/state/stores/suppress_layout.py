"""The bytes of a suppress buffer's rows. A row has the same bytes in the changelog and in the store.

| version, in the record header `v` | value of the changelog record |
|---|---|
| none (0) | buffer time (8), old, new |
| 1 | buffer time (8), context, old and new in one part |
| 2 | context, old and new in one part, prior, buffer time (8) |
| 3 | context, prior, old, new, buffer time (8) |

A part is a length (4), followed by that number of bytes. The length -1 means null. The length -2, which only the old
value of version 3 can have, means "the same as prior". A context is timestamp (8), offset (8), topic (a part),
partition (4), the number of headers (4), and name and value of each header (two parts). Keys are those of the table.
All bytes are those of Kafka Streams, which has written version 3 since 2.4. A changelog record with a value has the
header `v`, a deletion hasn't. Neither record has a timestamp of its own.

*Guarantees*: version 3 is written, and all versions are read. Kafka Streams 2.4 and 2.5.0 wrote the bytes of version 3
with the header of version 2. So a value with the header of version 2 that can't be read as version 2 is read as
version 3.
*Assumes*: a changelog of version 0 or 1 is restored in one go. These versions have no prior values, so a key's prior
value is taken from the first record of the key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from milestones.common.errors import StateFormatError
from milestones.common.records import Emitted, Headers, RecordMetadata
from milestones.common.state.changelog import ChangelogRecord, Log, OneRowPerRecord
from milestones.common.state.engine import EMPTY, Namespace

VERSION: Final = "v"
VERSION_3: Final[Headers] = [(VERSION, b"\x03")]
"""The headers of a changelog record that has a value."""

WHEN_SENT: Final = 0
"""The timestamp of an output that has no time of its own: Kafka's client replaces it by the time of sending."""

_TIME: Final = struct.Struct(">q")
_CONTEXT: Final = struct.Struct(">qq")
_INT: Final = struct.Struct(">i")
_NULL, _LIKE_PRIOR = -1, -2


class Context(NamedTuple):
    """The properties of a record that is kept back, except its key and value. `origin` is None if the record came from
    a punctuation."""

    timestamp: int
    headers: Headers | None
    origin: RecordMetadata | None


class Buffered(NamedTuple):
    """A table's update that a suppress buffer keeps back.

    `prior`: the row's value before the first update that is kept back. `time`: the time from which the buffer decides
    when the update is sent."""

    context: Context
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    time: int


def size_of(key: bytes, row: Buffered) -> int:
    """Count the bytes of a row as Kafka Streams does. For example, it counts the characters of names, not their
    bytes."""
    context, prior, old, new, _ = row
    return size_of_parts(key, context.headers, context.origin, prior, old, new)


def size_of_parts(
    key: bytes,
    headers: Headers | None,
    origin: RecordMetadata | None,
    prior: bytes | None,
    old: bytes | None,
    new: bytes | None,
) -> int:
    """Count the bytes of a row of these parts, as `size_of` does."""
    size = _LEAST_SIZE + len(key)
    if origin is not None:
        size += _head(origin[0], origin[1])[1]
    if headers:
        size += sum(_characters(name) + len(value or b"") for name, value in headers)
    if prior is not None:
        size += len(prior)
    if new is not None:
        size += len(new)
    if old is not None and old != prior:
        size += len(old)
    return size


_LEAST_SIZE: Final = 8 + 8 + 8 + 4


def _characters(text: str) -> int:
    """Return the length of `text` as Java counts it: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


# -- writing


def encoded(row: Buffered) -> bytes:
    """Serialise a row to the bytes of version 3."""
    (timestamp, headers, origin), prior, old, new, time = row
    return encoded_parts(timestamp, encoded_headers(headers) if headers else None, origin, prior, old, new, time)


def encoded_parts(
    timestamp: int,
    headers: bytes | None,
    origin: RecordMetadata | None,
    prior: bytes | None,
    old: bytes | None,
    new: bytes | None,
    time: int,
) -> bytes:
    """Serialise the fields of a row to the bytes of version 3. `headers`: made by `encoded_headers`, None if there are
    none."""
    topic, partition, offset = origin or _NOWHERE
    head = _head(topic, partition)[0]
    length = _LENGTH.get
    return b"".join((
        _CONTEXT.pack(timestamp, offset),
        head,
        headers or _NO_HEADERS,
        _NULL_PART if prior is None else (length(len(prior)) or _INT.pack(len(prior))) + prior,
        _NULL_PART if old is None else _SAME if old == prior else (length(len(old)) or _INT.pack(len(old))) + old,
        _NULL_PART if new is None else (length(len(new)) or _INT.pack(len(new))) + new,
        _TIME.pack(time),
    ))  # fmt: skip


def check_time(time: int) -> None:
    """Raise `struct.error` for a time that a row can't have."""
    _TIME.pack(time)


def encoded_headers(headers: Headers) -> bytes:
    """Serialise headers for `encoded_parts`."""
    parts = [_INT.pack(len(headers))]
    for name, value in headers:
        parts += _part(name.encode()), _part(value)
    return b"".join(parts)


def decoded_headers(data: bytes) -> Headers:
    """Read the headers that `encoded_headers` has serialised."""
    return _Reader(data).headers()


_LENGTH: Final = {length: _INT.pack(length) for length in range(256)}
"""The bytes of usual lengths."""
_NOWHERE: Final = RecordMetadata("", -1, -1)
_NULL_PART, _SAME, _NO_HEADERS = _INT.pack(_NULL), _INT.pack(_LIKE_PRIOR), _INT.pack(0)


def _part(data: bytes | None) -> bytes:
    return _NULL_PART if data is None else _INT.pack(len(data)) + data


@lru_cache(1_024)
def _head(topic: str, partition: int) -> tuple[bytes, int]:
    """Return the bytes of a topic and a partition, and how many characters Kafka Streams counts."""
    return _part(topic.encode()) + _INT.pack(partition), _characters(topic)


# -- reading


class _Reader:
    """Reads the parts of a value one after the other. Raises `ValueError` if the value is too short, or a length is
    wrong."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, of: struct.Struct = _INT) -> int:
        if self._at + of.size > len(self._data):
            raise ValueError("it is cut off")
        (number,) = of.unpack_from(self._data, self._at)
        self._at += of.size
        return int(number)

    def part(self) -> bytes | None:
        return self.of_length(self.number())

    def of_length(self, length: int) -> bytes | None:
        if length == _NULL:
            return None
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"it has a part of {length} bytes")
        data, self._at = self._data[self._at : end], end
        return data

    def present(self) -> bytes:
        data = self.part()
        if data is None:
            raise ValueError("it lacks a part")
        return data

    def context(self) -> Context:
        timestamp, offset = self.number(_TIME), self.number(_TIME)
        topic, partition = self.present().decode(), self.number()
        headers = self.headers()
        origin = RecordMetadata(topic, partition, offset) if topic else None
        return Context(timestamp, headers or None, origin)

    def headers(self) -> Headers:
        return [(self.present().decode(), self.part()) for _ in range(self.number())]

    def end(self) -> None:
        if self._at < len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left")


def decoded(data: bytes) -> Buffered:
    """Read a row from the bytes of version 3. Raises `ValueError`."""
    reader = _Reader(data)
    context, prior = reader.context(), reader.part()
    length = reader.number()
    old = prior if length == _LIKE_PRIOR else reader.of_length(length)
    row = Buffered(context, prior, old, reader.part(), reader.number(_TIME))
    reader.end()
    return row


def prior_of(data: bytes) -> bytes | None:
    """Read only the prior value of a stored row. An update that replaces the row needs no other field."""
    unpack = _INT.unpack_from
    at = _CONTEXT.size
    at += 2 * _INT.size + unpack(data, at)[0]  # topic, partition
    (headers,) = unpack(data, at)
    at += _INT.size
    for _ in range(2 * headers):
        at += _INT.size + max(0, unpack(data, at)[0])
    (length,) = unpack(data, at)
    at += _INT.size
    return None if length == _NULL else data[at : at + length]


def new_value(data: bytes) -> tuple[bytes | None, int]:
    """Return the value that a stored row will send, and its timestamp."""
    row = decoded(data)
    return row.new, row.context.timestamp


def _two(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Read the old and the new value from one part."""
    reader = _Reader(data)
    both = reader.part(), reader.part()
    reader.end()
    return both


def _version_0(data: bytes, record: ChangelogRecord) -> Buffered:
    """Read a row of version 0, whose context is that of the changelog record."""
    origin = RecordMetadata(record.topic(), record.partition(), record.offset())
    reader = _Reader(data)
    time, old, new = reader.number(_TIME), reader.part(), reader.part()
    reader.end()
    return Buffered(Context(record.timestamp()[1], record.headers() or None, origin), old, old, new, time)


def _version_1(data: bytes) -> Buffered:
    reader = _Reader(data)
    time, context, (old, new) = reader.number(_TIME), reader.context(), _two(reader.present())
    reader.end()
    return Buffered(context, old, old, new, time)


def _version_2(data: bytes) -> Buffered:
    reader = _Reader(data)
    context, (old, new) = reader.context(), _two(reader.present())
    row = Buffered(context, reader.part(), old, new, reader.number(_TIME))
    reader.end()
    return row


def _version_2_or_3(data: bytes) -> Buffered:
    try:
        return _version_2(data)
    except ValueError:
        return decoded(data)


class SuppressLayout(OneRowPerRecord):
    """The layout of a suppress buffer. The store has the bytes of version 3, whatever version the changelog has."""

    key_of = None

    def __init__(self) -> None:
        self._priors: dict[bytes, bytes | None] = {}
        """The prior values of keys whose records have none (versions 0 and 1)."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        entries: dict[bytes, bytes | None] = {}
        for record in records:
            key, value = record.key(), record.value()
            if key is None:
                continue
            if value is None:
                self._priors.pop(key, None)
            entries[key] = None if value is None else self._current(record, key, value)
        return entries

    def _current(self, record: ChangelogRecord, key: bytes, value: bytes) -> bytes:
        """Convert the value of a changelog record to the bytes of version 3."""
        version = next((data for name, data in reversed(record.headers() or ()) if name == VERSION), None)
        try:
            match version:
                case None:
                    return encoded(self._with_prior(key, _version_0(value, record)))
                case b"\x01":
                    return encoded(self._with_prior(key, _version_1(value)))
                case b"\x02":
                    return encoded(_version_2_or_3(value))
                case b"\x03":
                    decoded(value)
                    return value
        except ValueError as error:
            raise StateFormatError(
                f"{_place(record)} is no row of a suppress buffer ({error}): another application writes to the topic. "
                "Stop that application and reset this one, or delete the topic, which loses the updates in the buffer"
            ) from error
        raise StateFormatError(
            f"{_place(record)} has version {version!r} of a suppress buffer's rows, and this version knows 0 to 3: a "
            "newer Kafka Streams wrote it; use that Kafka Streams, or reset the application"
        )

    def _with_prior(self, key: bytes, row: Buffered) -> Buffered:
        """Add the prior value to a row of version 0 or 1. The prior value is the old value of the key's first row."""
        prior = self._priors.get(key)
        self._priors[key] = prior = row.old if prior is None else prior
        return row._replace(prior=prior)

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        log(key, stored, timestamp)

    def logs(self, local: bytes) -> bool:
        return True


def _place(record: ChangelogRecord) -> str:
    return f"{record.topic()}-{record.partition()}@{record.offset()}"


def suppress_changelog(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None], *_: object
) -> Log:
    """Make a `Log` as `changelog.changelog` does. It appends changelog records of version 3."""

    def log(key: bytes, value: bytes | None, _timestamp: int, _: object = None) -> None:
        append((topic, value, key, partition, None, store, WHEN_SENT, None if value is None else VERSION_3))

    return log
