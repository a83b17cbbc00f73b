"""A small right world for the planted faults: inputs, the outputs and changelog that they must give."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence

from compat_tests.oracles.changelog import StoreDump
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import ORDINAL, Row, origin_header

PARTITIONS = 2
KEYS = [f"k{number}".encode() for number in range(5)]

PAIRS = Flow(("in",), "out", lambda row: [(row.key, row.value), (row.key, b"again")])


def inputs(count: int = 40) -> list[Row]:
    """Records of five keys on two partitions."""
    ends = Counter[int]()
    rows = []
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        partition = partition_of(key, PARTITIONS)
        offset, ends[partition] = ends[partition], ends[partition] + 1
        rows.append(Row("in", partition, offset, key, b"v%d" % number, 1_000 + number, (header(partition, offset),)))
    return rows


def header(partition: int, offset: int) -> tuple[str, bytes]:
    return origin_header("in", partition, offset)


def copies(rows: Sequence[Row]) -> list[Row]:
    """What `COPY` makes of them."""
    return placed([row._replace(topic="out") for row in rows])


def pairs(rows: Sequence[Row]) -> list[Row]:
    """What `PAIRS` makes of them."""
    twice = [
        row._replace(topic="out", value=value, headers=(*row.headers, (ORDINAL, b"%d" % ordinal)))
        for row in rows
        for ordinal, value in enumerate((row.value, b"again"))
    ]
    return placed(twice)


def counts(rows: Sequence[Row]) -> list[Row]:
    """What `COUNT` makes of them."""
    so_far = Counter[bytes | None]()
    made = []
    for row in rows:
        so_far[row.key] += 1
        made.append(row._replace(topic="out", value=struct.pack(">q", so_far[row.key])))
    return placed(made)


def placed(rows: Sequence[Row]) -> list[Row]:
    """The rows with the offsets that they get when they are written in this order."""
    ends = Counter[int]()
    written = []
    for row in rows:
        written.append(row._replace(offset=ends[row.partition]))
        ends[row.partition] += 1
    return written


def swapped(rows: Sequence[Row], one: int, other: int) -> list[Row]:
    """The rows with two of them in each other's place."""
    changed = list(rows)
    changed[one], changed[other] = changed[other], changed[one]
    return placed(changed)


def changelog(partition: int = 0) -> list[Row]:
    """One partition of the changelog of `COUNT`, with a deletion in it."""
    rows = [row for row in counts(inputs()) if row.partition == partition]
    gone = rows[0]._replace(value=None, timestamp=9_000, headers=())
    return placed([row._replace(topic="log", headers=()) for row in (*rows, gone)])


def dump(rows: Sequence[Row], below: int | None = None) -> StoreDump:
    """The store that this changelog makes, up to `below`."""
    entries: dict[bytes, bytes] = {}
    for row in rows[: len(rows) if below is None else below]:
        assert row.key is not None
        entries.pop(row.key, None)
        if row.value is not None:
            entries[row.key] = struct.pack(">q", row.timestamp) + row.value
    return StoreDump("0_0", "counts", len(rows) if below is None else below, entries)
