"""How long tasks with input stood still.

A pause is the time between the beginnings of two records' processing, or of one and an end of the window: a record's
own processing is in it, and so is a task's waiting for its turn, where several share a thread.

*Guarantees*: pure functions.
*Assumes*: times ascend, and the tasks have input from the window's start to its end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise

from benchmarks.errors import BenchmarkError

LONG_NS = 50_000_000
"""From here on a pause of the whole instance counts among those it stood in."""


@dataclass(frozen=True)
class Window:
    """What is measured, in nanoseconds of the monotonic clock."""

    start: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9

    def of(self, times: Sequence[int]) -> Sequence[int]:
        """Those in it."""
        return times[bisect_left(times, self.start) : bisect_left(times, self.end)]

    def pauses(self, times: Iterable[int]) -> Iterator[int]:
        """Those between these times, which are in it, and its ends."""
        return (after - before for before, after in pairwise([self.start, *times, self.end]))


def with_input(
    window: Window, times: Mapping[int, Sequence[int]], committed: Mapping[int, int], each: int
) -> Window:
    """So much of the window as all tasks had input in: a partition whose `each` records are committed had none left
    from its last record on. `BenchmarkError` when that is less than half of it, or a task was never there."""
    if missing := sorted(committed.keys() - times.keys()):
        raise BenchmarkError(f"no record of the partitions {missing} was processed")
    end = min([window.end, *(times[partition][-1] for partition, count in committed.items() if count >= each)])
    if 2 * (end - window.start) < window.end - window.start:
        raise BenchmarkError("the input has ended before half of the seconds were over: give more records (--records)")
    return Window(window.start, end)


def figures(window: Window, times: Mapping[int, Sequence[int]]) -> dict[str, float]:
    """Records processed a second, and pauses, by the times of each task."""
    inside = [window.of(of_task) for of_task in times.values()]
    pauses = list(window.pauses(merge(*inside)))
    return {
        "processed_per_s": sum(map(len, inside)) / window.seconds,
        "pause_ms": max(pauses) / 1e6,
        "task_pause_ms": max(max(window.pauses(of_task)) for of_task in inside) / 1e6,
        "standing": 100 * sum(pause for pause in pauses if pause > LONG_NS) / (window.end - window.start),
    }


def committed_per_s(window: Window, looks: Sequence[tuple[int, int]]) -> float:
    """Records committed a second, from the first commit that was seen in the window to the last one. `looks`: times,
    and how many were committed then. `BenchmarkError` when there was only one."""
    inside = [(at, count) for at, count in looks if window.start <= at <= window.end]
    seen = [after for before, after in pairwise(inside) if after[1] > before[1]]
    if len(seen) < 2:
        raise BenchmarkError(f"{len(seen)} commits are too few to be measured: give it more time (--seconds)")
    (first, before), (last, count) = seen[0], seen[-1]
    return (count - before) * 1e9 / (last - first)
