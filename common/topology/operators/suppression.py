"""The operator that keeps the updates of a table back, and the rows of the table that it leads to.

*Guarantees*: Kafka Streams' semantics. An update is sent under the context of its record: timestamp, headers, topic,
partition, offset. A window's result is sent once, when the window has closed, and not at all when it is a deletion. A
full buffer that may not emit early fails the record, and with it the task: nothing is lost. The time is the highest
that the operator has seen in its task, also before a restart; a record that fails takes its time back, and so does a
roll-back.
*Assumes*: updates come as (new, old), from a table that sends old values; the store is a `SuppressBuffer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from milestones.common.errors import SuppressBufferFullError
from milestones.common.records import UNKNOWN_TIMESTAMP, Change
from milestones.common.state.layers import ABSENT
from milestones.common.state.stores.suppress_buffer import Kept
from milestones.common.state.stores.suppress_layout import Context
from milestones.common.topology.operators.getters import Get, GetAsOf, Getter, Row
from milestones.common.topology.program import OperatorContext, Process
from milestones.common.windowed import FOREVER, Windowed

SUPPRESSION_EMIT = "suppression-emit"
"""The count of the updates that were sent."""


class Buffer(Protocol):
    """The calls of the operator to a suppress buffer."""

    @property
    def first_time(self) -> int: ...

    def put(self, time: int, key: Any, change: Change, context: Context) -> None: ...

    def first(self) -> Kept: ...

    def remove_first(self) -> None: ...

    def prior(self, key: Any) -> Any: ...

    def held(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Suppress:
    """Keeps updates back for `wait_ms`; `windows`: from the end of their window on, else from their record's time on.
    `max_records`, `max_bytes`: bounds of the buffer; `stops`: a full one is an error, else its first updates are sent.
    """

    makes_values: ClassVar[bool] = True

    store: str
    wait_ms: int
    windows: bool
    max_records: int = FOREVER
    max_bytes: int = FOREVER
    stops: bool = False

    def bind(self, context: OperatorContext) -> Process:
        buffer: Buffer = context.store(self.store)
        observed, record, wait_ms = context.observed_time(), context.record, self.wait_ms
        emit, put, held = self._emitting(context, buffer), buffer.put, buffer.held
        time_of = _window_end if self.windows else _record_time
        max_records, max_bytes, stops, node = self.max_records, self.max_bytes, self.stops, context.node

        def process(key: Any, change: Change, timestamp: int) -> None:
            if timestamp > observed.value:
                observed.set(timestamp)
            put(time_of(key, timestamp), key, change, Context(timestamp, record.headers or None, record.metadata))
            expired = observed.value - wait_ms
            while buffer.first_time <= expired:
                emit()
            while (kept := held())[0] > max_records or kept[1] > max_bytes:
                if stops:
                    raise self._full(node, kept)
                emit()

        return process

    def _emitting(self, context: OperatorContext, buffer: Buffer) -> Callable[[], None]:
        """A function that sends the first update. Downstream, the update is still kept back."""
        record, forward, drops_deletions = context.record, context.forward, self.windows
        emitted = context.tally(context.node, SUPPRESSION_EMIT)

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
    """The rows of a suppressed table: where an update is kept back, the row before it, else the parent's row."""

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
