"""The common base of both RocksDB engines: settings, offsets, scans, writes that stall, and the meaning of errors.

Every namespace is a column family (`families.py`). All changelog offsets are in the *default* column family, keyed by
the name of the column family that they belong to. So keys are stored unchanged (a `get` needs no prefix), a scan never
meets an offset, and one write batch contains data and offsets.

The write-ahead log is on, and no write syncs it. The log makes data and offset of a batch one atomic step, and survives
the end of the process. A power failure may lose the last batches of the log. The offsets of these batches are lost,
too, so that the changelog replays the batches. A store without changelog loses these batches.

After a power failure, a database has a prefix of all its batches, over all column families. There are three cases:
- A log ends within a batch. Then recovery ends there, even if other logs follow.
- A log ends between two batches, and another log follows. Recovery can't notice this. But this case doesn't happen: a
  log is on the disk before the table file that replaces it, and `sync` syncs the older logs first.
- A log ends in random bytes. Recovery leaves the random bytes out, also those that the library would read for ever
  (`log_tails.py`).

RocksDB would hold a write back while flushes or compactions are behind, and `rocksdict` holds the GIL during this wait.
So such a write is refused instead (`no_slowdown`), and `unstalled` repeats it. A caller that can't wait gets a
`StateBusyError`, also if the disk is full.

*Guarantees*: only this module interprets a library's error texts.
*Assumes*: RocksDB's status texts ("Corruption: ...", "IO error: ...") are the same in all its versions.
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
"""The size of a block in RocksDB's table files, before compression."""

LARGEST_FILTER_BYTES = 8 * MIB
"""An upper bound of the filter or the index of one table file (64 MiB with six million entries)."""


