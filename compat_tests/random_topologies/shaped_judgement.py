"""What lies in Kafka behind windows and joins, against their definitions.

| kind | what was found |
|---|---|
| lost | an output, or a window's, isn't there |
| duplicate | a window that has closed was emitted more than once |
| unknown | an output of no window |
| wrong-value | a window's outputs, or its last one, aren't its own |

Joins have their own kinds, in `joins_by_definition.py`.

*Guarantees*: pure.
*Assumes*: output topics were read to their end, in the order of their partitions. No record is late: their time leaps
from round to round, and what had come was processed before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Origin, Place, Row, origin_of
from compat_tests.random_topologies.interpretation import expansion
from compat_tests.random_topologies.joins_by_definition import (
    ANY,
    Part,
    judge_ends,
    judge_lookups,
    judge_rows,
    judge_streams,
)
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.shapes import COUNT, LETTERS, SLIDING, STREAMS, TO_TABLE, Join, Windows
from compat_tests.random_topologies.windows_by_definition import Output, WindowsOfATask


@dataclass(frozen=True)
class Circumstances:
    """`repeats`: outputs may be repeated; `cached`: left out by a cache; `zombies`: any of them may come from one that
    was given up. `round_of`: the round of an input. `prefix`: what the names of topics begin with in headers."""

    round_of: Callable[[Row], int]
    repeats: bool = False
    cached: bool = False
    zombies: bool = False
    prefix: str = ""

    def origin_of(self, row: Row) -> Origin | None:
        """Which input an output comes from, its topic named as in the plan."""
        origin = origin_of(row)
        return origin and origin._replace(topic=origin.topic.removeprefix(self.prefix))


def judge_shaped(plan: Plan, number: int, inputs: Iterable[Row], found: Sequence[Row], how: Circumstances) -> Findings:
    """One path of the plan. `inputs`: of all sources, their topics named as in the plan."""
    path, rows = plan.paths[number], list(inputs)
    left = parts(path, plan, rows, how.round_of)
    if path.windows is not None:
        return _judge_windows(path, path.windows, left, [output_of(row) for row in found], how)
    assert path.join is not None
    return _judge_join(path, path.join, left, others(path.join, rows, how.round_of), found, how)


def parts(path: Path, plan: Plan, rows: Iterable[Row], round_of: Callable[[Row], int]) -> list[Part]:
    """What reaches the path's end, by place and offset."""
    expand, names = expansion(path), {f"in{source}" for source in path.sources}
    partitions = path.again or (max(plan.sources[source] for source in path.sources) if path.rekeyed else 0)

    def task(row: Row, key: bytes | None) -> int:
        if not partitions:
            return row.partition
        return ANY if key is None else partition_of(key, partitions)

    found = [
        Part(_origin(row, *ordinal), key, value, row.timestamp, round_of(row), task(row, key))
        for row in rows
        if row.topic in names
        for key, value, *ordinal in expand(row)
    ]
    return sorted(found, key=lambda part: part.origin)


def others(join: Join, rows: Iterable[Row], round_of: Callable[[Row], int]) -> list[Part]:
    """What reaches a join from the right."""
    name = f"in{join.other}"
    found = [
        Part(_origin(row), row.key, row.value, row.timestamp, round_of(row), row.partition)
        for row in rows
        if row.topic == name
    ]
    return sorted(found, key=lambda part: part.origin)


def _origin(row: Row, ordinal: int = 0) -> Origin:
    return Origin(row.topic, row.partition, row.offset, ordinal)


def output_of(row: Row) -> Output:
    return Output(row.key, row.value, row.timestamp)


# ---- joins


def _judge_join(
    path: Path, join: Join, left: list[Part], right: list[Part], found: Sequence[Row], how: Circumstances
) -> Findings:
    if path.end == STREAMS:
        return judge_streams(join, left, right, map(output_of, found), repeats=how.repeats)
    known = [(how.origin_of(row), output_of(row)) for row in found]
    if path.end == TO_TABLE:
        return judge_lookups(join, left, right, known, repeats=how.repeats)
    if how.zombies:
        return []
    if how.repeats or how.cached:
        return judge_ends(join, left, right, map(output_of, found))
    return judge_rows(join, left, right, known)


# ---- windows


