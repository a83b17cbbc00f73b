"""The operators of joins of two streams.

    left  -> KeepRecords -> InnerSide or OuterSide \\
                                                     > merge
    right -> KeepRecords -> InnerSide or OuterSide /

*Guarantees*: the results and their order are those of Kafka Streams. A result of two records has the later of both
timestamps. The result of a record without a partner has that record's timestamp. Both have the headers and the origin
of the record that is being processed. A record without a key or without a value is dropped, and counted as dropped. One
exception (KIP-962): if its side needs no partner, a record that has a value but no key is sent immediately. A joiner
may change the values that it is given, because each call gets its own copies. On a side that needs no partner, a record
has either results with its partners, or one result without a partner, never both. A record without a partner is sent
when its window and the grace are over. After that, later records don't find it any more. With `AT_ONCE` the rules are
Kafka Streams' own. For a left or an outer join, two times are stored with the committed offsets: the highest time that
both sides have seen, and the time of the first waiting record. If a record fails, or the task is rolled back, changes
of these times are undone. After a restart they continue.

*Assumes*: the records of each side are in a window store with duplicates. Waiting records are in a key-value store with
the serdes of `unmatched.py`.
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
    """Two times in ms after the end of a record's window, measured by the timestamps of the records.

    `own`: a late record waits for a partner until this time. `partner`: other records find a record that needs no
    partner until this time."""

    own: int
    partner: int


_PATIENCE: Final[Mapping[str, Callable[[int], Patience]]] = {
    AFTER_GRACE: lambda grace_ms: Patience(grace_ms, grace_ms),
    AT_ONCE: lambda _: Patience(0, FOREVER),
}
"""For each setting of when records without a partner are sent: a function that computes both times from the grace."""

Joining = Callable[[Any, Any, Any], Any]
"""(key, value, value of the other side) -> joined value."""


@dataclass(frozen=True)
class KeepRecords:
    """Stores the records of one side, so that records of the other side find them. A record is joined before it is
    stored. So if a stream is joined with itself, only one side finds the record."""

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
    """Joins the records of one side with the records in the store `other`. `left`: True if this is the left side."""

    other: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    left: bool

    def bind(self, context: OperatorContext) -> Process:
        fetch, forward, join = context.store(self.other).rows_between, context.forward, self.joining()
        before_ms, after_ms = self.reach()
        dropped, node = context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            until = timestamp + after_ms
            rows = fetch(key, timestamp - before_ms, until if until > 0 else 0)
            if rows:
                latest, partner = rows.pop()
                for time, other in rows:
                    forward(key, join(key, copy_of(value), other), timestamp if timestamp > time else time)
                # the last result may have the value itself
                forward(key, join(key, value, partner), timestamp if timestamp > latest else latest)

        return process

    def reach(self) -> tuple[int, int]:
        """Return two durations in ms: how much older, and how much newer than a record of this side a partner may be.
        """
        before_ms, after_ms = self.windows.before_ms, self.windows.after_ms
        return (before_ms, after_ms) if self.left else (after_ms, before_ms)

    def joining(self) -> Joining:
        """Return the joiner as a function that takes the value of this side first."""
        return _JOINING[self.left, self.with_key](self.joiner)


_JOINING: Final[dict[tuple[bool, bool], Callable[[Callable[..., Any]], Joining]]] = {
    (True, True): lambda joiner: joiner,
    (True, False): lambda joiner: lambda _, left, right: joiner(left, right),
    (False, True): lambda joiner: lambda key, right, left: joiner(key, left, right),
    (False, False): lambda joiner: lambda _, right, left: joiner(left, right),
}
"""Functions that adapt a joiner. The key says whether the side is the left one, and whether the joiner takes the key.
"""


@dataclass(frozen=True)
class SelfJoin(InnerSide):
    """Joins a stream with itself. One store has the records of both sides, and each record is also its own partner. The
    result of a record with itself comes before its results with later records, unless the record is too late for its
    own window."""

    def bind(self, context: OperatorContext) -> Process:
        fetch, forward, join = context.store(self.other).rows_between, context.forward, self.joining()
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
                forward(key, join(key, copy_of(value), other), timestamp if timestamp > time else time)
            for time, other in fetch(key, max(0, timestamp - after_ms), max(0, timestamp + before_ms)):
                if waits and timestamp < time:
                    waits = False
                    forward(key, own, timestamp)
                result = join_as_other(key, copy_of(value), other)
                forward(key, result, timestamp if timestamp > time else time)
            if waits:
                forward(key, own, timestamp)

        return process


@dataclass(frozen=True)
class OuterSide(InnerSide):
    """Joins the records of one side of a left or an outer join.

    `waiting`: the store of the records that have no partner yet. `alone`: True if a record of this side needs no
    partner. `other_alone`: True if a record of the other side needs no partner. `join`: the name of the times that both
    sides share. `unmatched`: decides when a record without a partner is sent."""

    waiting: str
    alone: bool
    other_alone: bool
    join: str
    unmatched: str = AFTER_GRACE

    def bind(self, context: OperatorContext) -> Process:
        fetch, forward, join = context.store(self.other).rows_between, context.forward, self.joining()
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
            rows = fetch(key, first, last)
            if rows:
                latest, partner = rows.pop()
                for time, other in rows:
                    matched(Unmatched(time, not left, key))
                    forward(key, join(key, copy_of(value), other), timestamp if timestamp > time else time)
                matched(Unmatched(latest, not left, key))
                # the last result may have the value itself
                forward(key, join(key, value, partner), timestamp if timestamp > latest else latest)
            elif alone:
                if last + own_ms < now:
                    forward(key, join(key, value, None), timestamp)
                else:
                    wait(Unmatched(timestamp, left, key), value)

        return process

    def _passing(self, context: OperatorContext) -> Callable[[Any, int, int], None]:
        """Make a function that counts a record if it has partners of these times. The record isn't joined with these
        partners, because their window and grace are over."""
        fetch, dropped, node = context.store(self.other).rows_between, context.dropped, context.node

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
        """The time of the first record that may be waiting. `FOREVER` if none is waiting, -1 before the store was
        read."""
        self._store, self._forward = context.store(side.waiting), context.forward
        self._after_ms, self._windows = side.reach()[1], side.windows
        self._join, self._left = side.joining(), side.left

    def add(self, row: Unmatched, value: Any) -> None:
        """Put a record into the store of records that have had no partner yet."""
        first = self._first
        if first.value < 0 or row.time < first.value:
            first.set(row.time)
        self._store.put(row, [*(self._store.get(row) or ()), (row.left, value)])

    def matched(self, row: Unmatched) -> None:
        """Remove the records of `row` from the store of waiting records, as they have a partner now."""
        if self._store.get(row) is not None:
            self._store.put(row, None)

    def send_closed(self) -> None:
        """Send the records whose window and grace are over.

        As in Kafka Streams, the time of the last row that was read is stored as the time of the first waiting record,
        even if earlier rows still wait. So the next search begins at the same stream time as in Kafka
        Streams.
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