@dataclass(frozen=True)
class RocksSettings:
    """The settings of RocksDB. The defaults suit many small stores in one process.

    For all stores together: `block_cache_bytes` is the memory of blocks, indexes and filters. `all_write_buffers_bytes`
    is the memory of memtables (a soft limit).
    For each store: `write_buffer_bytes` is the size of a memtable. `max_write_buffers` is the number of memtables, with
    the one that is being written. `max_open_files` is the number of open table files. `bloom_bits` is the number of
    filter bits per key.
    `compresses_log`: True compresses each record of the write-ahead log (zstd), if the library can do it.
    `faust-streaming-rocksdb` can't, and refuses such a log.
    """

    block_cache_bytes: int = 64 * MIB
    all_write_buffers_bytes: int = 64 * MIB
    write_buffer_bytes: int = 8 * MIB
    max_write_buffers: int = 3
    max_open_files: int = 128
    bloom_bits: int = 10
    compresses_log: bool = False

    def for_many_tasks(self) -> RocksSettings:
        """Return the settings for databases that have the stores of many tasks (m6).

        Memtables are larger, because many tasks write into the same one, and larger memtables make compactions rewrite
        less. The log is compressed, because it is the largest part of what such a database writes."""
        most = max(self.write_buffer_bytes, self.all_write_buffers_bytes // 2)
        return replace(self, write_buffer_bytes=min(4 * self.write_buffer_bytes, most), compresses_log=True)

    @property
    def block_cache_shard_bits(self) -> int:
        """The number of parts (shards) of an LRU cache, as a power of two. Each part has room for the filter of any
        file."""
        return max(0, (self.block_cache_bytes // LARGEST_FILTER_BYTES).bit_length() - 1)

    @property
    def max_wal_bytes(self) -> int:
        """The size of the log above which RocksDB flushes the column families with the oldest unflushed writes.
        Otherwise a column family with few writes, such as that of the offsets, would keep every log file alive."""
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
"""The RocksDB properties that metrics show, without the prefix `rocksdb.`."""

ARENA_BLOCK_BYTES = 64 * 1024
"""The bytes by which a memtable grows. RocksDB's default is an eighth of the memtable's size, which is a megabyte even
for a store with few entries."""

_OFFSET = struct.Struct(">q")


def pack_offset(offset: int) -> bytes:
    """Encode the offset as 8 bytes, big-endian."""
    return _OFFSET.pack(offset)


def unpack_offset(data: bytes | None) -> int | None:
    return None if data is None else int(_OFFSET.unpack(data)[0])


class Cursor(Protocol):
    """A library's iterator during a scan. It sees the data that existed when it was made."""

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        """Return the next entries, at most `count`. Empty at the end. Raises `StateError` if the store was closed
        during the scan."""
        ...

    def close(self) -> None:
        """Release the library's iterator, which would keep the database open."""
        ...


class Seeker(Protocol):
    """A library's iterator that several reads use one after the other: each read moves it to its first key. It sees the
    data that existed when it was made."""

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return the first `limit` entries with start <= key < end, and the next key after them (None: no more keys).

        Raises `StateError` if the store was closed. After any error the seeker is closed."""
        ...

    def close(self) -> None:
        """Release the library's iterator, which would keep the database open."""
        ...


_FIRST_CHUNK, _LARGEST_CHUNK = 16, 256


def entries(cursor: Cursor) -> Iterator[tuple[bytes, bytes]]:
    """Yield all entries of `cursor`. They are read in growing chunks, which is cheap for short and for long scans."""
    size = _FIRST_CHUNK
    while chunk := cursor.take(size):
        yield from chunk
        size = min(2 * size, _LARGEST_CHUNK)
    cursor.close()


def nothing_between(start: bytes | None, end: bytes | None) -> bool:
    """True if the range with start <= key < end (None: no bound) can't contain a key."""
    return end is not None and (start or b"") >= end


RUNNING_JOBS = "rocksdb.num-running-flushes", "rocksdb.num-running-compactions"
"""The RocksDB properties with the number of jobs that run now, in the whole database."""

DELAYED_WRITE_RATE = "rocksdb.actual-delayed-write-rate"
"""The RocksDB property with the allowed bytes per second while RocksDB slows writes down. Otherwise it is 0."""

STALL_LIMIT_MS = 300_000
"""The time for which a write that RocksDB stalls is repeated."""

STOPPED_PAUSE_MS = 10
"""The shortest pause of writes to an engine that has refused a write."""

FULL_PAUSE_MS = 1_000
"""The pause before a write to a full disk is repeated."""

FULL, ROOM = ("No space left on device", "Disk quota exceeded"), "free some space, or move state_dir to a larger disk"


def unstalled(
    write: Callable[[], None], rate: Callable[[], int], batches: Collection[Batch], what: str, *, wait: bool = True
) -> None:
    """Call `write`, which writes `batches` in one step, until RocksDB doesn't refuse it. RocksDB refuses writes while
    flushes or compactions are behind.

    `rate`: returns the property `DELAYED_WRITE_RATE`. Raises the library's errors, and `StateError` if the stall takes
    longer than `STALL_LIMIT_MS`. Without `wait`, raises `StateBusyError` if RocksDB refuses the write or the disk is
    full."""
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
    """Guards an engine against writes that come too soon after a refusal. Only writes that don't wait pass through it.

    After a refusal, RocksDB asks for a pause. During this pause the gate refuses all writes without trying them. A try
    costs as much as a write, and if it comes too soon, it uses up a part of the rate that RocksDB allows.

    *Concurrency*: threads replace one immutable value. The value isn't the error itself, because the frames of an error
    keep the database open."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._until: tuple[int, Callable[[int], StateBusyError]] | None = None

    def pass_through(self, write: Callable[[], None]) -> None:
        """Call `write`, unless the pause isn't over. Raises `StateBusyError` if it isn't, or if `write` is refused."""
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
    """Return a function that makes a copy of the error with another `pause_ms`."""
    where, reason, remedy, limit_ms, full = busy.where, busy.reason, busy.remedy, busy.limit_ms, busy.full
    return lambda pause_ms: StateBusyError(where, reason, remedy, pause_ms, limit_ms, full=full)


def _stalled(batches: Collection[Batch], rate: int, what: str) -> StateBusyError:
    pause_ms = 0
    if rate > 0:
        # RocksDB allows some bytes per second. A refused write uses up the bytes that were allowed so far, and then its
        # own size of the bytes that will be allowed. So the next try waits for twice its size. An earlier try would use
        # up more.
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
    """Translate an error of a RocksDB library into an error of this package.

    `what`: the subject of the error text. `damaged`: the stores that must be rebuilt if the error means damage."""
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
    """The names by which the errors of an engine call its content. `owners`: the stores of each namespace."""

    path: object
    owners: Owners = field(default_factory=dict)

    def __str__(self) -> str:
        """Name the only store, or all stores, and the path."""
        everything = self._everything()
        return f"{everything[0] if len(everything) == 1 else 'the stores'} in {self.path}"

    def name(self, namespace: str) -> str:
        """Return the name of a namespace for an error: the name of its store, if there is exactly one."""
        owners = [*self.owners.get(namespace, ())]
        return str(owners[0]) if len(owners) == 1 else f"store {namespace!r}"

    def failure(self, error: Exception, namespace: str | None = None) -> StateError:
        """Translate a library's error (see the function `failure`). Without a namespace, damage means damage of all
        stores of the database."""
        if namespace is None:
            return failure(error, str(self), self._everything())
        return failure(error, f"{self.name(namespace)} in {self.path}", self.owners.get(namespace, ()))

    def _everything(self) -> list[StoreId]:
        return [store for stores in list(self.owners.values()) for store in list(stores)]

    def closed(self, namespace: str | None = None) -> StateError:
        """Make the error of a call to a closed namespace, or (None) to the closed database."""
        what = str(self) if namespace is None else self.name(namespace)
        return StateError(f"{what} was closed: its task was closed, moved, or its store is being rebuilt")


def _text(error: Exception) -> str:
    """Return the text of an error. One of the libraries raises errors whose text is bytes."""
    parts = (part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in error.args)
    return " ".join(parts).strip() or type(error).__name__