def _judge_windows(
    path: Path, windows: Windows, arrived: list[Part], found: list[Output], how: Circumstances
) -> Findings:
    by_time: defaultdict[int, list[Part]] = defaultdict(list)
    for part in sorted(arrived, key=lambda part: part.timestamp):
        by_time[part.task].append(part)
    closed: list[Output] = []
    table: dict[bytes, Output] = {}
    for some in by_time.values():
        task = WindowsOfATask(windows, path.end)
        closed += [output for part in some for output in task.take(part.key, part.value, part.timestamp)]
        table.update({output.key or b"": output for output in task.outputs()})
    if windows.on_close:
        return closed_once(closed, found, _enough(path.end, how.repeats), repeats=how.repeats)
    if how.zombies:
        return [Finding("lost", f"{one}") for name, one in table.items() if name not in {row.key for row in found}]
    findings = ends_right(table, found, _enough(path.end, how.repeats))
    if not how.repeats:
        findings += _each_update(path, windows, arrived, found, cached=how.cached)
    return findings


Enough = Callable[[Output, Output], bool]
"""(what a window must come to, what was found) -> whether that will do."""


def _enough(end: str, repeats: bool) -> Enough:
    def equal(wanted: Output, found: Output) -> bool:
        return wanted == found

    def at_least(wanted: Output, found: Output) -> bool:
        return found.value is not None and int(found.value) >= int(wanted.value or b"0")

    def contains(wanted: Output, found: Output) -> bool:
        return found.value is not None and not Counter(wanted.value or b"") - Counter(found.value)

    return {COUNT: at_least, LETTERS: contains}.get(end, equal) if repeats else equal


def closed_once(wanted: list[Output], found: list[Output], enough: Enough, *, repeats: bool) -> Findings:
    """Windows that are emitted when they close."""
    by_key = {output.key: output for output in wanted}
    seen = Counter(output.key for output in found)
    findings = [Finding("lost", f"{one} was never emitted") for key, one in by_key.items() if key not in seen]
    foreign = [output for output in found if output.key not in by_key]
    findings += [Finding("unknown", f"{output} of no window that has closed") for output in foreign]
    if not repeats:
        findings += [Finding("duplicate", f"{key!r}: {times} times") for key, times in seen.items() if times > 1]
    wrong = [one for one in found if one.key in by_key and not enough(by_key[one.key], one)]
    return findings + [Finding("wrong-value", f"{one}; it must be {by_key[one.key]}") for one in wrong]


def ends_right(table: Mapping[bytes, Output], found: list[Output], enough: Enough) -> Findings:
    """What each window ends with; one that was merged into another is deleted."""
    last = {output.key or b"": output for output in found}
    findings = [Finding("lost", f"{one}") for name, one in table.items() if name not in last]
    findings += [
        Finding("wrong-value", f"{last[name]} is the last of its window, which is {one}")
        for name, one in table.items()
        if name in last and not enough(one, last[name])
    ]
    left = [one for name, one in last.items() if name not in table and one.value is not None]
    return findings + [Finding("unknown", f"{one} is the last of a window that isn't there") for one in left]


def _each_update(
    path: Path, windows: Windows, arrived: list[Part], found: list[Output], *, cached: bool
) -> Findings:
    """Every update of the windows of keys whose records come from one partition, in its order."""
    places: defaultdict[bytes, set[Place]] = defaultdict(set)
    for part in arrived:
        places[part.key or b""].add(part.origin.place)
    tasks: defaultdict[bytes, WindowsOfATask] = defaultdict(lambda: WindowsOfATask(windows, path.end))
    wanted: defaultdict[bytes | None, list[Output]] = defaultdict(list)
    for part in arrived:
        if part.key is not None and len(places[part.key]) == 1:
            for output in tasks[part.key].take(part.key, part.value, part.timestamp):
                wanted[output.key].append(output)
    by_key: defaultdict[bytes | None, list[Output]] = defaultdict(list)
    for output in found:
        by_key[output.key].append(output)
    some = cached or windows.kind == SLIDING  # one of these may be set twice by one record, as in Kafka Streams
    return [finding for key, its in wanted.items() for finding in updates_right(its, by_key[key], some=some)]


def updates_right(wanted: list[Output], found: list[Output], *, some: bool = False) -> Findings:
    """The updates of one window, in order. `some`: one may be there again, or be left out."""
    rest = iter(wanted)
    right = all(one in rest for one, _ in groupby(found)) if some else wanted == found
    if right:
        return []
    text = f"{_shown(found)} are the updates of a window; they must be {_shown(wanted)}"
    return [Finding("wrong-value", text)]


def _shown(some: Sequence[Output]) -> str:
    return ", ".join(map(str, some[:4])) + (f", ... ({len(some)})" if len(some) > 4 else "")
