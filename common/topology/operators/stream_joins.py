"""The operators of joins of two streams.

    left  -> KeepRecords -> InnerSide or OuterSide \\
                                                     > merge
    right -> KeepRecords -> InnerSide or OuterSide /

*Guarantees*: Kafka Streams' results, in its order. A result of two records has the later of both timestamps, one
without a partner its record's own; either has the headers and the origin of the record in work. A record without a key
or a value is dropped and counted; without a key only, a side that needs no partner sends it at once (KIP-962).
A joiner may change the values that it is given: each result has its own.
A record of a side that needs no partner has results with its partners or one without, never both. A record without a
partner is sent when its window and the grace are over, and later records don't find it any more. `AT_ONCE` has Kafka
Streams' way.
The committed offsets have the time that both sides of a left or an outer join have seen, and the time of the first
record that waits. A failed record and a roll-back take these times back, and after a restart they continue.
*Assumes*: the stores of records are window stores with duplicates, that of waiting records a key-value store with the
serdes of `unmatched.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from milestones.common.copies import copy_of
from milestones.common.state.times import time_name
from milestones.common.topology.join_windows import JoinWindows
from milestones.common.topology.operators.aggregates import NULL_KEY_OR_VALUE
from milestones.common.topology.operators.unmatched import Unmatched
from milestones.common.topology.program import Memory, OperatorContext, Process
from milestones.common.windowed import AFTER_GRACE, AT_ONCE, FOREVER

LATE: Final = "later than its join's window and grace"
PARTNER_IS_DONE: Final = "its partner's window and grace were over"


class Patience(NamedTuple):
    """How long after the end of its window, ms by the time of the records, a record that comes late waits for a
    partner (`own`), and how long a record may be found that needs none (`partner`)."""

    own: int
    partner: int


_PATIENCE: Final[Mapping[str, Callable[[int], Patience]]] = {
    AFTER_GRACE: lambda grace_ms: Patience(grace_ms, grace_ms),
    AT_ONCE: lambda _: Patience(0, FOREVER),
}
"""By when records without a partner are sent: what the grace leads to."""

Joining = Callable[[Any, Any, Any], Any]
"""(key, value, value of the other side) -> joined value."""


@dataclass(frozen=True)
class KeepRecords:
    """Keeps the records of one side for those of the other. A record is joined first: of two equal streams, one side
    finds the record, and not both."""

    store: str

    def bind(self, context: OperatorContext) -> Process:
        store, forward, record = context.store(self.store), context.forward, context.record
        encode, put, dropped, node = store.encode, store.put_encoded, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            before, record.timestamp = record.timestamp, timestamp  # what the join's stores log with
            if key is None:
                forward(key, value, timestamp)
            else:
                data = encode(value)  # the joiner may change the value
                forward(key, value, timestamp)
                if not put(key, data, timestamp):
                    dropped(node, LATE)
            record.timestamp = before

        return process


@dataclass(frozen=True)
class InnerSide:
    """Joins the records of one side with those that `other` has. `left`: whether it's the left side."""

    other: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    left: bool

    def bind(self, context: OperatorContext) -> Process:
        fetch, forward, join = context.store(self.other).fetch, context.forward, self.joining()
        before_ms, after_ms = self.reach()
        dropped, node = context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            last = None
            for row in fetch(key, max(0, timestamp - before_ms), max(0, timestamp + after_ms)):
                if last is not None:
                    forward(key, join(key, copy_of(value), last[1]), max(timestamp, last[0]))
                last = row
            if last is not None:  # the last result may have the value itself
                forward(key, join(key, value, last[1]), max(timestamp, last[0]))

        return process

    def reach(self) -> tuple[int, int]:
        """How much older, and how much newer, a partner of this side's records may be, ms."""
        before_ms, after_ms = self.windows.before_ms, self.windows.after_ms
        return (before_ms, after_ms) if self.left else (after_ms, before_ms)

    def joining(self) -> Joining:
        """The joiner, with the values of this side first."""
        return _JOINING[self.left, self.with_key](self.joiner)


_JOINING: Final[dict[tuple[bool, bool], Callable[[Callable[..., Any]], Joining]]] = {
    (True, True): lambda joiner: joiner,
    (True, False): lambda joiner: lambda _, left, right: joiner(left, right),
    (False, True): lambda joiner: lambda key, right, left: joiner(key, left, right),
    (False, False): lambda joiner: lambda _, right, left: joiner(left, right),
}
"""By whether a side is the left one, and whether the joiner takes the key."""


@dataclass(frozen=True)
class SelfJoin(InnerSide):
    """Joins a stream with itself: both sides' records are those of one store, and each record is its own partner. Its
    result with itself comes before that with a later record, unless the record is too late for its own window."""

    def bind(self, context: OperatorContext) -> Process:
        fetch, forward, join = context.store(self.other).fetch, context.forward, self.joining()
        join_as_other = replace(self, left=False).joining()
        before_ms, after_ms = self.reach()
        kept_ms = self.windows.size_ms + self.windows.grace_ms
        dropped, node, observed = context.dropped, context.node, context.observed_time()

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            own = join(key, copy_of(value), copy_of(value))
            if timestamp > observed.value:
                observed.set(timestamp)
            waits = timestamp > observed.value - kept_ms + 1
            for time, other in fetch(key, max(0, timestamp - before_ms), max(0, timestamp + after_ms)):
                forward(key, join(key, copy_of(value), other), max(timestamp, time))
            for time, other in fetch(key, max(0, timestamp - after_ms), max(0, timestamp + before_ms)):
                if waits and timestamp < time:
                    waits = False
                    forward(key, own, timestamp)
                forward(key, join_as_other(key, copy_of(value), other), max(timestamp, time))
            if waits:
                forward(key, own, timestamp)

        return process


