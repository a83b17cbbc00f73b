"""What joins must lead to, as far as it is determined, and what they may lead to where chance has a say.

The order between two topics is chance within a *round*, a time between two moments at which all that had come was
processed. Records of an earlier round come before those of a later one.

| kind | what was found |
|---|---|
| lost | a result that must be there isn't |
| duplicate | a result is there more often than it may be |
| unknown | a result that no records account for |
| wrong-value | a record, or a row, is joined with what its partner never was, or wasn't then |

*Guarantees*: pure; uses nothing of the runtime.
*Assumes*: no record comes too late for its join; a later round is later in time than any window and its grace.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple, TypeVar

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.rows import Origin
from compat_tests.random_topologies.shapes import Join
from compat_tests.random_topologies.windows_by_definition import Output

ANY = -1
"""The task of a record without a key behind a repartition topic, where it may be in any partition."""


class Part(NamedTuple):
    """A record that reaches a join. `task`: the partition it is joined in."""

    origin: Origin
    key: bytes | None
    value: bytes | None
    timestamp: int
    round: int
    task: int


def both(left: bytes | None, right: bytes | None) -> bytes:
    return (b"?" if left is None else left) + b"+" + (b"?" if right is None else right)


# ---- a stream with a stream


class Times:
    """The records of one task by time and round."""

    def __init__(self, parts: Iterable[Part]) -> None:
        ordered = sorted(parts, key=lambda part: part.round)
        self._rounds = [part.round for part in ordered]
        self._newest: list[int] = []
        for part in ordered:
            self._newest.append(max(part.timestamp, self._newest[-1] if self._newest else -1))
        closers = [one for one in ordered if one.key is not None and one.value is not None]
        newest = [one for one in closers if one.timestamp >= self.newest(one.round)]
        self._last = newest[-1] if newest else None

    def newest(self, until: int | None = None) -> int:
        """The highest time until that round, or of all."""
        at = len(self._rounds) if until is None else bisect_right(self._rounds, until)
        return self._newest[at - 1] if at else -1

    def closed(self, part: Part, limit: int) -> bool:
        """Whether a record of a later round, surely the newest when it came, is behind the limit."""
        return self._last is not None and self._last.round > part.round and self._last.timestamp > limit


def of_streams(join: Join, left: Sequence[Part], right: Sequence[Part]) -> tuple[Counter[Output], Counter[Output]]:
    """How often each result must be there, and how often it may be.

    Each pair that is near enough, once. A record of a side that needs no partner, and that has none, once its time and
    the grace are over.
    """
    times = {task: Times(one for one in (*left, *right) if one.task in (task, ANY)) for task in _tasks(left, right)}
    must, may = Counter[Output](), Counter[Output]()
    sides = (
        (left, right, join.before, join.after, join.left_alone, True),
        (right, left, join.after, join.before, join.right_alone, False),
    )
    for parts, others, before, after, alone, is_left in sides:
        partners = _by_key(others)
        for part in parts:
            if part.value is None or (part.key is None and not alone):
                continue
            found = [] if part.key is None else _near(partners.get(part.key, []), part.timestamp, before, after)
            if is_left:
                must.update(Output(part.key, both(part.value, one.value), _later(part, one)) for one in found)
            if alone and not found:
                value = both(part.value, None) if is_left else both(None, part.value)
                least, most = _alone(part, times[part.task], after + join.grace)
                must[Output(part.key, value, part.timestamp)] += least
                may[Output(part.key, value, part.timestamp)] += most - least
    return must, must + may


def _alone(part: Part, times: Times, wait: int) -> tuple[int, int]:
    """How often a record that has no partner must be, and may be, sent. `wait`: how long after its time."""
    if part.key is None:
        return 1, 1
    over = max(0, part.timestamp + wait)
    return int(times.closed(part, over)), int(times.newest() > over)


def _tasks(left: Iterable[Part], right: Iterable[Part]) -> set[int]:
    return {part.task for part in (*left, *right)}


def _by_key(parts: Iterable[Part]) -> Mapping[bytes, list[Part]]:
    """By key, ascending in time; without those that have no value."""
    found: defaultdict[bytes, list[Part]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: part.timestamp):
        if part.key is not None and part.value is not None:
            found[part.key].append(part)
    return found


def _near(parts: list[Part], timestamp: int, before: int, after: int) -> list[Part]:
    def time(part: Part) -> int:
        return part.timestamp

    return parts[bisect_left(parts, timestamp - before, key=time) : bisect_right(parts, timestamp + after, key=time)]


def _later(one: Part, other: Part) -> int:
    return max(one.timestamp, other.timestamp)


def judge_streams(
    join: Join, left: Sequence[Part], right: Sequence[Part], found: Iterable[Output], *, repeats: bool
) -> Findings:
    """`repeats`: any result may be there again."""
    must, may = of_streams(join, left, right)
    seen = Counter(found)
    lacking = must - (Counter({one: must[one] for one in seen}) if repeats else seen)
    findings = [Finding("lost", f"{one}: {times} times") for one, times in lacking.items()]
    findings += [Finding("unknown", f"{one}") for one in seen if not may[one]]
    if not repeats:
        more = {one: times for one, times in (seen - may).items() if may[one]}
        findings += [Finding("duplicate", f"{one}: {times} times too often") for one, times in more.items()]
    return findings


# ---- a stream with a table, and a table with a table


class Version(NamedTuple):
    """What a row was set to; the first one of each row is that there is none."""

    value: bytes | None = None
    timestamp: int = -1
    round: int = -1


class Versions:
    """A row's versions, and which of them may be seen when."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.all = [Version(), *(Version(part.value, part.timestamp, part.round) for part in parts)]
        self._rounds = [version.round for version in self.all]

    def __getitem__(self, number: int) -> Version:
        return self.all[number]

    def seen_in(self, some_round: int, least: int = 0) -> range:
        """The numbers of those that may be seen in a round, from `least` on."""
        first = bisect_left(self._rounds, some_round) - 1
        return range(max(least, first, 0), bisect_right(self._rounds, some_round))


