"""The table that a join of two tables ends as.

| kind | what was found |
|---|---|
| lost | a row that the join has isn't there |
| wrong-value | a row has another value than the join's |
| stale | a row is there that the join doesn't have |

*Guarantees*: pure.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Row

Table = Mapping[bytes, bytes]


def folded(rows: Iterable[Row]) -> Table:
    """The last value of each key; records of one key are in the order of their partition."""
    last = {row.key or b"": row.value for row in rows}
    return {key: value for key, value in last.items() if value is not None}


def joined(
    left: Table, right: Table, of_row: Callable[[bytes], bytes | None], join: Callable[[bytes, bytes | None], bytes]
) -> Table:
    """The left join by the foreign key that `of_row` gives of a value."""
    keys = {key: of_row(value) for key, value in left.items()}
    return {key: join(value, right.get(keys[key] or b"")) for key, value in left.items()}


def ends_as(found: Table, wanted: Table, *, leftovers: bool = False) -> Findings:
    """Every row is there, and no other. `leftovers`: rows may be there that were results once (an inner join)."""
    lost = [Finding("lost", repr(key)) for key in wanted if key not in found]
    wrong = [
        Finding("wrong-value", f"{key!r}: {found[key]!r}, not {value!r}")
        for key, value in wanted.items()
        if found.get(key, value) != value
    ]
    stale = [Finding("stale", f"{key!r}: {value!r}") for key, value in found.items() if key not in wanted]
    return lost + wrong + ([] if leftovers else stale)
