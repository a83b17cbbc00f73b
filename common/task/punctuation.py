"""Calls by time, with Kafka Streams' rules.

Stream time counts from 0: the first call comes with the first record, later ones when stream time has passed the next
multiple of the interval. Wall-clock time counts from the call of `schedule`. Missed calls aren't made up for: after a
gap there is one call, and the next one keeps the rhythm. After a wall clock was put back, all punctuations are due one
interval later at the latest. Anchored punctuations (KIP-1146) are due at their anchor and whole intervals after it
only; after a wall clock was put back, at the first such time that is an interval away.

*Guarantees*: the earliest punctuation is called first, equals in the order of scheduling. A cancelled punctuation isn't
called again, also when it cancels itself; one whose call failed is due again. A schedule or its end holds from the end
of the record (or punctuation) on that asked for it: a record that fails has scheduled and cancelled nothing.
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
"""The times at which punctuations are due, ms, by the order in which they were scheduled, from 1."""


Ask = Callable[[Callable[[], None]], None]
"""Has a function called when the record in work is done, and never if the record fails."""


def at_once(grant: Callable[[], None]) -> None:
    """Call `grant` at once: for schedules outside of records."""
    grant()


def first_due(anchor_ms: int, interval_ms: int, now_ms: int) -> int:
    """The first time from `now_ms` on that is a whole number of intervals after the anchor; if the anchor is past, one
    after `now_ms`."""
    if now_ms <= anchor_ms:
        return anchor_ms
    return anchor_ms + ((now_ms - anchor_ms) // interval_ms + 1) * interval_ms


class Punctuation:
    """A scheduled call. `node` is the processor that scheduled the call. `anchor_ms`: of one that is anchored."""

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
        """Call no more after the call in work."""
        self._ask(self._cancelled)

    def _cancelled(self) -> None:
        self.cancelled = True

    def latest(self, now_ms: int) -> int:
        """The time at which it is due at the latest, by a clock that shows `now_ms`."""
        if self.anchor_ms is None:
            return now_ms + self.interval_ms
        return first_due(self.anchor_ms, self.interval_ms, now_ms + self.interval_ms - 1)

    def called(self, now_ms: int) -> None:
        """Move on to the first multiple of the interval after `now_ms`."""
        missed = max(0, (now_ms - self.next_ms) // self.interval_ms)
        self.next_ms += (missed + 1) * self.interval_ms


class PunctuationQueue:
    """The punctuations of one clock. `next_ms`: the time at which the earliest is due, `NEVER` without any."""

    def __init__(self) -> None:
        self.next_ms: int = NEVER
        self._queue: list[Punctuation] = []
        self._scheduled = 0
        self._seen_ms = -NEVER

    def schedule(
        self, node: str, callback: Callback, first_ms: int, interval_ms: int, ask: Ask = at_once,
        anchor_ms: int | None = None,
    ) -> Punctuation:
        """Call `callback(now)` at `first_ms` and each `interval_ms` after it. `anchor_ms`: `first_ms` is one of the
        times that this one anchors."""
        if interval_ms < 1:
            raise ValueError(f"{node} schedules a punctuation each {interval_ms} ms: the least is 1")
        punctuation = Punctuation(node, callback, first_ms, interval_ms, ask, anchor_ms)
        ask(lambda: self._enter(punctuation))
        return punctuation

    def _enter(self, punctuation: Punctuation) -> None:
        # When it was scheduled, the clock showed that: a clock that is put back before the next look is noticed, too.
        if punctuation.anchor_ms is None:
            self._seen_ms = max(self._seen_ms, punctuation.next_ms - punctuation.interval_ms)
        self._scheduled += 1
        punctuation.order = self._scheduled
        heapq.heappush(self._queue, punctuation)
        self._look()

    def is_due(self, now_ms: int) -> bool:
        """True if `run_due` has a punctuation to call, or a clock to follow that was put back. Any thread may ask."""
        if now_ms < self._seen_ms and self._queue:
            return True
        self._seen_ms = now_ms
        return self.next_ms <= now_ms

    def follow(self, now_ms: int) -> None:
        """Follow the clock to `now_ms`. After a clock was put back, all are due one interval from now, at the
        latest."""
        was_put_back, self._seen_ms = now_ms < self._seen_ms, now_ms
        if was_put_back:
            for punctuation in self._queue:
                punctuation.next_ms = min(punctuation.next_ms, punctuation.latest(now_ms))
            heapq.heapify(self._queue)
            self._look()

    def run_due(self, now_ms: int, call: Callable[[Punctuation], bool]) -> bool:
        """Hand each punctuation that is due at `now_ms` to `call`, which calls `called` once the work is staged, and
        returns False when the work was void. True when one was due. A punctuation that raises, or is void, stays due.

        A punctuation stays in the queue during its call, so that `times` has it."""
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
        """The time at which each punctuation is due next, for a boundary. Any thread may ask."""
        return {punctuation: punctuation.next_ms for punctuation in list(self._queue)}

    def take_over(self, times: Mapping[Punctuation, int], now_ms: int | None = None) -> None:
        """Continue the rhythm of a former program's punctuations, `times`: the n-th that a node schedules with an
        interval is due when the former n-th was; by the wall clock (`now_ms`), at the latest one interval from now."""
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
        """`times`, for the queue of the task's successor in another process."""
        return {punctuation.order: punctuation.next_ms for punctuation in self._queue}

    def resume(self, due: Due) -> None:
        """Make the n-th punctuation due when the predecessor's n-th was."""
        for punctuation in self._queue:
            punctuation.next_ms = due.get(punctuation.order, punctuation.next_ms)
        heapq.heapify(self._queue)
        self._look()

    def clear(self) -> None:
        """Forget all punctuations, and that there were any."""
        self._queue.clear()
        self._scheduled = 0
        self._look()

    def _look(self) -> None:
        while self._queue and self._queue[0].cancelled:
            heapq.heappop(self._queue)
        self.next_ms = self._queue[0].next_ms if self._queue else NEVER
