"""`ReadyQueue` holds the tasks that are ready and wait for a thread, and chooses the next one.

The next task is the one with the largest load (its number of records times its weight), as long as each other task will
still have its turn in time. A task waits at most

    ready / threads x slice + one record

`ready` counts the tasks in the queue and those that threads have. A thread that is in a call for longer than its slice
doesn't count in `threads`. A turn ends at the slice's end, or before the first record that wouldn't fit any more. If
all turns take a whole slice, the task that has waited longest is next. Turns that end early, because tasks have no more
records, leave room for the other rule.

Example: there are slices of 50 ms and 2 threads, one of which has a task. The other thread asks for a task at 1,000 ms.
The tasks A, B and C wait since 900, 960 and 990 ms; C has most records. 4 tasks are ready, so each may wait 100 ms. If
C is next, A's turn begins 50 ms from now: A must have waited since 950 ms (`needed_ms`) or later. A waits since 900 ms
(`tightest`), so A is next.

The queue is a list by age (`_numbers`, `_since_ms`), as a task that becomes ready is the youngest, and a heap by load.
Two known facts make it needless to look at all tasks. They stay true while tasks leave, as the tasks behind them move
up:
- `_at_least_ms`: `tightest` is at least this, so that the task with most to do may be next;
- `_late`: the number of a task that would be late, so that another one mayn't be next while it is in the queue.
If neither of them decides, `tightest` is computed anew: with n threads, it looks at every n-th task by age. This is
needed seldom while turns are short, and once per slice if each turn takes its whole slice.

*Guarantees*: a task is in the queue at most once, with the time since which it is there. If serving tasks by age keeps
the bound from now on, the choice keeps the bound, too. Flushes and applies aren't turns, and don't count in the bound.
*Assumes*: time doesn't go back from one `put` to the next; the caller of `choose` takes the chosen task out.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from itertools import count
from operator import sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.m2_processing_threads.scheduled_task import ScheduledTask

UNKNOWN = -(2**62)

SPARE = 64
"""The number of outdated loads that the heap may hold, in addition to one load for each task."""


def needed_ms(now_ms: int, ready: int, threads: int, slice_ms: int) -> int:
    """Return the least value that `tightest` of the other tasks must have, so that none of them waits too long if
    another task is next."""
    return now_ms + slice_ms - ready * slice_ms // threads


def tightest(since_ms: Sequence[int], threads: int, slice_ms: int) -> tuple[int, int]:
    """Find the task whose turn would be the most urgent if all tasks were served by age. Returns the time since when it
    waits, minus the time until that turn, and the task's position. `since_ms`: sorted by age. If the turns of several
    tasks would begin at the same time, only the task that has waited longest is considered."""
    times = list(map(sub, since_ms[::threads], count(0, slice_ms)))
    least = min(times)
    return least, times.index(least) * threads


class ReadyQueue:
    """*Owns*: `since_ms`, `number` and `load` of the entries."""

    def __init__(self, slice_ms: int) -> None:
        self._slice_ms = slice_ms
        self._scheduled: dict[int, ScheduledTask] = {}
        self._numbers: list[int] = []
        self._since_ms: list[int] = []
        self._loads: list[tuple[int, int]] = []
        self._next = 0
        self._threads = 1
        self._at_least_ms = UNKNOWN
        self._late: int | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, scheduled: ScheduledTask, now_ms: int) -> None:
        """Note that the task is ready, or is still ready, perhaps with more to do."""
        load = scheduled.task.input.waiting() * scheduled.weight
        if scheduled.number is None:
            scheduled.number, scheduled.since_ms = self._next, now_ms
            self._next += 1
            if not self._numbers:
                self._at_least_ms = now_ms
            until_its_turn_ms = self._slice_ms * (len(self) // self._threads)
            self._at_least_ms = min(self._at_least_ms, now_ms - until_its_turn_ms)
            self._scheduled[scheduled.number] = scheduled
            self._numbers.append(scheduled.number)
            self._since_ms.append(now_ms)
        elif load == scheduled.load:
            return
        scheduled.load = load
        if len(self._loads) >= 2 * len(self) + SPARE:
            self._loads = [(-one.load, number) for number, one in self._scheduled.items()]
            heapq.heapify(self._loads)
        else:
            heapq.heappush(self._loads, (-load, scheduled.number))

    def discard(self, scheduled: ScheduledTask) -> None:
        """Take the task out of the queue, if it is in there."""
        if scheduled.number is not None:
            position = bisect_left(self._numbers, scheduled.number)
            del self._numbers[position], self._since_ms[position], self._scheduled[scheduled.number]
            scheduled.number = None
            if not self._numbers:
                self._loads.clear()

    def choose(self, now_ms: int, at_work: int, threads: int) -> ScheduledTask | None:
        """Choose the next task; None if the queue is empty. The caller takes it out. `at_work`: the number of tasks
        that threads have."""
        if not self._numbers:
            return None
        oldest, most = self._numbers[0], self._most()
        if threads != self._threads:
            self._threads, self._at_least_ms, self._late = threads, UNKNOWN, None
        least_ms = needed_ms(now_ms, len(self) + at_work, threads, self._slice_ms)
        may_be_next = most == oldest or self._others_are_in_time(most, least_ms)
        return self._scheduled[most if may_be_next else oldest]

    def _most(self) -> int:
        """Return the number of the task with the largest load; of equal loads, that of the oldest task."""
        while True:
            load, number = self._loads[0]
            scheduled = self._scheduled.get(number)
            if scheduled is not None and scheduled.load == -load:
                return number
            heapq.heappop(self._loads)

    def _others_are_in_time(self, most: int, least_ms: int) -> bool:
        if self._at_least_ms >= least_ms:
            return True
        position = bisect_left(self._numbers, most)
        if self._late in self._scheduled and self._late != most:
            late = bisect_left(self._numbers, self._late)
            before = late - (position < late)
            if self._since_ms[late] - self._slice_ms * (before // self._threads) < least_ms:
                return False
        others = self._since_ms[:position] + self._since_ms[position + 1 :]
        found_ms, late = tightest(others, self._threads, self._slice_ms)
        if found_ms >= least_ms:
            self._at_least_ms = found_ms
            return True
        self._late = self._numbers[late + (late >= position)]
        return False