def rows_of(parts: Iterable[Part]) -> Mapping[bytes, list[Part]]:
    """A table's updates by key, in order."""
    found: defaultdict[bytes, list[Part]] = defaultdict(list)
    for part in parts:
        if part.key is not None:
            found[part.key].append(part)
    return found


def attributed(
    parts: Iterable[Part], found: Iterable[tuple[Origin | None, Output]]
) -> tuple[dict[Origin, list[Output]], Findings]:
    """Outputs by the record they come from."""
    known = {part.origin for part in parts}
    by_origin: defaultdict[Origin, list[Output]] = defaultdict(list)
    findings = []
    for origin, output in found:
        if origin is not None and origin in known:
            by_origin[origin].append(output)
        else:
            findings.append(Finding("unknown", f"{output}, which comes from {origin}"))
    return by_origin, findings


def judge_lookups(
    join: Join,
    left: Sequence[Part],
    right: Sequence[Part],
    found: Iterable[tuple[Origin | None, Output]],
    *,
    repeats: bool,
) -> Findings:
    """A stream with a table: each record is joined with one version of its row, and no later record of its key and
    partition with an earlier one. `repeats`: with any versions until then, again and again."""
    by_origin, findings = attributed(left, found)
    rows = {key: Versions(parts) for key, parts in rows_of(right).items()}
    before: dict[tuple[bytes | None, object], int] = {}
    for part in sorted(left, key=lambda part: part.origin):
        its = by_origin.get(part.origin, [])
        versions = rows.get(part.key or b"", Versions([])) if part.key is not None else Versions([])
        if len(its) > 1 and not repeats:
            findings.append(Finding("duplicate", f"{part}: {its}"))
            continue
        least = 0 if repeats else before.get((part.key, part.origin.place), 0)
        right_ones = versions.seen_in(part.round, least)
        legal = {number: _looked_up(join, part, versions[number]) for number in right_ones}
        given: list[Output | None] = [*its]
        for output in given or [None]:
            number = next((number for number, one in legal.items() if one == output), None)
            if number is None:
                kind = "lost" if output is None else "wrong-value"
                findings.append(Finding(kind, f"{part} gives {output}; it may be one of {_shown(legal.values())}"))
            else:
                before[part.key, part.origin.place] = number
    return findings


def _looked_up(join: Join, part: Part, version: Version) -> Output | None:
    nothing = part.value is None or (part.key is None and not join.left_alone)
    if nothing or (version.value is None and not join.left_alone):
        return None
    return Output(part.key, both(part.value, version.value), part.timestamp)


def judge_rows(
    join: Join, left: Sequence[Part], right: Sequence[Part], found: Iterable[tuple[Origin | None, Output]]
) -> Findings:
    """A table with a table, nothing repeated: each update is joined with one version of the other side's row, and the
    versions never go back."""
    outputs = list(found)
    by_origin, findings = attributed((*left, *right), outputs)
    lefts, rights = rows_of(left), rows_of(right)
    by_key: defaultdict[bytes | None, list[Output]] = defaultdict(list)
    for _, output in outputs:
        by_key[output.key].append(output)
    twice = {origin: its for origin, its in by_origin.items() if len(its) > 1}
    findings += [Finding("duplicate", f"{origin}: {its}") for origin, its in twice.items()]
    if findings:
        return findings
    for key in sorted(lefts.keys() | rights.keys()):
        sides = Sides(join, key, lefts.get(key, []), rights.get(key, []))
        findings += sides.judge([origin for origin, output in outputs if output.key == key], by_origin)
        findings += sides.end(by_key[key])
    return findings


