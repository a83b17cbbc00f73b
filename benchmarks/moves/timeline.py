"""What logs and outputs say of a move: pure functions.

*Guarantees*: times are s since the epoch.
*Assumes*: the log lines of `app.py`: each thread that is a member has one line per generation.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GENERATION = re.compile(
    r"^(\d+\.\d+) .*: (\S+): generation (\d+), tasks \[(.*?)\], standbys \[(.*?)\], warm-ups \[(.*?)\], revoked",
    re.MULTILINE,
)
JOINS = re.compile(r"^(\d+\.\d+) .*: (\S+): joins the group: ", re.MULTILINE)
RESTORED = re.compile(r"^(\d+\.\d+) .*: task 0_(\d+) has restored (\d+) records$", re.MULTILINE)
TASK = re.compile(r"0_(\d+)")


@dataclass(frozen=True)
class Given:
    """What an instance, or one of its threads, by name, was given `at` some time; tasks by partition."""

    at: float
    generation: int
    active: frozenset[int]
    standby: frozenset[int]
    warmup: frozenset[int]
    thread: str = ""


def assignments(log: str) -> list[Given]:
    """All that the threads of an instance were ever given, in order."""
    return [
        Given(float(at), int(number), _tasks(active), _tasks(standby), _tasks(warmup), thread)
        for at, thread, number, active, standby, warmup in GENERATION.findall(log)
    ]


def _tasks(told: str) -> frozenset[int]:
    return frozenset(map(int, TASK.findall(told)))


def joined(log: str) -> dict[str, float]:
    """When each thread of an instance joined the group first."""
    found: dict[str, float] = {}
    for at, thread in JOINS.findall(log):
        found.setdefault(thread, float(at))
    return found


def share(log: str) -> Given | None:
    """What an instance has by now, all its threads together; None while they don't all know the same generation."""
    last = {one.thread: one for one in assignments(log)}
    generations = {one.generation for one in last.values()}
    if len(generations) != 1 or last.keys() != joined(log).keys():
        return None
    active, standby, warmup = (
        frozenset().union(*(getattr(one, role) for one in last.values())) for role in ("active", "standby", "warmup")
    )
    return Given(max(one.at for one in last.values()), generations.pop(), active, standby, warmup)


def restored(log: str, since: float) -> dict[int, int]:
    """Changelog records that it read before it ran a task, by task, since a time."""
    found: dict[int, int] = {}
    for at, task, count in RESTORED.findall(log):
        if float(at) >= since:
            found[int(task)] = found.get(int(task), 0) + int(count)
    return found


def settled(given: Mapping[str, Given | None], tasks: int, standbys: int) -> bool:
    """Whether these instances, and nobody else, share all tasks evenly, each has its standbys, and none warms up."""
    last = [one for one in given.values() if one is not None]
    if len(last) < len(given) or len({one.generation for one in last}) > 1:
        return False
    shares = [len(one.active) for one in last]
    copies = tasks * min(standbys, len(last) - 1)
    return (
        frozenset().union(*(one.active for one in last)) == frozenset(range(tasks))
        and sum(shares) == tasks
        and max(shares) - min(shares) <= 1
        and sum(len(one.standby) for one in last) == copies
        and not any(one.warmup for one in last)
    )


def owners(given: Mapping[str, Given | None]) -> dict[int, str]:
    """Who has each task."""
    return {task: name for name, one in given.items() if one is not None for task in one.active}


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """The longest time without an output between two times, both of which count as outputs. `times`: ascending."""
    within = times[bisect_left(times, start) : bisect_right(times, end)]
    return max(later - earlier for earlier, later in pairwise([start, *within, end]))


def gap_around(times: Sequence[float], at: float) -> tuple[float, float]:
    """The last output before a time and the first one after it. `ValueError` when there is none."""
    after = bisect_right(times, at)
    if not 0 < after < len(times):
        raise ValueError(f"there is no output on both sides of {at}")
    return times[after - 1], times[after]


@dataclass(frozen=True)
class Parts:
    """The gap of a killed task, in s: until the group has given the dead member up and assigned its task anew; then
    until its open transaction has ended; then until there is output."""

    session: float
    transaction: float
    rest: float

    @property
    def gap(self) -> float:
        return self.session + self.transaction + self.rest


def parts(last: float, assigned: float, ended: float, first: float) -> Parts:
    """Of the gap from the output `last` to the output `first`; `ended`: when the transaction that was open did."""
    free = max(assigned, ended)
    return Parts(assigned - last, free - assigned, first - free)


def worst(values: Iterable[float]) -> float:
    """The largest, 0 of none."""
    return max(values, default=0.0)
