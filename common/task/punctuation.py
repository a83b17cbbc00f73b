"""Punctuations: calls of a function at scheduled times, with Kafka Streams' rules.

Stream time counts from 0. The first call by stream time comes with the first record. Later calls come when stream time
has passed the next multiple of the interval. Wall-clock time counts from the call of `schedule`. Missed calls are not
repeated: after a gap there is one call, and the next one keeps the rhythm. After a wall clock was put back, each
punctuation is due one interval later at the latest. Anchored punctuations (KIP-1146) are due only at their anchor and
at whole intervals after it. After a wall clock was put back, they are due at the first of these times that is at least
an interval away.

*Guarantees*: the earliest punctuation is called first, and of equal ones the one that was scheduled first. A cancelled
punctuation isn't called any more, even if it cancels itself. A punctuation whose call failed stays due. Scheduling and
cancelling take effect at the end of the record (or punctuation) that asked for it. If the record fails, they don't take
effect.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Final

NEVER: Final = 2**63 - 1
"""A time that never comes, ms."""

Callback = Callable[[int], None]

Due = Mapping[int, int]
"""The times (ms) at which punctuations are due, by their number. The punctuations are numbered from 1 in the order of
scheduling."""


Ask = Callable[[Callable[[], None]], None]
"""Calls the given function when the record in work is done. If the record fails, the function is never called."""


def at_once(grant: Callable[[], None]) -> None:
    """Call `grant` immediately. For punctuations that are scheduled outside of records."""
    grant()


def first_due(anchor_ms: int, interval_ms: int, now_ms: int) -> int:
    """Return the first time from `now_ms` on that is a whole number of intervals after the anchor. If the anchor has
    passed, the returned time is later than `now_ms`."""
    if now_ms <= anchor_ms:
        return anchor_ms
    return anchor_ms + ((now_ms - anchor_ms) // interval_ms + 1) * interval_ms


class Punctuation:
    """A scheduled call. `node`: the processor that scheduled it. `anchor_ms`: the anchor, or None if it isn't anchored.
    """

    __slots__ = ("_ask", "anchor_ms", "callback", "cancelled", "interval_ms", "next_ms", "node", "order")

    callback: Callback
    interval_ms: int
    next_ms: int
    node: str

    def __init__(
        self, node: str, callback: Callback, first_ms: int, interval_ms: int, ask: Ask, anchor_ms: int | None = None
    ) -> None:
        self.node, self.callback, self.next_ms, self.interval_ms = node, callback, first_ms, interval_ms
        self.anchor_ms: int | None = anchor_ms
        self.cancelled: bool = False
        self.order: int = 0
        self._ask = ask

    def __lt__(self, other: Punctuation) -> bool:
        return (self.next_ms, self.order) < (other.next_ms, other.order)

    def __repr__(self) -> str:
        return f"<milestones.Cancellable of {self.node}, each {self.interval_ms} ms>"

    def cancel(self) -> None:
        """End the punctuation. A call that is running is the last one."""
        self._ask(self._cancelled)

    def _cancelled(self) -> None:
        self.cancelled = True

    def latest(self, now_ms: int) -> int:
        """Return the latest time at which the punctuation may be due, by a clock that shows `now_ms`."""
        if self.anchor_ms is None:
            return now_ms + self.interval_ms
        return first_due(self.anchor_ms, self.interval_ms, now_ms + self.interval_ms - 1)

    def called(self, now_ms: int) -> None:
        """Set the next due time: the first multiple of the interval after `now_ms`."""
        missed = max(0, (now_ms - self.next_ms) // self.interval_ms)
        self.next_ms += (missed + 1) * self.interval_ms


class PunctuationQueue:
    """The punctuations of one clock. `next_ms`: the time at which the earliest is due, `NEVER` if there is none."""

    def __init__(self) -> None:
        self.next_ms: int = NEVER
        self._queue: list[Punctuation] = []
        self._scheduled = 0
        self._seen_ms = -NEVER

    def schedule(
        self, node: str, callback: Callback, first_ms: int, interval_ms: int, ask: Ask = at_once,
        anchor_ms: int | None = None,
    ) -> Punctuation:
        """Schedule `callback(now)` for `first_ms` and for each `interval_ms` after it. `anchor_ms`: the anchor, if the
        punctuation is anchored."""
        if interval_ms < 1:
            raise ValueError(f"{node} schedules a punctuation each {interval_ms} ms: the least is 1")
        punctuation = Punctuation(node, callback, first_ms, interval_ms, ask, anchor_ms)
        ask(lambda: self._enter(punctuation))
        return punctuation

    def _enter(self, punctuation: Punctuation) -> None:
        # The time at which the clock was read for the schedule. So a clock that is put back soon after is noticed, too.
        if punctuation.anchor_ms is None:
            self._seen_ms = max(self._seen_ms, punctuation.next_ms - punctuation.interval_ms)
        self._scheduled += 1
        punctuation.order = self._scheduled
        heapq.heappush(self._queue, punctuation)
        self._look()

    def is_due(self, now_ms: int) -> bool:
        """True if `run_due` has a punctuation to call, or if the clock was put back and `follow` must be called. Any
        thread may ask."""
        if now_ms < self._seen_ms and self._queue:
            return True
        self._seen_ms = now_ms
        return self.next_ms <= now_ms

    def follow(self, now_ms: int) -> None:
        """Set the clock's time to `now_ms`. If the clock was put back, each punctuation becomes due one interval from
        now at the latest."""
        was_put_back, self._seen_ms = now_ms < self._seen_ms, now_ms
        if was_put_back:
            for punctuation in self._queue:
                punctuation.next_ms = min(punctuation.next_ms, punctuation.latest(now_ms))
            heapq.heapify(self._queue)
            self._look()

    def run_due(self, now_ms: int, call: Callable[[Punctuation], bool]) -> bool:
        """Pass each punctuation that is due at `now_ms` to `call`. Returns True if one was due.

        `call` calls the punctuation, and then its method `called`. `call` returns False if the task was rolled back
        meanwhile. A punctuation that raised an error, or was rolled back, stays due. A punctuation stays in the queue
        during its call, so that `times` contains it.
        """
        called, going = False, True
        while going and self._queue and self._queue[0].next_ms <= now_ms:
            if self._queue[0].cancelled:
                heapq.heappop(self._queue)
                continue
            try:
                going = call(self._queue[0])
            finally:
                heapq.heapify(self._queue)
                self._look()
            called = True
        self._look()
        return called

    def times(self) -> dict[Punctuation, int]:
        """Return the next due time of each punctuation, for a boundary. Any thread may ask."""
        return {punctuation: punctuation.next_ms for punctuation in list(self._queue)}

    def take_over(self, times: Mapping[Punctuation, int], now_ms: int | None = None) -> None:
        """Continue the due times of the punctuations of the program before (`times`).

        The n-th punctuation that a node schedules with some interval becomes due when the n-th of the program before
        was due. With a wall clock (`now_ms`), it is due one interval from now at the latest.
        """
        former: defaultdict[tuple[str, int], deque[int]] = defaultdict(deque)
        for one in sorted(times, key=lambda one: one.order):
            former[one.node, one.interval_ms].append(times[one])
        for one in sorted(self._queue, key=lambda one: one.order):
            if known := former[one.node, one.interval_ms]:
                one.next_ms = known.popleft()
                if now_ms is not None:
                    one.next_ms = min(one.next_ms, one.latest(now_ms))
        heapq.heapify(self._queue)
        self._look()

    def due(self) -> Due:
        """Return the due times by number, for the queue of the task's successor in another process."""
        return {punctuation.order: punctuation.next_ms for punctuation in self._queue}

    def resume(self, due: Due) -> None:
        """Make the n-th punctuation due when the predecessor's n-th was."""
        for punctuation in self._queue:
            punctuation.next_ms = due.get(punctuation.order, punctuation.next_ms)
        heapq.heapify(self._queue)
        self._look()

    def clear(self) -> None:
        """Remove all punctuations, and begin their numbers at 1."""
        self._queue.clear()
        self._scheduled = 0
        self._look()

    def _look(self) -> None:
        while self._queue and self._queue[0].cancelled:
            heapq.heappop(self._queue)
        self.next_ms = self._queue[0].next_ms if self._queue else NEVER
