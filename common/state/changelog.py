"""The changelog records of a store's writes, and the store entries that changelog records restore.

| kind | value in the changelog | record's timestamp | value in the store |
|---|---|---|---|
| key-value | as stored | of the input record | as written |
| timestamped-key-value | the plain value | the value's own | 8-byte big-endian timestamp, then the plain value |
| the same with headers | the plain value, headers beside it | the value's own | `stores/row_headers.py` |
| versioned | the plain value | the version's own | `versions.py` |

Keys are the same on both sides; an absent value deletes. These are Kafka Streams' bytes. A row has the time that its
changelog record can have: 0 is kept as `FIRST_TIMESTAMP`.

*Guarantees*: folding a store's changelog with `Layout.restored` gives the store's entries.
*Assumes*: one partition of the changelog per task: its partition is the task's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from milestones.common.records import UNKNOWN_TIMESTAMP, Emitted, Headers
from milestones.common.state.engine import EMPTY, Namespace, Span
from milestones.common.writable import first_timestamp


class Log(Protocol):
    """Called for each write of a store with key, plain value (None deletes) and timestamp in ms, before it is staged;
    with the value's headers where a store has them."""

    def __call__(
        self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None, /
    ) -> None: ...


class HasHeaders(Protocol):
    """The record in work."""

    headers: Headers | None


TIMESTAMP: Final = struct.Struct(">q")
"""The head of a timestamped value in the store."""

TIMESTAMP_BYTES: Final = TIMESTAMP.size


class ChangelogRecord(Protocol):
    """A record as Kafka's client hands it out (`confluent_kafka.Message`)."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Any: ...
    def topic(self) -> Any: ...
    def partition(self) -> Any: ...
    def offset(self) -> Any: ...


def changelog(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None],
    key_of: Callable[[bytes], bytes] | None = None, _: HasHeaders | None = None,
) -> Log:
    """A function that puts one changelog record per write into the scope of the record in work. `key_of`: gives the
    changelog's key of a local one, where these differ."""
    no_headers: Headers | None = None

    def log(key: bytes, value: bytes | None, timestamp: int, _: Headers | None = None) -> None:
        append((topic, partition, key, value, timestamp or first_timestamp(), no_headers, store))

    if key_of is None:
        return log

    def log_local(key: bytes, value: bytes | None, timestamp: int, _: Headers | None = None) -> None:
        append((topic, partition, key_of(key), value, timestamp or first_timestamp(), no_headers, store))

    return log_local


def changelog_of_headers(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None],
    key_of: Callable[[bytes], bytes] | None = None, record: HasHeaders | None = None,
) -> Log:
    """As `changelog`, for a store whose values have headers. A deletion has those of `record`, the one in work."""

    def log(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        if value is None and record is not None:
            headers = record.headers
        changed = key if key_of is None else key_of(key)
        append((topic, partition, changed, value, timestamp or first_timestamp(), headers, store))

    return log


def changelog_with_headers(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None], record: HasHeaders
) -> Log:
    """As `changelog`, for a store whose changelog records have the headers of the record in work."""

    def log(key: bytes, value: bytes | None, timestamp: int, _: Headers | None = None) -> None:
        append((topic, partition, key, value, timestamp or first_timestamp(), record.headers, store))

    return log


def not_logged(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
    """Log nothing: for a store without a changelog of its own."""


class Layout(Protocol):
    """The local bytes of one store, beside those of its changelog. One per store and task."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        """The writes of `records`, in changelog order: the last value of each local key, None deletes. Records without
        a key are passed over, as in Kafka Streams. `stored`: what the records before have led to."""
        ...

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        """Log the value that a store has of a local key (None: it has none), with `timestamp` unless it has one of its
        own. `log` takes local keys."""
        ...

    def log_rows(self, log: Log, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Do `log_stored` for each local key that is in the changelog, without a time for a row that has none."""
        ...

    @property
    def key_of(self) -> Callable[[bytes], bytes] | None:
        """Gives the changelog's key of a local one; None where they are the same."""
        ...

    def logs(self, local: bytes) -> bool:
        """True if an entry is in the changelog."""
        ...

    def doubtful(self, writes: Iterable[tuple[bytes, bytes | None]], stored: Namespace) -> Iterable[bytes]:
        """What to `log_again` after a roll-back of these writes of local keys, whose changelog records stay. `stored`:
        the store without them."""
        ...

    def log_again(self, log: Log, doubt: bytes, stored: Namespace, timestamp: int) -> None:
        """Log what is stored in place of a record of a roll-back, so that the changelog ends as the store is; with
        `timestamp` where it has none of its own."""
        ...

    @property
    def restored_time(self) -> int:
        """The highest time (ms) of the records that were restored, -1 without any, or where no row is gone after a
        time."""
        ...

    def expired(self, observed: int) -> list[Span]:
        """The spans of local keys that are gone when `observed` (ms) is the highest time of the store."""
        ...


class OneRowPerRecord:
    """Each changelog record is the value of one local key. No row is gone after a time."""

    restored_time: int = UNKNOWN_TIMESTAMP

    def logs(self, local: bytes) -> bool:
        raise NotImplementedError

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        raise NotImplementedError

    def log_rows(self, log: Log, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, stored in rows:
            if self.logs(key):
                self.log_stored(log, key, stored, UNKNOWN_TIMESTAMP)

    def doubtful(self, writes: Iterable[tuple[bytes, bytes | None]], stored: Namespace) -> Iterable[bytes]:
        return (local for local, _ in writes if self.logs(local))

    def log_again(self, log: Log, doubt: bytes, stored: Namespace, timestamp: int) -> None:
        self.log_stored(log, doubt, stored.get(doubt), timestamp)

    def expired(self, observed: int) -> list[Span]:
        return []


class SameKeys(OneRowPerRecord):
    """Local keys that are those of the changelog, for good."""

    key_of = None

    def logs(self, local: bytes) -> bool:
        return True


class PlainLayout(SameKeys):
    """Keys and values as the changelog has them."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        return without_none({record.key(): record.value() for record in records})

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        log(key, stored, timestamp)


class TimestampedLayout(SameKeys):
    """Values with their time in front, 8 bytes, big-endian."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        pack = TIMESTAMP.pack
        return without_none({
            record.key(): None
            if (value := record.value()) is None
            else pack(record.timestamp()[1] or first_timestamp()) + value
            for record in records
        })  # fmt: skip

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        if stored is None:
            log(key, None, timestamp)
        else:
            log(key, stored[TIMESTAMP_BYTES:], TIMESTAMP.unpack_from(stored)[0])

    def log_rows(self, log: Log, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        unpack, head = TIMESTAMP.unpack_from, TIMESTAMP_BYTES
        for key, stored in rows:
            if stored is None:
                log(key, None, UNKNOWN_TIMESTAMP)
            else:
                log(key, stored[head:], unpack(stored)[0])


def without_none(entries: dict[bytes | None, bytes | None]) -> dict[bytes, bytes | None]:
    """The entries of records that have a key."""
    entries.pop(None, None)
    return entries  # type: ignore[return-value]  # the None key is gone
