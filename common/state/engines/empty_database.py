"""Writes the files of a RocksDB database that has column families and no entries, as the library would write them.

A manifest is a log (format in `log_tails.py`) of edits. An edit is a list of fields. Each field begins with its number,
which determines the format of the bytes that follow. All versions of RocksDB read these fields. Newer versions have
more fields.

*Guarantees*: the file `CURRENT`, by which the library recognises a database, is written last. So if a crash interrupts
the writing, there is no database yet, and the files are written anew. Nothing is synced: before the library takes a
write, it syncs a manifest and a `CURRENT` of its own. If the power fails before that, the database is empty or damaged,
and has no data to lose.
*Assumes*: no other process uses the folder.

*Why this way*: the library makes a database with ten fsyncs, and each column family with three more. `rocksdict` holds
Python's global lock (GIL) during all of them, so that no other thread runs. To open an existing database takes five
fsyncs, and the files of this module make the library believe that there is one.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Final

from milestones.common.state.engines.log_tails import BLOCK_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

MANIFEST: Final = "MANIFEST-000001"
COMPARATOR, LOG_NUMBER, NEXT_FILE, LAST_SEQUENCE, FAMILY, ADDED_FAMILY, LARGEST_FAMILY = 1, 2, 3, 4, 200, 201, 203
"""The numbers of the fields of an edit."""
BYTEWISE: Final = b"leveldb.BytewiseComparator"
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
"""The types of a log's records: a whole entry, or the first, a middle or the last part of an entry."""
IDENTITY, BEGUN = "IDENTITY", "CURRENT.begun"


def is_unused(path: Path) -> bool:
    """True if the folder is missing, empty, or has only files of an interrupted `write_empty_database`. Raises
    `OSError`."""
    return not path.exists() or {entry.name for entry in path.iterdir()} <= {MANIFEST, IDENTITY, BEGUN}


def write_empty_database(path: Path, families: Sequence[str]) -> None:
    """Write a database with these column families and the default one. Makes the folder `path`. Raises `OSError`."""
    path.mkdir(parents=True, exist_ok=True)
    (path / MANIFEST).write_bytes(log(edits(families)))
    (path / IDENTITY).write_text(str(uuid.uuid4()), encoding="ascii")
    begun = path / BEGUN
    begun.write_text(f"{MANIFEST}\n", encoding="ascii")
    begun.rename(path / "CURRENT")


def edits(families: Sequence[str]) -> list[bytes]:
    """Return the edits of a new database: first its numbers, then one edit for each column family."""
    comparator = number(COMPARATOR) + text(BYTEWISE)
    start = number(LOG_NUMBER) + number(0) + number(NEXT_FILE) + number(2) + number(LAST_SEQUENCE) + number(0)
    made = [comparator + start]
    for at, family in enumerate(families, 1):
        of_family = number(FAMILY) + number(at) + number(ADDED_FAMILY) + text(family.encode())
        made.append(comparator + number(LOG_NUMBER) + number(0) + number(LARGEST_FAMILY) + number(at) + of_family)
    return made


def number(value: int) -> bytes:
    """Encode a number in groups of 7 bits, the lowest group first. The highest bit of a byte is set if another group
    follows."""
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def text(data: bytes) -> bytes:
    return number(len(data)) + data


def log(entries: Iterable[bytes]) -> bytes:
    """Return the bytes of a log with these entries. No record crosses the end of a block."""
    written = bytearray()
    for entry in entries:
        rest, begun = entry, False
        while rest or not begun:
            room = BLOCK_BYTES - len(written) % BLOCK_BYTES
            if room < HEADER_BYTES:
                written += bytes(room)
                continue
            part, rest = rest[: room - HEADER_BYTES], rest[room - HEADER_BYTES :]
            written += record(part, (MIDDLE if rest else LAST) if begun else (FIRST if rest else WHOLE))
            begun = True
    return bytes(written)


def record(data: bytes, kind: int) -> bytes:
    """Return a record of a log: its header (checksum, length, type), then `data`."""
    return struct.pack("<IHB", masked(crc32c(bytes([kind]) + data)), len(data), kind) + data


def masked(crc: int) -> int:
    """Mask a checksum as RocksDB's logs do. A checksum over data that itself contains checksums would be weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _steps() -> tuple[int, ...]:
    steps = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        steps.append(crc)
    return tuple(steps)


_STEPS: Final = _steps()


def crc32c(data: bytes) -> int:
    """Compute the CRC-32C, the CRC with Castagnoli's polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _STEPS[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
