"""Committed offsets against the ends of the input topics.

| kind | what was found |
|---|---|
| unprocessed | records lie behind the committed offset |
| beyond-end | the committed offset is beyond the partition's end |
| went-back | a commit put a partition's offset back |
| not-committed | a partition with records has no committed offset |

*Guarantees*: pure.
*Assumes*: nothing was written to the topics since they were read; `rows` were read under read committed, so a tail of
control and aborted records counts as nothing left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Place, Row


def at_the_end(committed: Mapping[Place, int | None], ends: Mapping[Place, int], rows: Iterable[Row]) -> Findings:
    """Everything was processed: no record lies at or behind the committed offsets."""
    findings, left = [], dict.fromkeys(ends, 0)
    have_rows = set()
    for row in rows:
        have_rows.add(row.place)
        left[row.place] += row.offset >= (committed.get(row.place) or 0)
    for place, end in sorted(ends.items()):
        offset = committed.get(place)
        if offset is None:
            if place in have_rows:
                findings.append(Finding("not-committed", f"{place} has {left[place]} records and no committed offset"))
        elif offset > end:
            findings.append(Finding("beyond-end", f"{place} is committed at {offset} and ends at {end}"))
        elif left[place]:
            findings.append(Finding("unprocessed", f"{place} has {left[place]} records behind {offset} (end {end})"))
    return findings


def exactly_the_end(committed: Mapping[Place, int | None], ends: Mapping[Place, int]) -> Findings:
    """For topics without control records, where the next offset to read is the end itself."""
    findings = []
    for place, end in sorted(ends.items()):
        offset = committed.get(place)
        if end > 0 and offset != end:
            kind = "not-committed" if offset is None else "beyond-end" if offset > end else "unprocessed"
            findings.append(Finding(kind, f"{place} is committed at {offset}, its end is {end}"))
    return findings


def never_back(commits: Iterable[tuple[Place, int]]) -> Findings:
    """All commits of a group, in the order in which Kafka has them."""
    latest: dict[Place, int] = {}
    findings = []
    for place, offset in commits:
        if offset < latest.get(place, -1):
            findings.append(Finding("went-back", f"{place} was committed at {latest[place]}, then at {offset}"))
        latest[place] = offset
    return findings
