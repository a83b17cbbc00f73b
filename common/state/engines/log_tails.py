"""Mends RocksDB logs that a power failure has left in a state in which RocksDB would read them for ever.

A log consists of blocks of 32 KiB, and a block of records. A record has a checksum (4 bytes), a length (2), a type (1)
and its data. After a power failure, a log may end in random bytes. Usually RocksDB finds damage there and reads no
further. But some record types exist only in recycled log files. If one of these types occurs in a log that isn't
recycled, RocksDB 9 reads for ever (its issue 13333), and the thread that opens the database never returns. No engine
here recycles log files.

*Guarantees*: a log with such a record is cut before this record, and ends in a header that RocksDB takes for damage. So
a prefix of all batches is recovered, as with any other damage. A log without such a record isn't changed.
*Assumes*: the engine that opens the database may write its files. This module doesn't check the checksums of records.
Within a block, RocksDB stops at a wrong checksum, and this module reads on. RocksDB and this module begin anew with the
next block.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

_log: Final = logging.getLogger(__name__)

BLOCK_BYTES: Final = 32 * 1024
HEADER_BYTES: Final = 7
USED_AGAIN: Final = frozenset([5, 6, 7, 8, 11, 131])
"""The types of records that occur only in recycled log files."""
CUT_OFF: Final = b"\0\0\0\0\xff\xff\x01"
"""A header with a length that exceeds every block, so that RocksDB takes the record for cut off."""
READ_BYTES: Final = 32 * BLOCK_BYTES
COMPRESSES: Final = 9
"""The type of a log's first record if the other records are compressed."""


def readable(path: Path) -> None:
    """Make all logs of the database in `path` such that RocksDB can read them to their end.

    The manifest has the format of a log, and isn't mended: raises `ValueError` if RocksDB would read it for ever. The
    text is like that of the library's errors, so that `failure` turns it into a `StateCorruptError`."""
    for log in sorted(path.glob("*.log")):
        _see_to(log)
    with suppress(FileNotFoundError):
        manifest = path / (path / "CURRENT").read_text(errors="replace").strip()
        if manifest.is_file() and (at := _endless_from(manifest)) is not None:
            raise ValueError(f"Corruption: {manifest} has no record at byte {at}")


def compressed(path: Path) -> Path | None:
    """Find a log of the database in `path` that has compressed records. Returns None if there is none.

    A library that can't read compressed records takes them for damage at the log's end, and skips them without an
    error."""
    for log in sorted(path.glob("*.log")):
        with log.open("rb") as file:
            head = file.read(HEADER_BYTES)
        if len(head) == HEADER_BYTES and head[-1] == COMPRESSES and log.stat().st_size > head[4] + HEADER_BYTES:
            return log
    return None


def _see_to(log: Path) -> None:
    at = _endless_from(log)
    if at is None:
        return
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(at)
        file.write(CUT_OFF)
        file.truncate()
    _log.warning(
        "%s ends at byte %d now: the %d bytes from there on were never written, as after a power failure; what was "
        "committed there is replayed from the changelog", log, at, size - at,
    )  # fmt: skip


def _endless_from(log: Path) -> int | None:
    with log.open("rb") as file:
        return endless_from(file)


def endless_from(log: BinaryIO) -> int | None:
    """Return the position of the first record at which RocksDB would read for ever. None if there is no such record.

    Bytes that are appended during this read aren't checked, because they may begin in the middle of a block."""
    before = 0
    while data := log.read(READ_BYTES):
        for start in range(0, len(data), BLOCK_BYTES):
            at, last = start, min(start + BLOCK_BYTES, len(data)) - HEADER_BYTES
            while at <= last:
                kind = data[at + 6]
                if kind in USED_AGAIN:
                    return before + at if before + at else None
                if not kind:  # the rest of the block was never written
                    break
                at += HEADER_BYTES + data[at + 4] + (data[at + 5] << 8)
        if len(data) < READ_BYTES:
            break
        before += len(data)
    return None
