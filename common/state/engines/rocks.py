"""The common base of both RocksDB engines: settings, offsets, scans, writes that stall, and the meaning of errors.

Every namespace is a column family (`families.py`), and all changelog offsets are in the *default* column family, keyed
by the name of their column family. So keys are stored unchanged (a `get` needs no prefix), no scan can meet an offset,
and one write batch holds data and offsets.

The write-ahead log is on, and no write syncs it: it makes data and offset of a batch one atomic step, and survives the
end of the process. The changelog replays the batches that a power failure takes from the log's end, since their offsets
are gone, too. A store without changelog loses these batches. What a power failure leaves is a prefix of all batches of
a database, over its column families: recovery ends at a log that ends within a batch, whatever logs follow it. A log
that ends between two batches and has a follower would be taken for a whole one; but it is on the disk before the table
file that takes its place, and `sync` has the older logs on the disk first. Noise at a log's end is left out, too, also
what the library would never come past (`log_tails.py`).

A write that RocksDB would hold back, as flushes or compactions are behind, is refused (`no_slowdown`), made anew and
retried (`unstalled`): `rocksdict` holds the GIL while it waits. A caller that can't wait gets a `StateBusyError`,
also when the disk is full.

*Guarantees*: only this module reads a library's error texts.
*Assumes*: RocksDB's status texts ("Corruption: ...", "IO error: ..."), the same in all its versions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import StateBusyError, StateCorruptError, StateError, StateFullError, StateLockedError
from milestones.common.records import StoreId
from milestones.common.state.engine import Batch, Owners
from milestones.common.state.refusals import Refusals
from milestones.common.state.steps import size

MIB = 1024 * 1024

BLOCK_BYTES = 4 * 1024
"""RocksDB's size of a block of a file, before compression."""

LARGEST_FILTER_BYTES = 8 * MIB
"""More than the filter of a file takes, or its index: a file of 64 MiB with six million entries."""


