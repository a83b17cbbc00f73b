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
from typing import NamedTuple


class Waiting(NamedTuple):
    """A task that could be processed. `since_ms`: since when; `load`: records that wait, times the task's weight."""

    since_ms: int
    load: int


def choose(waiting: Sequence[Waiting], now_ms: int, *, ready: int, threads: int, slice_ms: int) -> int:
    """The index of the task that is next. `waiting` isn't empty."""
    by_age = sorted(range(len(waiting)), key=lambda index: waiting[index].since_ms)
    oldest = by_age[0]
    most = max(by_age, key=lambda index: waiting[index].load)
    if most == oldest:
        return oldest
    patience_ms = ready * slice_ms // threads
    behind = [waiting[index].since_ms for index in by_age if index != most]
    in_time = all(
        now_ms + slice_ms * (1 + position // threads) <= since_ms + patience_ms
        for position, since_ms in enumerate(behind)
    )
    return most if in_time else oldest
