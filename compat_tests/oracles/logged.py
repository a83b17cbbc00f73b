"""A changelog record by record, where its fold doesn't show it: what was logged, and how often.

| kind | what was found |
|---|---|
| never-was | a record with a value that its key never had, or had before that of the record before it |
| logged-twice | a key that is there again within one transaction, or more often than its task has committed |

Which states of a key are logged is the stage's: each one, or the last of each commit. What is logged is one of them, in
their order; what a changelog ends with is `changelog.changelog_equals_table`'s.

*Guarantees*: pure.
*Assumes*: the changelog was read from its beginning to its end, under read committed, and never compacted. A partition
has one writer at a time, whose transactions each end in a control record there: it takes an offset, so records with
consecutive offsets are one transaction's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.flows import Entry
from compat_tests.oracles.rows import Place, Row

States = Mapping[bytes, Sequence[Entry | None]]
"""By key, all that its row has been, in order; None: it was deleted, or left out."""


def each_was_a_state(rows: Iterable[Row], states: States, *, again: bool = False) -> Findings:
    """Each record is a state of its key, behind the one before. `again`: it may be the same one: a commit that failed
    is logged again by the next."""
    reached: defaultdict[bytes, int] = defaultdict(int)
    findings: Findings = []
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        if row.key is None:
            continue
        state = None if row.value is None else Entry(row.timestamp, row.value)
        known, first = states.get(row.key, ()), reached[row.key]
        at = next((at for at in range(first, len(known)) if known[at] == state), None)
        if at is not None:
            reached[row.key] = at if again else at + 1
            continue
        text = "before that of the record before it" if state in known else "at no time"
        findings.append(Finding("never-was", f"{row} has a value that its key had {text}"))
    return findings


def once_per_transaction(rows: Iterable[Row]) -> Findings:
    """At a stage that logs at commits, exactly once."""
    findings: Findings = []
    seen: dict[bytes | None, int] = {}
    before: Row | None = None
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        if before is None or (row.place, row.offset) != (before.place, before.offset + 1):
            seen.clear()
        if row.key in seen:
            findings.append(Finding("logged-twice", f"{row} is there at {seen[row.key]} too, in the same transaction"))
        seen[row.key], before = row.offset, row
    return findings


def once_per_commit(rows: Iterable[Row], commits: Iterable[tuple[Place, int]], failed: int = 0) -> Findings:
    """At a stage that logs at commits, at least once, where nothing was rolled back. `commits`: of all the group, as
    the broker wrote them down; `failed`: how many of a task may have failed, and were logged again."""
    by_place = Counter(place for place, _ in commits)
    most: defaultdict[int, int] = defaultdict(int)
    for place, count in by_place.items():
        most[place.partition] = max(most[place.partition], count)
    logged = Counter((row.place, row.key) for row in rows)
    return [
        Finding("logged-twice", f"{key!r:.60} is {count} times in {place}, whose task has committed {most[at]} times")
        for (place, key), count in sorted(logged.items(), key=str)
        if count > most[at := place.partition] + failed
    ]