class Sides:
    """One key of a join of two tables."""

    def __init__(self, join: Join, key: bytes, left: Sequence[Part], right: Sequence[Part]) -> None:
        self._join, self._key = join, key
        self._parts = left, right
        self._rows = Versions(left), Versions(right)
        self._numbers = {part.origin: (0, at) for at, part in enumerate(left, 1)}
        self._numbers.update({part.origin: (1, at) for at, part in enumerate(right, 1)})

    def joined(self, left: Version, right: Version) -> bytes | None:
        """What two rows are joined to."""
        if left.value is None and (right.value is None or not self._join.right_alone):
            return None
        if right.value is None and not self._join.left_alone:
            return None
        return both(left.value, right.value)

    def judge(self, order: Iterable[Origin | None], by_origin: Mapping[Origin, list[Output]]) -> Iterator[Finding]:
        """Output by output; then the updates that have none."""
        path: list[tuple[range, range]] = [(range(1), range(1))]
        for origin in order:
            assert origin is not None
            side, number = self._numbers[origin]
            own, reached, (output,) = self._parts[side][number - 1], path[-1], by_origin[origin]
            seen = self._rows[1 - side].seen_in(own.round, reached[1 - side].start)
            legal = {at: self._output(side, number, at) for at in seen}
            found = [at for at, one in legal.items() if one == output]
            if not found or number <= reached[side].start:
                yield Finding("wrong-value", f"{own} gives {output}; it may be one of {_shown(legal.values())}")
                return
            other = range(found[0], found[-1] + 1)
            path.append(_sides(side, range(number, number + 1), other))
        ends = [range(len(parts), len(parts) + 1) for parts in self._parts]
        path.append((ends[0], ends[1]))
        for origin, (side, number) in self._numbers.items():
            if origin not in by_origin and not self._may_be_silent(side, number, path):
                yield Finding("lost", f"{self._parts[side][number - 1]} gives nothing")

    def _output(self, side: int, number: int, at: int) -> Output:
        own, other = self._rows[side][number], self._rows[1 - side][at]
        timestamp = own.timestamp if other.value is None else max(own.timestamp, other.timestamp)
        return Output(self._key, self.joined(*_sides(side, own, other)), timestamp)

    def _may_be_silent(self, side: int, number: int, path: Sequence[tuple[range, range]]) -> bool:
        """Whether it may change nothing: there was no row before it and there is none behind it. `path`: how far both
        sides may have been at each output."""
        before = max(at for at, reached in enumerate(path) if reached[side][-1] < number)
        behind = min(at for at, reached in enumerate(path) if reached[side].start >= number)
        others = range(path[before][1 - side].start, path[behind][1 - side][-1] + 1)
        return any(
            all(self.joined(*_sides(side, self._rows[side][own], self._rows[1 - side][other])) is None
                for own in (number - 1, number))
            for other in others
        )  # fmt: skip

    def end(self, outputs: Sequence[Output]) -> Iterator[Finding]:
        """What the key ends with, which is known whatever the order was."""
        left, right = self._rows[0].all[-1], self._rows[1].all[-1]
        value = self.joined(left, right)
        there = max(version.timestamp for version in (left, right) if version.value is not None or value is None)
        # Of a row that is gone, any of the deletions at its end may have come last, and said so.
        deleted = {one.timestamp for rows in self._rows for one in takewhile(_is_none, reversed(rows.all))}
        last = outputs[-1] if outputs else None
        if value is None:
            if last is not None and last.value is not None:
                yield Finding("wrong-value", f"{last} is the last of its key, whose row is deleted")
        elif last is None:
            yield Finding("lost", f"the key {self._key!r} ends with {value!r}, and has no output")
        elif last.value != value or last.timestamp not in {there, *(max(there, one) for one in deleted)}:
            yield Finding("wrong-value", f"{last} is the last of its key, which ends with {value!r} at {there}")


def judge_ends(join: Join, left: Sequence[Part], right: Sequence[Part], found: Iterable[Output]) -> Findings:
    """A table with a table, where outputs may be repeated, or left out by a cache: what each key ends with."""
    lefts, rights = rows_of(left), rows_of(right)
    by_key: defaultdict[bytes | None, list[Output]] = defaultdict(list)
    for output in found:
        by_key[output.key].append(output)
    keys = lefts.keys() | rights.keys()
    findings = [Finding("unknown", f"{its[0]}") for key, its in by_key.items() if key not in keys]
    for key in sorted(keys):
        findings += Sides(join, key, lefts.get(key, []), rights.get(key, [])).end(by_key[key])
    return findings


def _is_none(version: Version) -> bool:
    return version.value is None


T = TypeVar("T")


def _sides(side: int, own: T, other: T) -> tuple[T, T]:
    """The left side's, and the right side's."""
    return (own, other) if side == 0 else (other, own)


def _shown(some: Iterable[Output | None]) -> str:
    return ", ".join(sorted({str(one) for one in some})[:4]) or "nothing"
