"""What both RocksDB engines share: settings, names of column families, offsets, scans, and the meaning of errors.

Where things are: every namespace is a column family, and all changelog offsets are in the *default* column family,
keyed by the name of the column family they belong to. So keys are stored as they are (a `get` needs no prefix), no
scan can meet an offset, and one write batch holds data and offsets.

A column family's name is the namespace's name plus a unique suffix: a namespace that is dropped and created again
gets another column family, and an offset of the former one can't be taken for its own, whatever a crash leaves.

The write-ahead log is on, and never synced: it makes data and offset of a batch one atomic step, and survives the
end of the process. What a power failure takes from its end, the changelog replays, for the offset goes with it.

*Guarantees*: `failure` is the only place that reads a library's error texts.
*Assumes*: RocksDB's status texts ("Corruption: ...", "IO error: ..."), the same in all its versions.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from milestones.common.errors import StateCorruptError, StateError, StateLockedError

MIB = 1024 * 1024


@dataclass(frozen=True)
class RocksSettings:
    """Sizes in bytes. Fit for many small stores in one process.

    `block_cache_bytes`: blocks, indexes and filters of all stores. `all_write_buffers_bytes`: memtables of all stores
    (a soft limit). Of one store: `write_buffer_bytes`, a memtable; `max_write_buffers`, memtables with the one being
    written; `max_open_files`, table files. `bloom_bits`: per key.
    """

    block_cache_bytes: int = 64 * MIB
    all_write_buffers_bytes: int = 64 * MIB
    write_buffer_bytes: int = 8 * MIB
    max_write_buffers: int = 3
    max_open_files: int = 128
    bloom_bits: int = 10

    @property
    def max_wal_bytes(self) -> int:
        """Above this the column families with the oldest unflushed writes are flushed: rare writes, such as the
        offsets, would keep every log file alive."""
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
"""By which a memtable grows. RocksDB's default is an eighth of its size: a megabyte for a store of a few entries."""

_OFFSET = struct.Struct(">q")


def pack_offset(offset: int) -> bytes:
    """8 bytes, big-endian."""
    return _OFFSET.pack(offset)


def unpack_offset(data: bytes | None) -> int | None:
    return None if data is None else int(_OFFSET.unpack(data)[0])


def new_family(namespace: str) -> str:
    """A column family's name for `namespace` that was never used before."""
    return f"{namespace}#{uuid.uuid4().hex[:12]}"


def families(names: Iterable[str]) -> dict[str, str]:
    """Column family by namespace, of the column families of a database."""
    return {name.rpartition("#")[0]: name for name in names if "#" in name}


class Cursor(Protocol):
    """A library's iterator at work. Fixed to the data as they were when it was made."""

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        """The next entries, at most `count`; none at the end. `StateError` when the store was closed meanwhile."""
        ...

    def close(self) -> None:
        """Let go of the library's iterator, without which the database can't be closed."""
        ...


_FIRST_CHUNK, _LARGEST_CHUNK = 16, 256


def entries(cursor: Cursor) -> Iterator[tuple[bytes, bytes]]:
    """All of `cursor`, read in chunks that grow: cheap for a scan that is left early and for a long one."""
    size = _FIRST_CHUNK
    while chunk := cursor.take(size):
        yield from chunk
        size = min(2 * size, _LARGEST_CHUNK)
    cursor.close()


def nothing_between(start: bytes | None, end: bytes | None) -> bool:
    """Whether no key can be in the range."""
    return end is not None and (start or b"") >= end


def closed(store: str) -> StateError:
    return StateError(f"store {store!r} was closed: its task was closed, moved, or its store is being rebuilt")


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
        ("No space left on device", "Disk quota exceeded"),
        StateError,
        "disk full: free some space, or move state_dir to a larger disk; committed state is rebuilt from the changelog",
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
        ("Corruption", "checksum mismatch", "No such file or directory", "Unable to parse"),
        StateCorruptError,
        "is damaged: it has to be rebuilt from its changelog",
    ),
)
_OTHER = _Meaning(("",), StateError, "failed")


def failure(error: Exception, store: str | None, path: object) -> StateError:
    """The error of this package that `error`, raised by a RocksDB library, stands for."""
    if isinstance(error, StateError):
        return error
    text = _text(error)
    meaning = next((known for known in _MEANINGS if any(part in text for part in known.texts)), _OTHER)
    what = f"store {store!r} in {path}" if store else f"the stores in {path}"
    message = f"{what}: {meaning.says} ({text})"
    if meaning.error is StateCorruptError:
        return StateCorruptError(message, store)
    return meaning.error(message)


def _text(error: Exception) -> str:
    """One of the libraries raises bytes."""
    parts = (part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in error.args)
    return " ".join(parts).strip() or type(error).__name__
