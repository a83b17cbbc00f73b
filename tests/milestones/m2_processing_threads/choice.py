"""Which task is next, by the rule of `ready_queue.py`, with a look at all tasks: what a `ReadyQueue` has to answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from milestones.m2_processing_threads.ready_queue import needed_ms, tightest


class Waiting(NamedTuple):
    """A task that waits for a thread. `since_ms`: since when; `load`: its records, times its weight."""

    since_ms: int
    load: int


def choose(waiting: Sequence[Waiting], now_ms: int, *, ready: int, threads: int, slice_ms: int) -> int:
    """The index of the task that is next. `waiting` isn't empty; `ready` counts the tasks at work, too."""
    by_age = sorted(range(len(waiting)), key=lambda index: waiting[index].since_ms)
    oldest = by_age[0]
    most = max(by_age, key=lambda index: waiting[index].load)
    behind = [waiting[index].since_ms for index in by_age if index != most]
    if most == oldest or tightest(behind, threads, slice_ms)[0] >= needed_ms(now_ms, ready, threads, slice_ms):
        return most
    return oldest
