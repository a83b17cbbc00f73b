"""What the topologies of `apps/topologies.py` must do, in the language of `oracles/flows.py`."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from compat_tests.oracles import slots
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.rows import Row

as_long = struct.Struct(">q").pack


def plus_one(count: int | None, _: object) -> int:
    return (count or 0) + 1


def same(row: Row) -> Iterable[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value)]


def by_value(row: Row) -> Iterable[tuple[bytes | None, bytes | None]]:
    return [(row.value, row.value)]


def timed(row: Row) -> Iterable[tuple[bytes | None, tuple[bytes | None, int]]]:
    return [(row.key, (row.value, row.timestamp))]


def the_last(_: int, now: int) -> int:
    return now


def twice(row: Row) -> Iterable[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value)] * 2


def split_words(row: Row) -> Iterable[tuple[bytes | None, bytes | None]]:
    return [(word, word) for word in (row.value or b"").split()]


def last_values(text: bytes | None, value: bytes) -> bytes:
    return (text or b"")[-40:] + value


COPY = Flow(("in",), "out", same)
COUNT = Flow(("in",), "out", same, as_long, plus_one, store="counts")
COUNT_IN_MEMORY = Flow(("in",), "out", same, as_long, plus_one)
COUNT_BY_VALUE = Flow(("in",), "out", by_value, as_long, plus_one, store="counts")
WORDS = Flow(("in",), "out", split_words, as_long, plus_one, store="counts")
COUNT_OF_OTHER = Flow(("other",), "counts", same, as_long, plus_one, store="counts")
SEVERAL = Flow(("in", "other"), "out", same, step=last_values, store="texts")
SLOTS = Flow(
    ("in",), "out", timed, slots.encode, slots.step, store="slots", later=the_last, counts=False, rows=slots.rows
)
CALLS = Flow(("in",), "out", twice, as_long, plus_one, store="counts")
REMEMBERED_TICKS = Flow(("in",), "ticks", same, store="waiting", kept_back=True)
FRAGILE_COUNT = Flow(("in",), "counts", same, as_long, plus_one, store="counts")

BY_VALUE_REPARTITION = "by-value-repartition"
WORDS_REPARTITION = "words-repartition"
