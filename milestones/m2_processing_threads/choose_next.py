"""Which of the tasks that wait for a thread gets it.

The one with most to do, weighted, as long as every other one will still have its turn in time: with so many `ready`
tasks (those at work included) and `threads`, a task waits at most

    ready / threads x slice + one record

A turn ends at the slice's end, or with the first record that wouldn't fit any more. If all turns are as long as that
there is nothing to choose: the one that waits longest is next. Turns that end early, as tasks run dry, leave room.

*Guarantees*: pure; some task is chosen. If serving in the order of waiting keeps the bound from here on, what is chosen
keeps it too.
*Assumes*: each of the threads is free within a slice, or is the one that asks. One that a record holds for longer is no
thread in this.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import sub
from typing import NamedTuple


class ProcessableTask(NamedTuple):
    """A task that could be processed. `since_ms`: since when; `load`: records that wait, times the task's weight."""

    since_ms: int
    load: int


def choose(waiting: Sequence[ProcessableTask], now_ms: int, *, ready: int, threads: int, slice_ms: int) -> int:
    """The index of the task that is next. `waiting` isn't empty. `ReadyQueue` gives the same answer without a sort."""
    by_age = sorted(range(len(waiting)), key=lambda index: waiting[index].since_ms)
    oldest = by_age[0]
    most = max(by_age, key=lambda index: waiting[index].load)
    behind = [waiting[index].since_ms for index in by_age if index != most]
    if most == oldest or tightest(behind, threads, slice_ms)[0] >= needed_ms(now_ms, ready, threads, slice_ms):
        return most
    return oldest


def needed_ms(now_ms: int, ready: int, threads: int, slice_ms: int) -> int:
    """What `tightest` of the others must be at least, so that none of them waits too long if another task is next."""
    return now_ms + slice_ms - ready * slice_ms // threads


def tightest(since_ms: Sequence[int], threads: int, slice_ms: int) -> tuple[int, int]:
    """Since when the task waits whose turn would be most urgent if all were served by age, less the time until that
    turn; and the task's position. `since_ms`: by age. Of the tasks whose turns begin together the oldest counts."""
    times = list(map(sub, since_ms[::threads], count(0, slice_ms)))
    least = min(times)
    return least, times.index(least) * threads
