"""What the readers of a global table may find: rows of later versions, never of earlier ones.

| kind | what it means |
|---|---|
| `older-row` | a record of a partition was joined with an older version of a row than one before it |

*Guarantees*: pure functions.
*Assumes*: outputs are `name=version`, with headers that say which input each comes from; versions are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Row, origin_of


def backwards(outputs: Iterable[Row]) -> Findings:
    """Outputs in the order in which they were written, per partition of the input and of the output."""
    newest: dict[tuple[object, ...], int] = {}
    findings: Findings = []
    for row in outputs:
        name, _, version = (row.value or b"").rpartition(b"=")
        origin = origin_of(row)
        place = row.partition, None if origin is None else origin.partition, name
        if int(version) < newest.get(place, -1):
            findings.append(Finding("older-row", f"{name!r} is {int(version)} after {newest[place]}, at {row}"))
        newest[place] = max(newest.get(place, -1), int(version))
    return findings
