"""The Processor API: user code that sees whole records, keeps state and is called by time.

A processor is made per task by its supplier (a class, or any function without arguments), so its attributes belong
to one task.

*Guarantees*: one thread at a time calls a processor; `init` before the first record, `close` once at the end.
*Assumes*: a supplier returns a new object at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from milestones.common.errors import TopologyError
from milestones.common.records import FixedKeyRecord, Record, RecordMetadata, TaskId
from milestones.common.topology.program import Cancellable, OperatorContext, Process, PunctuationType


class ProcessorContext:
    """What a processor may ask of its task (KIP-478, KIP-820)."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._children: dict[str | None, Process] = {None: context.forward}
        self.task_id: TaskId = context.task_id
        self.application_id: str = context.application_id
        self.app_configs: Mapping[str, Any] = context.config

    def forward(self, record: Record, child: str | None = None) -> None:
        """Send `record` to all children, or to the one named `child`; returns when they are done with it."""
        try:
            process = self._children[child]
        except KeyError:
            assert child is not None
            process = self._children[child] = self._context.forward_to(child)
        key, value, timestamp, headers = record
        if timestamp < 0:
            raise ValueError(f"{self._context.node} forwards a record with the negative timestamp {timestamp}")
        scope = self._context.record
        before = scope.headers
        scope.headers = list(headers) if headers else None
        try:
            process(key, value, timestamp)
        finally:
            scope.headers = before

    def get_state_store(self, name: str) -> Any:
        """The store of that name; it must be connected to this processor, else `TopologyError`."""
        return self._context.store(name)

    def schedule(
        self, interval: timedelta | int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """Call `callback(timestamp)` each `interval` (or that many ms) of `"stream-time"` or `"wall-clock-time"`.

        By stream time the first call comes with the first record; by wall clock after one interval.
        """
        milliseconds = interval // timedelta(milliseconds=1) if isinstance(interval, timedelta) else interval
        if milliseconds < 1:
            raise ValueError(f"the interval of a punctuation must be at least 1 ms, not {interval!r}")
        if kind not in ("stream-time", "wall-clock-time"):
            raise ValueError(f'a punctuation goes by "stream-time" or "wall-clock-time", not {kind!r}')
        return self._context.schedule(milliseconds, kind, callback, self._context.node)

    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None in a wall-clock punctuation."""
        return self._context.record.metadata

    def commit(self) -> None:
        """Ask for a commit soon."""
        self._context.request_commit()

    def current_stream_time_ms(self) -> int:
        """The highest timestamp this task has seen, -1 before the first."""
        return self._context.stream_time()

    def current_system_time_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        return self._context.wall_ms()


class FixedKeyProcessorContext(ProcessorContext):
    """The same for `process_values`: a record's key can't change."""

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self.current: FixedKeyRecord | None = None

    def forward(self, record: Any, child: str | None = None) -> None:
        """As `ProcessorContext.forward`; the record must come from the one in work (`record.with_value(...)`)."""
        current = self.current
        if current is None or (record.key is not current.key and record.key != current.key):
            raise TopologyError(
                f"{self._context.node} forwards a record with a key that isn't the one in work: process_values can't "
                "change keys, or make records in a punctuation. Use process"
            )
        super().forward(record, child)


class Processor:
    """Base of processors; `init` keeps the context. Overriding `process` is enough."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Once, before the first record: get stores, schedule punctuations."""
        self.context = context

    def process(self, record: Record) -> None:
        """A record from a parent."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method process(record)")

    def close(self) -> None:
        """Once, when the task is closed."""


class FixedKeyProcessor:
    """Base of processors that don't change keys."""

    context: FixedKeyProcessorContext

    def init(self, context: FixedKeyProcessorContext) -> None:
        """Once, before the first record: get stores, schedule punctuations."""
        self.context = context

    def process(self, record: FixedKeyRecord) -> None:
        """A record from a parent."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method process(record)")

    def close(self) -> None:
        """Once, when the task is closed."""


def check_supplier(supplier: Any, node: str) -> Callable[[], Any]:
    """`supplier` when it can make processors; else `TopologyError`."""
    if callable(supplier):
        return supplier  # type: ignore[no-any-return]
    hint = "each task needs one of its own: give the class, or a function that makes one"
    raise TopologyError(f"the supplier of {node} can't be {supplier!r}: {hint}")


@dataclass(frozen=True)
class ProcessorOperator:
    """Runs a `Processor` of `supplier`."""

    supplier: Callable[[], Any]

    def bind(self, context: OperatorContext) -> Process:
        processor = self.supplier()
        context.on_init(lambda: processor.init(ProcessorContext(context)))
        context.on_close(processor.close)
        handle, scope = processor.process, context.record

        def process(key: Any, value: Any, timestamp: int) -> None:
            headers, before = scope.headers, scope.timestamp
            scope.timestamp = timestamp
            try:
                handle(Record(key, value, timestamp, list(headers) if headers else []))
            finally:
                scope.timestamp = before

        return process


@dataclass(frozen=True)
class FixedKeyProcessorOperator:
    """Runs a `FixedKeyProcessor` of `supplier`."""

    supplier: Callable[[], Any]

    def bind(self, context: OperatorContext) -> Process:
        processor, own = self.supplier(), FixedKeyProcessorContext(context)
        context.on_init(lambda: processor.init(own))
        context.on_close(processor.close)
        handle, scope = processor.process, context.record

        def process(key: Any, value: Any, timestamp: int) -> None:
            headers, outer, before = scope.headers, own.current, scope.timestamp
            own.current = record = FixedKeyRecord(key, value, timestamp, list(headers) if headers else [])
            scope.timestamp = timestamp
            try:
                handle(record)
            finally:
                own.current, scope.timestamp = outer, before

        return process
