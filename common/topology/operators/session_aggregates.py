"""The operator that aggregates a stream by key and session.

*Guarantees*: as in `window_aggregates.py`.
*Assumes*: the store is a `SessionStore`, also one with headers. It is `closing` if sessions are emitted when they
close.

*Why this way*: the operator works on the rows of the store as they are: lists, and the bytes of their keys. If a sink
follows that sends the very rows (`program.SendRow`), no `Windowed` is made, and nothing is serialised twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from milestones.common.topology.operators.aggregates import Aggregator, Initializer, initial
from milestones.common.topology.operators.tables import NULL_KEY
from milestones.common.topology.operators.window_aggregates import GONE, closing, observed_time, skipping
from milestones.common.topology.program import OperatorContext, Process
from milestones.common.topology.windows import SessionWindows
from milestones.common.windowed import Windowed

Merger = Callable[[Any, Any, Any], Any]
"""Merges two sessions: (key, aggregate, other aggregate) -> aggregate of both."""


class SessionTable(Protocol):
    """The methods of a session store that the operator calls. Rows are those of `key_views.Row`."""

    buffer: Any
    immutable: bool

    def near(self, key: Any, earliest_end: int, latest_start: int) -> tuple[bytes, list[Any]]:
        """Return the bytes of `key`, and the rows of its sessions that end at `earliest_end` or later, and start at
        `latest_start` or before."""
        ...

    def replace_rows(
        self, key: bytes, former: Sequence[Any], start: int, end: int, value: Any, now: int, new: bool
    ) -> Any | None:
        """Set the value of a session, delete the sessions `former`, and return the session's row. `new`: False if there
        is a session with these bounds that isn't in `former`. Returns None, and sets nothing, if all sessions of the
        same segment have expired."""
        ...

    def delete_rows(self, key: bytes, rows: Sequence[Any], now: int) -> None: ...

    def put_raw(self, session: Windowed[Any], value: Any, now: int) -> bool: ...

    def row_value(self, row: Any) -> Any:
        """Decode the value of a row once more."""
        ...

    def closed_between(self, first: int, last: int) -> Iterator[tuple[Windowed[Any], Any]]: ...

    def set_flush_listener(self, listener: Any, send_old_values: bool, /) -> bool: ...


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

    @property
    def sends_its_row(self) -> bool:
        """True if each update is sent immediately after its row was put."""
        return not self.on_close

    def bind(self, context: OperatorContext) -> Process:
        store: SessionTable = context.store(self.store)
        update = _updates(context, store, self.send_old_values, self.on_close)
        without_row = _without_row(context, store, update)
        take = self._taking(store, update, without_row)
        emit = closing(context, store, self.store, _closed_ends, _at_its_end) if self.on_close else None
        dropped, node, skip = context.dropped, context.node, skipping(context, self.late)
        send_row = context.row_takers.send
        near, replace_rows = store.near, store.replace_rows
        initializer, aggregator, merger = initial(self.initializer), self.aggregator, self.merger
        gap_ms, record = self.windows.gap_ms, context.record
        after_ms = self.windows.grace_ms + gap_ms
        """How long after its end a session closes."""
        observed = observed_time(context, self.store, self.on_close, after_ms)

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
                return
            now = observed.value
            if timestamp > now:
                now = timestamp
                observed.set(now)
            before = record.timestamp
            record.timestamp = start = end = timestamp  # the store logs with the record's time
            aggregate = initializer()
            data, found = near(key, timestamp - gap_ms, timestamp + gap_ms)
            for its_end, its_start, _, _, its in found:
                aggregate = merger(key, aggregate, its)
                if its_start < start:
                    start = its_start
                if its_end > end:
                    end = its_end
            new = start != end or not found
            former = found if new else ()  # a session with records of this time only keeps its bounds
            if timestamp < now and end < now - after_ms:
                skip(key, value, timestamp, 1, False)
            elif send_row is None:
                take(key, value, data, former, new, start, end, aggregate, now)
            else:
                for row in former:
                    send_row(data, row[2], None, row[0], None)
                aggregate = aggregator(key, value, aggregate)
                grown = None if aggregate is None else replace_rows(data, former, start, end, aggregate, now, new)
                if grown is None:
                    without_row(key, data, former, start, end, aggregate, now)
                else:
                    send_row(data, grown[2], grown[3], end, None)
            record.timestamp = before
            if emit is not None:
                emit(now - after_ms)

        return process

    def _taking(self, store: SessionTable, update: Update, without_row: WithoutRow) -> Take:
        """Make the function that adds a record to its session, if no sink sends the very rows."""
        again = self.send_old_values and not store.immutable and update is not _no_update
        flushed = store.buffer is not None  # then updates are sent in the order of writes, and the log has its own
        replace_rows, row_value, aggregator = store.replace_rows, store.row_value, self.aggregator

        def take(
            key: Any, value: Any, data: bytes, former: Sequence[Any], new: bool, start: int, end: int, aggregate: Any,
            now: int,
        ) -> None:  # fmt: skip
            if flushed:
                store.delete_rows(data, former, now)
            for row in former:
                its_end, its_start, _, _, its = row  # the merger may have changed the value
                update(Windowed(key, its_start, its_end), row_value(row) if again else its, None)
            if flushed:
                former = ()
            aggregate = aggregator(key, value, aggregate)
            if aggregate is None or replace_rows(data, former, start, end, aggregate, now, new) is None:
                without_row(key, data, former, start, end, aggregate, now)
            else:
                update(Windowed(key, start, end), None, aggregate)

        return take


Update = Callable[[Windowed[Any], Any, Any], None]
"""A function that forwards the update of a session: (session, old value, new value)."""

Take = Callable[[Any, Any, bytes, Sequence[Any], bool, int, int, Any, int], None]
"""A function that adds a record to its session: (key, value, the key's bytes, rows of the sessions that the session
replaces, False if there was a session with these bounds that isn't among them, start, end, the aggregate without the
record, the highest time so far)."""

WithoutRow = Callable[[Any, bytes, Sequence[Any], int, int, Any, int], None]
"""A function for a session that gets no row: (key, the key's bytes, rows of the sessions that the session replaces,
start, end, the aggregate, the highest time so far)."""


def _without_row(context: OperatorContext, store: SessionTable, update: Update) -> WithoutRow:
    """Make the function for a session that gets no row. Its aggregate is None: then the session is deleted. Or all
    sessions of its segment have expired: then the store has refused it, and has deleted the sessions that it replaces.
    """
    dropped, node = context.dropped, context.node

    def without_row(
        key: Any, data: bytes, former: Sequence[Any], start: int, end: int, aggregate: Any, now: int
    ) -> None:
        session, taken = Windowed(key, start, end), False
        if aggregate is None:
            taken = store.put_raw(session, None, now)
            store.delete_rows(data, [row for row in former if row[1] != start or row[0] != end], now)
        if not taken:
            dropped(node, GONE)
        update(session, None, aggregate)

    return without_row


def _updates(context: OperatorContext, store: SessionTable, send_old_values: bool, on_close: bool) -> Update:
    """Make the function that forwards updates. As in Kafka Streams, an
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
