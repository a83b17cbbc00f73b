"""The changelog records of a store's writes, and the store entries that changelog records restore.

| kind | value in the changelog | record's timestamp | value in the store |
|---|---|---|---|
| key-value | as stored | of the input record | as written |
| timestamped-key-value | the plain value | the value's own | 8-byte big-endian timestamp, then the plain value |
| the same with headers | the plain value, headers beside it | the value's own | `stores/row_headers.py` |
| versioned | the plain value | the version's own | `versions.py` |

Keys are the same in the changelog and in the store. A record without a value deletes its key. All bytes are those of
Kafka Streams. A row's time is a time that its changelog record can have: the time 0 is stored as `FIRST_TIMESTAMP`.

*Guarantees*: if `Layout.restored` reads a store's whole changelog, the result is the store's entries.
*Assumes*: each task writes to one partition of the changelog, whose number is the task's partition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from milestones.common.records import UNKNOWN_TIMESTAMP, Emitted, Headers
from milestones.common.state.engine import EMPTY, Namespace, Span
from milestones.common.writable import first_timestamp


class Log(Protocol):
    """A function that is called for each write of a store, before the write is put into the layers.

    The arguments are the key of the write, the plain value (None deletes) and the timestamp in ms. A store whose values
    have headers passes these, too."""

    def __call__(
        self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None, /
    ) -> None: ...


class HasHeaders(Protocol):
    """An object with the headers of the current record."""

    headers: Headers | None


TIMESTAMP: Final = struct.Struct(">q")
"""The first bytes of a timestamped value in the store: its timestamp."""

TIMESTAMP_BYTES: Final = TIMESTAMP.size


class ChangelogRecord(Protocol):
    """A changelog record as Kafka's client returns it (`confluent_kafka.Message`)."""

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
    """Make a `Log` that puts one changelog record per write into the scope of the current record.

    `key_of` turns a local key into the changelog's key. None means that both are the same."""
    no_headers: Headers | None = None

    def log(key: bytes, value: bytes | None, timestamp: int, _: Headers | None = None) -> None:
        append((topic, value, key, partition, None, store, timestamp or first_timestamp(), no_headers))

    if key_of is None:
        return log

    def log_local(key: bytes, value: bytes | None, timestamp: int, _: Headers | None = None) -> None:
        append((topic, value, key_of(key), partition, None, store, timestamp or first_timestamp(), no_headers))

    return log_local


def changelog_of_headers(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None],
    key_of: Callable[[bytes], bytes] | None = None, record: HasHeaders | None = None,
) -> Log:
    """Make a `Log` as `changelog` does, for a store whose values have headers. The changelog record of a deletion gets
    the headers of `record`, the current record."""

    def log(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        if value is None and record is not None:
            headers = record.headers
        changed = key if key_of is None else key_of(key)
        append((topic, value, changed, partition, None, store, timestamp or first_timestamp(), headers))

    return log


def changelog_with_headers(
    topic: str, partition: int, store: str, append: Callable[[Emitted], None], record: HasHeaders
) -> Log:
    """Make a `Log` as `changelog` does, for a store whose changelog records get the headers of the current record."""

    def log(key: bytes, value: bytes | None, timestamp: int, _: Headers | None = None) -> None:
        append((topic, value, key, partition, None, store, timestamp or first_timestamp(), record.headers))

    return log


def not_logged(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
    """Log nothing. This is the `Log` of a store that has no changelog of its own."""


class Layout(Protocol):
    """Translates between the bytes of a store's rows and those of its changelog records. Each store of a task has its
    own layout."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        """Return the writes that `records`, in changelog order, lead to: the last value of each local key, None for a
        deletion. Records without a key are skipped, as in Kafka Streams.

        `stored`: the store's content after all earlier records."""
        ...

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        """Log the stored value of a local key. None logs a deletion.

        `timestamp` is used if the stored value has no timestamp of its own. `log` is called with the local key."""
        ...

    def log_rows(self, log: Log, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Call `log_stored` for each row whose key is in the changelog. A row without a time of its own is logged with
        `UNKNOWN_TIMESTAMP`."""
        ...

    @property
    def key_of(self) -> Callable[[bytes], bytes] | None:
        """The function that turns a local key into the changelog's key. None if both are the same."""
        ...

    def logs(self, local: bytes) -> bool:
        """True if the row of this local key has a record in the changelog."""
        ...

    def doubtful(self, writes: Iterable[tuple[bytes, bytes | None]], stored: Namespace) -> Iterable[bytes]:
        """List what to pass to `log_again` after a roll-back of `writes`, whose changelog records stay in Kafka (under
        `at_least_once`). `stored`: the store without these writes."""
        ...

    def log_again(self, log: Log, doubt: bytes, stored: Namespace, timestamp: int) -> None:
        """Log the stored value in place of one that was rolled back, so that the changelog has the store's content.

        `doubt` is an item of `doubtful`. `timestamp` is used if the stored value has no timestamp of its own."""
        ...

    @property
    def restored_time(self) -> int:
        """The highest time (ms) of the restored records. -1 if there are none, or if the rows of this layout never
        expire."""
        ...

    def expired(self, observed: int) -> list[Span]:
        """Return the spans of local keys that have expired when `observed` (ms) is the highest time of the store."""
        ...


class OneRowPerRecord:
    """A layout in which each changelog record is the value of one local key, and rows never expire."""

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
    """A layout whose local keys are the keys of the changelog."""

    key_of = None

    def logs(self, local: bytes) -> bool:
        return True


class PlainLayout(SameKeys):
    """A layout whose keys and values are those of the changelog."""

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        return without_none({record.key(): record.value() for record in records})

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        log(key, stored, timestamp)


class TimestampedLayout(SameKeys):
    """A layout whose stored values begin with their timestamp, in 8 bytes, big-endian."""

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
    """Remove the entry of the records that have no key. Returns `entries` itself."""
    entries.pop(None, None)
    return entries  # type: ignore[return-value]  # the None key is gone