@dataclass(frozen=True)
class RocksSettings:
    """The settings of RocksDB, in bytes, fit for many small stores in one process.

    `block_cache_bytes`: blocks, indexes and filters of all stores. `all_write_buffers_bytes`: memtables of all stores
    (a soft limit). Per store: `write_buffer_bytes`, a memtable; `max_write_buffers`, the number of memtables, with the
    one being written; `max_open_files`, table files. `bloom_bits`: per key. `compresses_log`: each record of the log
    (zstd), where the library can; the second one can't, and refuses such a log.
    """

    block_cache_bytes: int = 64 * MIB
    all_write_buffers_bytes: int = 64 * MIB
    write_buffer_bytes: int = 8 * MIB
    max_write_buffers: int = 3
    max_open_files: int = 128
    bloom_bits: int = 10
    compresses_log: bool = False

    def for_many_tasks(self) -> RocksSettings:
        """For databases that have the stores of many tasks: of a store's memtable all of them write into, the larger is
        it, the less is written again by compactions. The log is compressed: it is the most of what such a database
        writes."""
        most = max(self.write_buffer_bytes, self.all_write_buffers_bytes // 2)
        return replace(self, write_buffer_bytes=min(4 * self.write_buffer_bytes, most), compresses_log=True)

    @property
    def block_cache_shard_bits(self) -> int:
        """The power of two of the parts that a cache is cut into by default. Each part has room for any file's
        filter."""
        return max(0, (self.block_cache_bytes // LARGEST_FILTER_BYTES).bit_length() - 1)

    @property
    def max_wal_bytes(self) -> int:
        """The size of the log above which the column families with the oldest unflushed writes are flushed: rare
        writes, such as the offsets, would keep every log file alive."""
        return 2 * self.write_buffer_bytes


STATISTICS = (
    "background-errors",
    "compaction-pending",
    "cur-size-all-mem-tables",
    "estimate-num-keys",
    "estimate-pending-compaction-bytes",
    "estimate-table-readers-mem",
    "live-sst-files-size",
    "mem-table-flush-pending",
    "num-immutable-mem-table",
    "num-running-compactions",
    "num-running-flushes",
    "total-sst-files-size",
)
"""RocksDB's properties that are shown as metrics, without the prefix `rocksdb.`."""

ARENA_BLOCK_BYTES = 64 * 1024
"""The bytes by which a memtable grows. RocksDB's default is an eighth of the memtable's size: a megabyte for a store of
a few entries."""

_OFFSET = struct.Struct(">q")


def pack_offset(offset: int) -> bytes:
    """The offset as 8 bytes, big-endian."""
    return _OFFSET.pack(offset)


def unpack_offset(data: bytes | None) -> int | None:
    return None if data is None else int(_OFFSET.unpack(data)[0])


class Cursor(Protocol):
    """A library's iterator at work, fixed to the data at the time of its making."""

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        """The next entries, at most `count`; none at the end. Raises `StateError` if the store was closed meanwhile."""
        ...

    def close(self) -> None:
        """Release the library's iterator, which would keep the database open."""
        ...


class Seeker(Protocol):
    """A library's iterator that is moved anew for each read, and sees the data at the time of its making."""

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """The first `limit` entries with start <= key < end, and the key behind them, None at the end. `StateError`
        when the store was closed meanwhile; after any error the seeker is closed."""
        ...

    def close(self) -> None:
        """Release the library's iterator, which would keep the database open."""
        ...


_FIRST_CHUNK, _LARGEST_CHUNK = 16, 256


def entries(cursor: Cursor) -> Iterator[tuple[bytes, bytes]]:
    """All entries of `cursor`, read in growing chunks: cheap for a scan that is left early and for a long one."""
    size = _FIRST_CHUNK
    while chunk := cursor.take(size):
        yield from chunk
        size = min(2 * size, _LARGEST_CHUNK)
    cursor.close()


def nothing_between(start: bytes | None, end: bytes | None) -> bool:
    """True if no key can be in the range."""
    return end is not None and (start or b"") >= end


DELAYED_WRITE_RATE = "rocksdb.actual-delayed-write-rate"
"""RocksDB's property: the allowed bytes per second while RocksDB slows writes down, else 0."""

STALL_LIMIT_MS = 300_000
"""How long a write is made again that RocksDB stalls."""

STOPPED_PAUSE_MS = 10
"""The least pause of all writes to an engine that has refused one."""

FULL_PAUSE_MS = 1_000
"""The pause before a write to a full disk is made again."""

FULL, ROOM = ("No space left on device", "Disk quota exceeded"), "free some space, or move state_dir to a larger disk"


def unstalled(
    write: Callable[[], None], rate: Callable[[], int], batches: Collection[Batch], what: str, *, wait: bool = True
) -> None:
    """Call `write`, which writes `batches` at once or is refused, until RocksDB doesn't refuse: RocksDB stalls writes
    while flushes or compactions are behind. `rate`: `DELAYED_WRITE_RATE`. The library's errors, or `StateError` when
    the stall takes longer than `STALL_LIMIT_MS`.

    `wait`: otherwise a write that is refused, or for which the disk has no room, is a `StateBusyError`."""
    refusals = Refusals(SystemClock())
    while True:
        try:
            write()
            return refusals.made()
        except Exception as error:
            stalled = "Write stall" in _text(error)
            if not wait and (stalled or _is_full(error)):
                raise (_stalled(batches, rate(), what) if stalled else _full(what)) from error
            if not stalled:
                raise
        refusals.wait(_stalled(batches, rate(), what))


class Gate:
    """Before the writes to one engine that don't wait: one is refused without a try for as long as the last refusal
    asks for. A try costs as much as a write, and one that comes too soon uses up what RocksDB allows the next.

    *Concurrency*: threads swap one immutable value. It isn't the error itself, whose frames keep the database open."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._until: tuple[int, Callable[[int], StateBusyError]] | None = None

    def pass_through(self, write: Callable[[], None]) -> None:
        """Call `write`, unless it is too soon. `StateBusyError`."""
        until = self._until
        if until is not None and (left_ms := until[0] - self._clock.monotonic_ms()) > 0:
            raise until[1](left_ms)
        try:
            write()
            self._until = None
        except StateBusyError as busy:
            self._until = self._clock.monotonic_ms() + max(busy.pause_ms, STOPPED_PAUSE_MS), _like(busy)
            raise


def _like(busy: StateBusyError) -> Callable[[int], StateBusyError]:
    """Makes an error of the same, by its `pause_ms`."""
    where, reason, remedy, limit_ms, full = busy.where, busy.reason, busy.remedy, busy.limit_ms, busy.full
    return lambda pause_ms: StateBusyError(where, reason, remedy, pause_ms, limit_ms, full=full)


def _stalled(batches: Collection[Batch], rate: int, what: str) -> StateBusyError:
    pause_ms = 0
    if rate > 0:
        # A refusal uses up the allowance so far, and as much as it asked for of the allowance to come: only a later
        # allowance counts for the next try, and a try before that uses up more.
        pause_ms = 1 + math.ceil(2_000 * sum(map(size, batches)) / rate)
    return StateBusyError(
        what,
        "flushes or compactions are behind",
        "see that the disk is sound, or move state_dir to a faster one",
        min(pause_ms, STALL_LIMIT_MS),
        STALL_LIMIT_MS,
    )


def _full(what: str) -> StateBusyError:
    return StateBusyError(what, "the disk is full", ROOM, FULL_PAUSE_MS, full=True)


def _is_full(error: Exception) -> bool:
    return any(part in _text(error) for part in FULL)


@dataclass(frozen=True)
class _Meaning:
    texts: tuple[str, ...]
    error: type[StateError]
    says: str


# In this order: RocksDB wraps the system's errors into "Corruption" when it meets them while it opens a table file.
_MEANINGS = (
    _Meaning(
        ("lock hold by current process", "While lock file"),
        StateLockedError,
        "is open elsewhere, in this process or in another one",
    ),
    _Meaning(
        FULL,
        StateFullError,
        f"disk full: {ROOM}; committed state is rebuilt from the changelog",
    ),
    _Meaning(
        ("Too many open files",),
        StateError,
        "too many open files: raise the limit of this process (ulimit -n)",
    ),
    _Meaning(
        ("Permission denied", "Operation not permitted", "Read-only file system"),
        StateError,
        "no permission to write: let this user own state_dir, or choose another one",
    ),
    _Meaning(
        ("Corruption", "checksum mismatch", "No such file or directory", "Unable to parse", "Input/output error"),
        StateCorruptError,
        "is damaged: it has to be rebuilt from its changelog",
    ),
)
_OTHER = _Meaning(("",), StateError, "failed")


def failure(error: Exception, what: str, damaged: Iterable[StoreId] = ()) -> StateError:
    """The error of this package for `error`, raised by a RocksDB library. `what`: the subject, a noun. `damaged`: the
    stores that have to be rebuilt if the error means damage."""
    if isinstance(error, StateError):
        return error
    text = _text(error)
    meaning = next((known for known in _MEANINGS if any(part in text for part in known.texts)), _OTHER)
    message = f"{what}: {meaning.says} ({text})"
    if meaning.error is StateCorruptError:
        return StateCorruptError(message, damaged)
    return meaning.error(message)


@dataclass(frozen=True)
class Contents:
    """The content of a database, or of an engine in memory, for its errors. `owners`: the stores of its namespaces."""

    path: object
    owners: Owners = field(default_factory=dict)

    def __str__(self) -> str:
        """The names of all stores."""
        everything = self._everything()
        return f"{everything[0] if len(everything) == 1 else 'the stores'} in {self.path}"

    def name(self, namespace: str) -> str:
        """The name of a namespace: that of its store, if that is known."""
        owners = [*self.owners.get(namespace, ())]
        return str(owners[0]) if len(owners) == 1 else f"store {namespace!r}"

    def failure(self, error: Exception, namespace: str | None = None) -> StateError:
        """`failure` of one namespace, or of the whole database, all of whose stores are damaged then."""
        if namespace is None:
            return failure(error, str(self), self._everything())
        return failure(error, f"{self.name(namespace)} in {self.path}", self.owners.get(namespace, ()))

    def _everything(self) -> list[StoreId]:
        return [store for stores in list(self.owners.values()) for store in list(stores)]

    def closed(self, namespace: str | None = None) -> StateError:
        """The error of a call to a closed namespace, or to the closed database."""
        what = str(self) if namespace is None else self.name(namespace)
        return StateError(f"{what} was closed: its task was closed, moved, or its store is being rebuilt")


def _text(error: Exception) -> str:
    """The text of an error; one of the libraries raises bytes."""
    parts = (part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in error.args)
    return " ".join(parts).strip() or type(error).__name__
