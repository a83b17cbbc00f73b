"""Calls by time, with Kafka Streams' rules.

Stream time counts from 0: the first call comes with the first record, later ones when stream time has passed the next
multiple of the interval. Wall-clock time counts from the call of `schedule`. Missed calls aren't made up for: after a
gap there is one, and the next keeps the rhythm.

*Guarantees*: earliest first, in the order of scheduling among equals; a cancelled one isn't called again, also when it
cancels itself; one whose call failed is due again.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Final

NEVER: Final = 2**63 - 1
"""A time that doesn't come, ms."""

Callback = Callable[[int], None]

Due = Mapping[int, int]
"""When punctuations are due, ms, by the order in which they were scheduled, from 1."""


class Punctuation:
    """A scheduled call. `node` is the processor that asked for it."""

    __slots__ = ("_interval", "_order", "callback", "cancelled", "next_ms", "node")

    def __init__(self, node: str, callback: Callback, first_ms: int, interval_ms: int, order: int) -> None:
        self.node, self.callback, self.next_ms = node, callback, first_ms
        self.cancelled = False
        self._interval, self._order = interval_ms, order

    def __lt__(self, other: Punctuation) -> bool:
        return (self.next_ms, self._order) < (other.next_ms, other._order)

    def cancel(self) -> None:
        """No call after this one."""
        self.cancelled = True

    def called(self, now_ms: int) -> None:
        """Move on to the first multiple of the interval after `now_ms`."""
        missed = max(0, (now_ms - self.next_ms) // self._interval)
        self.next_ms += (missed + 1) * self._interval


class PunctuationQueue:
    """The punctuations of one clock. `next_ms` is when the earliest is due, `NEVER` without any."""

    def __init__(self) -> None:
        self.next_ms = NEVER
        self._queue: list[Punctuation] = []
        self._scheduled = 0

    def schedule(self, node: str, callback: Callback, first_ms: int, interval_ms: int) -> Punctuation:
        """Call `callback(now)` at `first_ms` and each `interval_ms` after it."""
        if interval_ms < 1:
            raise ValueError(f"{node} schedules a punctuation each {interval_ms} ms: the least is 1")
        self._scheduled += 1
        punctuation = Punctuation(node, callback, first_ms, interval_ms, self._scheduled)
        heapq.heappush(self._queue, punctuation)
        self._look()
        return punctuation

    def run_due(self, now_ms: int, call: Callable[[Punctuation], bool]) -> bool:
        """Hand each punctuation that is due at `now_ms` to `call`, which says `called` when its work is staged, and
        False when that was void; True when there was one. One that raises, or is void, stays due.

        It stays in the queue meanwhile: `times` may be asked for during the call."""
        called, going = False, True
        while going and self._queue and self._queue[0].next_ms <= now_ms:
            if self._queue[0].cancelled:
                heapq.heappop(self._queue)
                continue
            going = call(self._queue[0])
            called = True
            heapq.heapify(self._queue)
            self._look()
        self._look()
        return called

    def times(self) -> dict[Punctuation, int]:
        """When each is due next: what a boundary remembers. Any thread may ask."""
        return {punctuation: punctuation.next_ms for punctuation in list(self._queue)}

    def rewind(self, times: Mapping[Punctuation, int]) -> None:
        """Back to `times`: calls made since are due again. Those scheduled since stay, as their processors do."""
        for punctuation, next_ms in times.items():
            punctuation.next_ms = next_ms
        heapq.heapify(self._queue)
        self._look()

    def due(self) -> Due:
        """`times`, for the queue of a task that takes this one's place in another process."""
        return {punctuation._order: punctuation.next_ms for punctuation in self._queue}

    def go_on(self, due: Due) -> None:
        """What was scheduled as the n-th is due when the predecessor's n-th was."""
        for punctuation in self._queue:
            punctuation.next_ms = due.get(punctuation._order, punctuation.next_ms)
        heapq.heapify(self._queue)
        self._look()

    def clear(self) -> None:
        """Nothing is scheduled."""
        self._queue.clear()
        self._look()

    def _look(self) -> None:
        while self._queue and self._queue[0].cancelled:
            heapq.heappop(self._queue)
        self.next_ms = self._queue[0].next_ms if self._queue else NEVER
