"""The operator that aggregates a stream by key and session.

*Guarantees*: as in `window_aggregates.py`.
*Assumes*: the store is a `SessionStore`. It is `closing` if sessions are emitted when they close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from milestones.common.topology.operators.aggregates import Aggregator, Initializer, initial
from milestones.common.topology.operators.tables import NULL_KEY
from milestones.common.topology.operators.window_aggregates import GONE, closing, observed_time, skipping
from milestones.common.topology.program import OperatorContext, Process
from milestones.common.topology.windows import SessionWindows
from milestones.common.windowed import Windowed

Merger = Callable[[Any, Any, Any], Any]
"""Merges two sessions: (key, aggregate, other aggregate) -> aggregate of both."""


@dataclass(frozen=True)
class SessionAggregate:
    """Aggregates the values of each key and session. A record that closes the gap between two sessions merges them."""

    store: str
    windows: SessionWindows
    initializer: Initializer
    aggregator: Aggregator
    merger: Merger
    on_close: bool = False
    send_old_values: bool = False
    late: str | None = None

    def bind(self, context: OperatorContext) -> Process:
        store = context.store(self.store)
        update = _updates(context, store, self.send_old_values, self.on_close)
        emit = closing(context, store, self.store, _closed_ends, _at_its_end) if self.on_close else None
        dropped, node, skip = context.dropped, context.node, skipping(context, self.late)
        initializer, aggregator, merger = initial(self.initializer), self.aggregator, self.merger
        again = self.send_old_values and not store.immutable and update is not _no_update
        flushed = store.buffer is not None  # then updates are sent in the order of writes, and the log has its own
        gap_ms, grace_ms, record = self.windows.gap_ms, self.windows.grace_ms, context.record
        observed = observed_time(context, self.store, self.on_close, grace_ms + gap_ms)

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
                return
            if timestamp > observed.value:
                observed.set(timestamp)
            before, record.timestamp = record.timestamp, timestamp  # what the store logs with
            now = observed.value
            closes = now - grace_ms - gap_ms
            start = end = timestamp
            aggregate = initializer()
            merged = store.near(key, timestamp - gap_ms, timestamp + gap_ms)
            for _, session, its in merged:
                aggregate = merger(key, aggregate, its)
                start, end = min(start, session.start), max(end, session.end)
            if end < closes:
                skip(key, value, timestamp, 1, False)
            else:
                former = merged if (start, end) != (timestamp, timestamp) else ()
                for place, session, its in former:
                    if again:  # the merger may have changed it
                        its = store.get_raw(session)[0]
                    if flushed:
                        store.put_at(place, None, session.end, now)
                    update(session, its, None)
                aggregate = aggregator(key, value, aggregate)
                grown = Windowed(key, start, end)
                if not store.put_raw(grown, aggregate, now):
                    dropped(node, GONE)
                if not flushed:
                    _delete(store, former, start, end, now)
                update(grown, None, aggregate)
            record.timestamp = before
            if emit is not None:
                emit(closes)

        return process


def _delete(store: Any, former: Iterable[Any], start: int, end: int, now: int) -> None:
    """Delete the sessions that were merged into the one from `start` to `end`. This comes after the put of the merged
    session: a crash may leave only the first part of the changelog records, and one of both must be among them."""
    for place, session, _ in former:
        if session.start != start or session.end != end:
            store.put_at(place, None, session.end, now)


def _updates(
    context: OperatorContext, store: Any, send_old_values: bool, on_close: bool
) -> Callable[[Windowed[Any], Any, Any], None]:
    """Make a function that forwards the update of a session: (session, old value, new value). As in Kafka Streams, an
    update has no headers, because several records have led to it."""
    forward, record = context.forward, context.record

    def flushed(session: Windowed[Any], new: Any, old: Any, _timestamp: int) -> None:
        forward(session, (new, old if send_old_values else None), session.end)

    def update(session: Windowed[Any], old: Any, new: Any) -> None:
        headers, record.headers = record.headers, None
        forward(session, (new, old if send_old_values else None), session.end)
        record.headers = headers

    if on_close or store.set_flush_listener(flushed, send_old_values):
        return _no_update
    return update


def _no_update(session: Windowed[Any], old: Any, new: Any) -> None:
    """Do nothing: sessions are emitted when they close, or when the store's cache is flushed."""


def _closed_ends(before: int, closes: int) -> tuple[int, int]:
    return max(0, before), closes - 1


def _at_its_end(session: Windowed[Any], value: Any) -> tuple[Any, int]:
    return value, session.end
