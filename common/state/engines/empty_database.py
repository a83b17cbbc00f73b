"""The files of a RocksDB database that has column families and no entries, as the library itself would write them.

The library makes a database with ten fsyncs, and a column family with three more, and `rocksdict` holds Python's global
lock over all of them. A database that has the files of this module is opened by the library as one of an earlier run,
with five.

A manifest is a log (`log_tails.py`) of edits. An edit is fields, each of a number and what the number says follows. All
versions of RocksDB read these fields; newer ones add to them.

*Guarantees*: `CURRENT`, by which the library knows a database, comes last: what was cut off is no database yet, and is
written anew. Nothing is synced: the library syncs a manifest and a `CURRENT` of its own before it takes a write, and
what a power failure leaves until then is empty or damaged, with nothing in it to lose.
*Assumes*: no other process uses the folder.
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
"""The numbers of an edit's fields."""
BYTEWISE: Final = b"leveldb.BytewiseComparator"
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
"""The types of a log's records: a whole entry, or a part of one."""
IDENTITY, BEGUN = "IDENTITY", "CURRENT.begun"


def is_unused(path: Path) -> bool:
    """True if nothing lies in the folder, which need not be there, except what was cut off here. `OSError`."""
    return not path.exists() or {entry.name for entry in path.iterdir()} <= {MANIFEST, IDENTITY, BEGUN}


def write_empty_database(path: Path, families: Sequence[str]) -> None:
    """Write a database with these column families, and the default one, into the folder, which is made. `OSError`."""
    path.mkdir(parents=True, exist_ok=True)
    (path / MANIFEST).write_bytes(log(edits(families)))
    (path / IDENTITY).write_text(str(uuid.uuid4()), encoding="ascii")
    begun = path / BEGUN
    begun.write_text(f"{MANIFEST}\n", encoding="ascii")
    begun.rename(path / "CURRENT")


def edits(families: Sequence[str]) -> list[bytes]:
    """The edits that make a database out of nothing: its numbers, then each column family."""
    comparator = number(COMPARATOR) + text(BYTEWISE)
    start = number(LOG_NUMBER) + number(0) + number(NEXT_FILE) + number(2) + number(LAST_SEQUENCE) + number(0)
    made = [comparator + start]
    for at, family in enumerate(families, 1):
        of_family = number(FAMILY) + number(at) + number(ADDED_FAMILY) + text(family.encode())
        made.append(comparator + number(LOG_NUMBER) + number(0) + number(LARGEST_FAMILY) + number(at) + of_family)
    return made


def number(value: int) -> bytes:
    """A number in groups of 7 bits, the lowest first; all but the last one have the highest bit set."""
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def text(data: bytes) -> bytes:
    return number(len(data)) + data


def log(entries: Iterable[bytes]) -> bytes:
    """The bytes of a log that has these entries. No record crosses the border of a block."""
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
    """A record with its header: checksum, length, type."""
    return struct.pack("<IHB", masked(crc32c(bytes([kind]) + data)), len(data), kind) + data


def masked(crc: int) -> int:
    """The checksum as a log has it: one of data that has checksums itself would be weak."""
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
    """The CRC-32 of Castagnoli's polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _STEPS[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
