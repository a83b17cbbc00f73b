"""What a power failure may leave in RocksDB's logs that its reader never comes to the end of.

A log is blocks of 32 KiB, a block is records: 4 bytes of checksum, 2 of length, 1 of type, the data. The disk may have
anything where the system hadn't written yet. The reader takes most of it for damage, and reads no further. But the
types of a log file that is used again, in a log that didn't begin so, it reads for ever (RocksDB 9, its issue
13333): a thread that opens the database never comes back. No engine here has logs used again.

*Guarantees*: such a log has damage in that place that the reader takes for damage, and ends there: a prefix of all
batches is recovered, as with any other damage. A log without such types isn't changed.
*Assumes*: the engine that opens the database may write its files. A record's checksum isn't looked at: the reader
begins each block anew, as this module does; within a block the reader ends before a wrong one, this module behind it.
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
"""The types of records in a log file that is used again."""
CUT_OFF: Final = b"\0\0\0\0\xff\xff\x01"
"""The header of a record whose data isn't there, in any block."""
READ_BYTES: Final = 32 * BLOCK_BYTES
COMPRESSES: Final = 9
"""The type of a log's first record that says how the others are compressed."""


def readable(path: Path) -> None:
    """See that the library's reader comes to the end of all logs of the database in `path`, and of its manifest, which
    has their format. Errors as the library's own: `failure` knows what they mean."""
    for log in sorted(path.glob("*.log")):
        _see_to(log)
    with suppress(FileNotFoundError):
        manifest = path / (path / "CURRENT").read_text(errors="replace").strip()
        if manifest.is_file() and (at := _endless_from(manifest)) is not None:
            raise ValueError(f"Corruption: {manifest} has no record at byte {at}")


def compressed(path: Path) -> Path | None:
    """Returns a log of the database in `path` that has compressed records; None where there is none. A library that
    can't read such records takes them for damage at the log's end, and passes over them in silence."""
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
    """Where the log has the first record that the reader doesn't come past; None where it comes to the end. What is
    appended meanwhile isn't looked at: it would begin anywhere in a block."""
    before = 0
    while data := log.read(READ_BYTES):
        for start in range(0, len(data), BLOCK_BYTES):
            at, last = start, min(start + BLOCK_BYTES, len(data)) - HEADER_BYTES
            while at <= last:
                kind = data[at + 6]
                if kind in USED_AGAIN:
                    return before + at if before + at else None
                if not kind:  # room that was never written
                    break
                at += HEADER_BYTES + data[at + 4] + (data[at + 5] << 8)
        if len(data) < READ_BYTES:
            break
        before += len(data)
    return None
