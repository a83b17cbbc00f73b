"""The rows that folds and topics send to the comparison.

*Guarantees*: all rows of a fold have the same schema; `kind` says what a row is.
*Assumes*: nothing.

| kind | one row is | fields that mean something else than their name |
|---|---|---|
| `output` | an output that should be there | `seq`: its place among its task's |
| `difference` | an entry that a changelog should have otherwise | `other`: what is there, `what`: `Problem` |
| `store` | a store that was compared | `seq`: its entries, `what`: its name |
| `input` | an input partition that was folded | `seq`: its records |
| `doubt` | a reason why outputs need not come out the same | `what`: the reason |
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from milestones.common.records import Headers

ROWS = 20_000
"""The number of rows in one batch from Python to Spark."""


class RowKind(enum.StrEnum):
    """What a row of a fold is."""

    OUTPUT = "output"
    DIFFERENCE = "difference"
    STORE = "store"
    INPUT = "input"
    DOUBT = "doubt"


class Problem(enum.StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DUPLICATE = "duplicate"
    UNEXPECTED = "unexpected"
    REORDERED = "reordered"
    WRONG = "wrong"
    MISPLACED = "misplaced"


FOLDED = pa.schema([
    ("kind", pa.string()), ("sub", pa.int32()), ("task", pa.int32()), ("seq", pa.int64()), ("sure", pa.bool_()),
    ("source", pa.string()), ("source_partition", pa.int32()), ("source_offset", pa.int64()), ("topic", pa.string()),
    ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("time", pa.int64()),
    ("headers", pa.binary()), ("other", pa.binary()), ("what", pa.string()),
])  # fmt: skip
ACTUAL = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("key", pa.binary()),
    ("value", pa.binary()), ("time", pa.int64()), ("headers", pa.binary()),
])  # fmt: skip


def batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert rows, each with one value per field, to Arrow batches."""
    source = iter(rows)
    while chunk := list(islice(source, ROWS)):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*chunk, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def headers_as_bytes(headers: Headers | None) -> bytes | None:
    """Serialise headers so that equal headers have equal bytes."""
    return repr(headers).encode() if headers else None