@dataclass(frozen=True)
class OuterSide(InnerSide):
    """Joins the records of one side of a left or an outer join. `waiting`: the store of the records that have no
    partner yet; `alone`: whether a record of this side needs none, `other_alone`: whether one of the other side does;
    `join`: the name of what both sides remember; `unmatched`: when a record without a partner is sent."""

    waiting: str
    alone: bool
    other_alone: bool
    join: str
    unmatched: str = AFTER_GRACE

    def bind(self, context: OperatorContext) -> Process:
        fetch, forward, join = context.store(self.other).fetch, context.forward, self.joining()
        (before_ms, after_ms), left, alone = self.reach(), self.left, self.alone
        waiting = Waiting(self, context)
        observed, wait, matched, send_closed = waiting.observed, waiting.add, waiting.matched, waiting.send_closed
        dropped, node, pass_over = context.dropped, context.node, self._passing(context)
        patience = _PATIENCE[self.unmatched](self.windows.grace_ms)
        own_ms, kept_ms = patience.own, before_ms + (patience.partner if self.other_alone else FOREVER)

        def process(key: Any, value: Any, timestamp: int) -> None:
            now = observed.value
            if timestamp > now:
                now = timestamp
                observed.set(timestamp)
            if value is None or (key is None and not alone):
                dropped(node, NULL_KEY_OR_VALUE)
                return
            if key is None:
                forward(key, join(key, value, None), timestamp)
                return
            if timestamp == now:
                send_closed()
            first, last = max(0, timestamp - before_ms), max(0, timestamp + after_ms)
            if first < now - kept_ms:
                done, first = first, now - kept_ms
                pass_over(key, done, min(first - 1, last))
            row = None
            for following in fetch(key, first, last):
                if row is not None:
                    matched(Unmatched(row[0], not left, key))
                    forward(key, join(key, copy_of(value), row[1]), max(timestamp, row[0]))
                row = following
            if row is not None:  # the last result may have the value itself
                matched(Unmatched(row[0], not left, key))
                forward(key, join(key, value, row[1]), max(timestamp, row[0]))
            elif alone:
                if last + own_ms < now:
                    forward(key, join(key, value, None), timestamp)
                else:
                    wait(Unmatched(timestamp, left, key), value)

        return process

    def _passing(self, context: OperatorContext) -> Callable[[Any, int, int], None]:
        """A function that counts a record which passes partners of these times: their own time is over."""
        fetch, dropped, node = context.store(self.other).fetch, context.dropped, context.node

        def pass_over(key: Any, first: int, last: int) -> None:
            if any(fetch(key, first, last)):
                dropped(node, PARTNER_IS_DONE)

        return pass_over


class Waiting:
    """The records of both sides that have no partner yet, as one side of the join sees them."""

    def __init__(self, side: OuterSide, context: OperatorContext) -> None:
        of = f"{side.join} {side.waiting}"
        self.observed: Memory = context.time(time_name(f"{of} observed"), -1)
        self._first = context.time(time_name(f"{of} first"), -1)
        """The time from which on records may wait: `FOREVER` when none does, -1 before the store was looked at."""
        self._store, self._forward = context.store(side.waiting), context.forward
        self._after_ms, self._windows = side.reach()[1], side.windows
        self._join, self._left = side.joining(), side.left

    def add(self, row: Unmatched, value: Any) -> None:
        """Have a record wait."""
        first = self._first
        if first.value < 0 or row.time < first.value:
            first.set(row.time)
        self._store.put(row, [*(self._store.get(row) or ()), (row.left, value)])

    def matched(self, row: Unmatched) -> None:
        """Let the records of `row`, which have a partner now, wait no longer."""
        if self._store.get(row) is not None:
            self._store.put(row, None)

    def send_closed(self) -> None:
        """Send the records whose window and grace are over.

        The first time that is noted is that of the last row that was looked at, as in Kafka Streams, though earlier
        rows may still wait: the next look comes as late as there.
        """
        observed, first, grace_ms = self.observed.value, self._first.value, self._windows.grace_ms
        if first >= 0 and first + self._after_ms + grace_ms >= observed:
            return
        open_sides: set[bool] = set()
        sent: list[Unmatched] = []
        first = FOREVER
        for row, value in self._each():
            first = row.time
            if len(open_sides) == 2:
                break
            reach_ms = self._windows.after_ms if row.left else self._windows.before_ms
            if row.time + reach_ms + grace_ms >= observed:
                open_sides.add(row.left)
                continue
            mine, other = (value, None) if row.left == self._left else (None, value)
            self._forward(row.key, self._join(row.key, mine, other), row.time)
            if not sent or sent[-1] is not row:
                sent.append(row)
        for row in sent:
            self._store.put(row, None)
        self._first.set(first)

    def _each(self) -> Iterator[tuple[Unmatched, Any]]:
        for row, values in self._store.all():
            for _, value in values:
                yield row, value
