"""The operator that holds updates of a table back, and the getter of the resulting table's rows.

*Guarantees*: the semantics are those of Kafka Streams. An update is sent with the context of its record: timestamp,
headers, topic, partition, offset. A window's result is sent once, when the window has closed. If the result is a
deletion, it isn't sent. If a full buffer may not emit early, the record fails, and with it the task. No data is lost by
that. The time that counts is the highest one that the operator has seen in its task, also before a restart. If a record
fails, or the task is rolled back, its change of this time is undone.
*Assumes*: updates come as (new value, old value), from a table that sends old values. The store is a `SuppressBuffer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from milestones.common.errors import SuppressBufferFullError
from milestones.common.records import UNKNOWN_TIMESTAMP, Change
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.suppress_buffer import FirstRow, Kept, SuppressBuffer
from milestones.common.state.stores.suppress_layout import Context, check_time
from milestones.common.state.stores.window_stores import TimestampedWindows
from milestones.common.topology.operators.getters import Get, GetAsOf, Getter, Row
from milestones.common.topology.program import KeepRow, OperatorContext, Process, SendRow
from milestones.common.windowed import FOREVER, Windowed

SUPPRESSION_EMIT = "suppression-emit"
"""The count of the updates that were sent."""


class Buffer(Protocol):
    """The methods of a suppress buffer that the operator calls."""

    first_time: int

    def put(self, time: int, key: Any, change: Change, context: Context) -> None: ...

    def first(self) -> Kept: ...

    def first_row(self) -> FirstRow: ...

    def remove_first(self) -> None: ...

    def prior(self, key: Any) -> Any: ...

    def held(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Suppress:
    """Holds updates back for `wait_ms`, counted from the time of their record. With `windows`, the time is counted from
    the end of their window. `max_records`, `max_bytes`: the bounds of the buffer. `stops`: True means that a full
    buffer is an error. False means that a full buffer sends its first updates early.
    """

    makes_values: ClassVar[bool] = True
    sends_its_row: ClassVar[bool] = True

    store: str
    wait_ms: int
    windows: bool
    max_records: int = FOREVER
    max_bytes: int = FOREVER
    stops: bool = False

    def bind(self, context: OperatorContext) -> Process:
        buffer: Buffer = context.store(self.store)
        put, record, emit_due = buffer.put, context.record, self._emitting_due(context, buffer)
        time_of = _window_end if self.windows else _record_time

        def process(key: Any, change: Change, timestamp: int) -> None:
            put(time_of(key, timestamp), key, change, Context(timestamp, record.headers or None, record.metadata))
            emit_due(timestamp)

        return process

    def row_keeper(self, context: OperatorContext, store: Any) -> KeepRow | None:
        """Make a function that takes rows as they are in `store`. None if the buffer has other bytes, or if the rows go
        through the store's cache. Also None if the ends of windows count, and the store isn't one of `WindowAggregate`.
        """
        if self.windows and not isinstance(store, TimestampedWindows):
            return None
        buffer: SuppressBuffer = context.store(self.store)
        part = buffer.part_of_keys(store)
        if part is None:
            return None
        keep, record, windows, emit_due = buffer.keep, context.record, self.windows, self._emitting_due(context, buffer)

        def keep_row(place: bytes, end: int, new: bytes | None, old: Any, timestamp: int) -> None:
            if new is None:
                check_time(timestamp)  # the time of a row that was put has been checked
            keep(end if windows else timestamp, place[part], new, old, timestamp, record.headers, record.metadata)
            emit_due(timestamp)

        return keep_row

    def _emitting_due(self, context: OperatorContext, buffer: Buffer) -> Callable[[int], None]:
        """Make a function that sends the updates that are due, after an update of this time was kept back."""
        observed, emit, held = context.observed_time(), self._emitting(context, buffer), buffer.held
        wait_ms = self.wait_ms
        max_records, max_bytes, stops, node = self.max_records, self.max_bytes, self.stops, context.node
        bounded = max_records != FOREVER or max_bytes != FOREVER

        def emit_due(timestamp: int) -> None:
            now = observed.value
            if timestamp > now:
                now = timestamp
                observed.set(now)
            expired = now - wait_ms
            while buffer.first_time <= expired:
                emit()
            if bounded:
                while (kept := held())[0] > max_records or kept[1] > max_bytes:
                    if stops:
                        raise self._full(node, kept)
                    emit()

        return emit_due

    def _emitting(self, context: OperatorContext, buffer: Buffer) -> Callable[[], None]:
        """Make a function that sends the first update. While the nodes below process it, it is still in the buffer."""
        record, forward, drops_deletions = context.record, context.forward, self.windows
        emitted, send_row = context.tally(context.node, SUPPRESSION_EMIT), context.row_takers.send

        def emit_row(send: SendRow) -> None:
            inner, key, value, timestamp, headers = buffer.first_row()
            if value is not None or not drops_deletions:
                send(inner, key, value, timestamp, headers)
                emitted.total += 1
            buffer.remove_first()

        if send_row is not None:
            return partial(emit_row, send_row)

        def emit() -> None:
            key, change, of = buffer.first()
            if change[0] is not None or not drops_deletions:
                former = record.stand_in(of.timestamp, of.headers, of.origin)
                try:
                    forward(key, change, of.timestamp)
                finally:
                    record.resume(former)
                emitted.total += 1
            buffer.remove_first()

        return emit

    def _full(self, node: str, kept: tuple[int, int]) -> SuppressBufferFullError:
        bounds = self.max_records, self.max_bytes
        (records, size), (most, most_bytes) = kept, ("any number" if bound == FOREVER else bound for bound in bounds)
        waits = "for their windows to close" if self.windows else "for their time"
        more = "" if self.windows else "; or let its first updates go early, when_full='emit'"
        return SuppressBufferFullError(
            f"{node} keeps back {records} updates of {most}, {size} bytes of {most_bytes}: more wait {waits} than "
            "max_records and max_bytes allow. Nothing is lost, what was processed since the last commit is read again: "
            f"raise the bounds, and start again{more}"
        )


def _record_time(_: Any, timestamp: int) -> int:
    return timestamp


def _window_end(key: Any, _: int) -> int:
    if not isinstance(key, Windowed):
        raise TypeError(
            f"suppress(until='window_closes') has the key {key!r}, which has no window: the rows between the windows "
            "and suppress must keep their Windowed keys"
        )
    return key.end


@dataclass(frozen=True)
class BufferGetter:
    """Reads the rows of a suppressed table. If an update of the key is held back, this is the row before that update.
    Otherwise this is the parent's row."""

    buffer: str
    parent: Getter
    versioned: ClassVar[bool] = False

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.buffer, *self.parent.stores)

    def bind(self, context: OperatorContext) -> Get:
        buffer: Buffer = context.store(self.buffer)
        prior_of, get = buffer.prior, self.parent.bind(context)

        def suppressed(key: Any) -> Row | None:
            prior = prior_of(key)
            if prior is ABSENT:
                return get(key)
            return None if prior is None else (prior, UNKNOWN_TIMESTAMP)

        return suppressed

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        raise NotImplementedError  # only of versioned tables
