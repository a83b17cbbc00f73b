"""What differs between two outcomes of one case.

| cache | compared |
|---|---|
| 0 | every record of every topic, changelogs and repartition topics too: key, value, timestamp, headers, in order |
| 0, changelogs of suppress | the same, but for the order within a step, which is that of a hash set in Java |
| 0, changelogs of sessions, and those that are written at a commit: of sliding windows, of records without a partner, of tables | the last record of each key of a step |
| above | the last record of each key of every topic; of a changelog only where it isn't a deletion |

That an error ends the case is compared as well, and after which step; its text isn't.

*Guarantees*: pure functions; what is told is the first difference.
*Assumes*: both outcomes are of one case.
"""  # noqa: E501  a row of a table

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import zip_longest

from compat_tests.java.cases import Case, Outcome, Outputs, Row

CHANGELOG = "-changelog"
JAVA = "java"
UNORDERED = re.compile(r"(-KTABLE-SUPPRESS-STATE-STORE-\d+|-held-store)-changelog$")
"""Topics whose records Kafka Streams writes in no defined order; those of suppress by the name `held`, too."""
SHOWN = 8
"""Records of a topic that a difference shows, around the first that differs."""


class DifferenceError(AssertionError):
    """Ours and Java's outcome of `case` differ. `where`: the topic; `what`: what differs there."""

    def __init__(self, what: str, case: Case = ()) -> None:
        super().__init__(what)
        self.what, self.case = what, case

    def __str__(self) -> str:
        steps = "".join(f"  {number}. {step}\n" for number, step in enumerate(self.case, 1))
        return f"{self.what}\nThe steps:\n{steps}".rstrip()


def difference(ours: Outcome, java: Outcome, cache: int) -> str | None:
    """The first difference as text, None if there is none."""
    found = _by_record(ours, java) if cache == 0 else _by_key(ours, java)
    return found or _errors(ours, java)


def _by_record(ours: Outcome, java: Outcome) -> str | None:
    for number, (mine, theirs) in enumerate(zip(ours.outputs, java.outputs, strict=False)):
        for topic in sorted(mine.keys() | theirs.keys()):
            found = first_difference(topic, mine.get(topic, []), theirs.get(topic, []), of_commits=ours.of_commits)
            if found is not None:
                return f"{topic}, written {_when(number)}:\n{found}"
    return None


def _ordered(topic: str, rows: list[Row], of_commits: Collection[str]) -> list[Row]:
    if topic in of_commits:
        rows = list({row.key: row for row in rows}.values())
    ordered = topic not in of_commits and not UNORDERED.search(topic)
    return rows if ordered else sorted(rows, key=lambda row: row.key or b"")


def first_difference(
    topic: str, mine: list[Row], theirs: list[Row], other: str = JAVA, *, of_commits: Collection[str] = ()
) -> str | None:
    """How what was written to a topic differs, None if it doesn't. `other`: whose are `theirs`. `of_commits`: topics of
    which only the last record of each key counts."""
    mine, theirs = _ordered(topic, mine, of_commits), _ordered(topic, theirs, of_commits)
    if mine == theirs:
        return None
    pairs = list(zip_longest(mine, theirs))
    first = next(index for index, (one, other) in enumerate(pairs) if one != other)
    from_, to = max(0, first - SHOWN // 2), first + SHOWN // 2
    lines = []
    for pair in pairs[from_:to]:
        if pair[0] == pair[1]:
            lines.append(f"  both  {pair[0]}")
        else:
            lines += [f"  {who}  {row}" for who, row in zip(("ours", other), pair, strict=True) if row is not None]
    more = [f"  (of {len(mine)} and {len(theirs)} records)"] if len(pairs) > to - from_ else []
    return "\n".join(lines + more)


def _by_key(ours: Outcome, java: Outcome) -> str | None:
    mine, theirs = last_rows(ours.outputs), last_rows(java.outputs)
    for topic, key in sorted(mine.keys() | theirs.keys(), key=lambda each: (each[0], each[1] or b"")):
        one, other = mine.get((topic, key)), theirs.get((topic, key))
        if one != other:
            return f"{topic}, the last record of a key:\n  ours  {one or 'none'}\n  java  {other or 'none'}"
    return None


def last_rows(outputs: list[Outputs]) -> dict[tuple[str, bytes | None], Row]:
    """The last record of each key, by topic and key. A changelog that deletes a row it never had has no row either:
    Kafka Streams leaves such deletions out behind a cache."""
    last = {(topic, row.key): row for step in outputs for topic, rows in step.items() for row in rows}
    return {at: row for at, row in last.items() if row.value is not None or not at[0].endswith(CHANGELOG)}


def _errors(ours: Outcome, java: Outcome) -> str | None:
    if (ours.error is None) == (java.error is None) and len(ours.outputs) == len(java.outputs):
        return None
    return f"the end:\n  ours  {_end(ours)}\n  java  {_end(java)}"


def _end(outcome: Outcome) -> str:
    return "all steps" if outcome.error is None else f"{outcome.error}, {_when(len(outcome.outputs))}"


def _when(step: int) -> str:
    return "before the first step" if step == 0 else f"in step {step}"
