"""What the topologies of `apps/topologies.py` must do, in the language of `oracles/flows.py`."""

from __future__ import annotations

import struct

from compat_tests.oracles import slots
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.rows import Row

as_long = struct.Struct(">q").pack


def plus_one(count: int | None, _: object) -> int:
    return (count or 0) + 1


def same(row: Row) -> list[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value)]


ELSEWHERE = b"elsewhere"
"""What the values of `elsewhere` begin with that go to the topic of this name."""
AGAIN = b"elsewhere again"


def here(row: Row) -> list[tuple[bytes | None, bytes | None]]:
    return [] if (row.value or b"").startswith(ELSEWHERE) else same(row)


def there_again(row: Row) -> list[tuple[bytes | None, bytes | None]]:
    return same(row) if row.value == AGAIN else []


COPY = Flow(("in",), "out", same)
HERE, THERE_AGAIN = Flow(("in",), "out", here), Flow(("in",), "elsewhere", there_again)
LAST = Flow(("in",), "last", same, counts=False)
COUNT = Flow(("in",), "out", same, as_long, plus_one, store="counts")
COUNT_IN_MEMORY = Flow(("in",), "out", same, as_long, plus_one)
COUNT_BY_VALUE = Flow(("in",), "out", lambda row: [(row.value, row.value)], as_long, plus_one, store="counts")
WORDS = Flow(
    ("in",), "out", lambda row: [(word, word) for word in (row.value or b"").split()], as_long, plus_one, store="counts"
)
COUNT_OF_OTHER = Flow(("other",), "counts", same, as_long, plus_one, store="counts")
COUNT_BESIDE = Flow(("other",), "beside", same, as_long, plus_one, store="others")
SEVERAL = Flow(("in", "other"), "out", same, step=lambda text, value: (text or b"")[-40:] + value, store="texts")
SLOTS = Flow(
    ("in",), "out", lambda row: [(row.key, (row.value, row.timestamp))], slots.encode, slots.step, store="slots",
    later=lambda _, now: now, counts=False, rows=slots.rows,
)  # fmt: skip
EVERYWHERE = Flow(("in",), "out", lambda row: [(row.key, b"%s=row of %s" % (row.value, row.value))])
"""With the rows that `global_rows` writes."""
CALLS = Flow(("in",), "out", lambda row: same(row) * 2, as_long, plus_one, store="counts")
REMEMBERED_TICKS = Flow(("in",), "ticks", same, store="waiting", kept_back=True)
FRAGILE_COUNT = Flow(("in",), "counts", same, as_long, plus_one, store="counts")

BY_VALUE_REPARTITION = "by-value-repartition"
WORDS_REPARTITION = "words-repartition"
FOREIGN_KEY_TOPICS = tuple(
    f"{name}-subscription-{way}-topic" for way in ("registration", "response") for name in ("of", "found")
)
