"""The Processor API: user code that sees whole records, can keep state, and can be called at intervals of time.

Each task has its supplier make a processor. A supplier is a class, or any function without arguments. So the attributes
of a processor belong to one task. A roll-back closes the processor and makes a new one. So attributes never contain
traces of records that are processed once more.

*Guarantees*: only one thread at a time calls a processor. `init` is called before its first record, and `close` once at
its end. After `close` its context refuses every call. A supplier that returns the same object twice is a
`TopologyError`.
*Assumes*: if the objects of a supplier share anything, the user makes that safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any, Final, Generic, NoReturn

from milestones.common.errors import TopologyError
from milestones.common.functions import AWAITED_BY_NOBODY, is_coroutine_function
from milestones.common.records import FixedKeyRecord, Headers, Record, RecordMetadata, TaskId
from milestones.common.topology.missing import Explained
from milestones.common.topology.nodes import function_name, place_of
from milestones.common.topology.program import Cancellable, OperatorContext, Process, PunctuationType
from milestones.common.topology.user_functions import check_complete, check_methods
from milestones.common.type_variables import KR, VR, K, V
from milestones.common.writable import LAST_TIMESTAMP, headers_of, timestamp_of

_RECORDS: Final = (Record, FixedKeyRecord)


class _Ended(dict[Any, Any]):
    """Replaces the parts of a context after its processor was closed, and refuses every call."""

    def __init__(self, node: str) -> None:
        self._node = node

    def _refuse(self, _: object) -> NoReturn:
        raise TopologyError(
            f"the context of a processor of {self._node} is used after its close: the task has moved, or was rolled "
            "back and has a new processor. Don't keep a context, a store or a schedule beyond close"
        )

    __missing__ = __getattr__ = _refuse


class ProcessorContext(Explained, Generic[KR, VR]):
    """The services of the task that a processor can use until it is closed (KIP-478, KIP-820). `app_configs`: the
    values of the config, by key."""

    task_id: TaskId
    application_id: str
    app_configs: Mapping[str, Any]

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._children: dict[str | None, Process] = {None: context.forward_own}
        context.on_end(self._end)
        self.task_id, self.application_id = context.task_id, context.application_id
        self.app_configs = context.config

    def _end(self) -> None:
        ended: Any = _Ended(self._context.node)
        self._context = self._children = ended

    def forward(self, record: Record[KR, VR], child: str | None = None) -> None:
        """Send `record` to all child nodes, or only to the one named `child`. The call returns when they have processed
        it. If they change its key, value or headers, `record` itself stays unchanged."""
        try:
            process = self._children[child]
        except KeyError:
            assert child is not None
            process = self._children[child] = self._context.forward_own_to(child)
        try:
            key, value, timestamp, headers = record
        except (TypeError, ValueError):
            raise TypeError(
                f"{self._context.node} forwards {record!r}: forward takes one Record(key, value, timestamp, headers), "
                "such as record.with_value(...)"
            ) from None
        scope = self._context.record
        before = scope.headers
        if timestamp.__class__ is not int or not 0 <= timestamp <= LAST_TIMESTAMP or (headers and headers != before):
            timestamp, headers = self._checked(timestamp, headers)
        scope.headers = list(headers) if headers else None
        try:
            process(key, value, timestamp)
        finally:
            scope.headers = before

    def _checked(self, timestamp: int, headers: Headers | None) -> tuple[int, Headers]:
        """Check the parts of a record that the processor may have changed: the Kafka client must accept them."""
        try:
            return timestamp_of(timestamp), headers_of(headers or ())
        except ValueError as error:
            raise ValueError(f"{self._context.node} forwards a record with {error}") from error

    def get_state_store(self, name: str) -> Any:
        """Return the store of this name. The store must be connected to this processor, or be a global store, which can
        only be read. Raises `TopologyError` for any other name."""
        return self._context.store(name)

    def schedule(
        self,
        interval: timedelta | int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """Call `callback(timestamp)` every `interval` (a `timedelta` or ms) of `"stream-time"` or `"wall-clock-time"`.

        With stream time, the first call comes with the first record. With wall-clock time, it comes after one interval.
        The schedule begins when the record, punctuation or `init` that asked for it has ended without an error. The
        schedule ends with the processor. `start` (KIP-1146) is a `datetime` with a time zone, or ms since the epoch.
        With `start`, the calls come at `start`, one interval later, two intervals later and so on. It doesn't matter
        when the processor began.
        """
        milliseconds = interval // timedelta(milliseconds=1) if isinstance(interval, timedelta) else interval
        if milliseconds < 1:
            raise ValueError(f"the interval of a punctuation must be at least 1 ms, not {interval!r}")
        if kind not in ("stream-time", "wall-clock-time"):
            raise ValueError(f'a punctuation goes by "stream-time" or "wall-clock-time", not {kind!r}')
        if is_coroutine_function(callback):
            raise TopologyError(
                f"{self._context.node}: {function_name(callback)}{place_of(callback)} {AWAITED_BY_NOBODY}"
            )
        start_ms = None if start is None else _epoch_ms(start)
        return self._context.schedule(milliseconds, kind, callback, self._context.node, start_ms)

    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the input record. None in a punctuation."""
        return self._context.record.metadata

    def commit(self) -> None:
        """Ask the task to commit soon. The call doesn't wait for the commit."""
        self._context.request_commit()

    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp of the records that this task has processed, -1 before the first one."""
        return self._context.stream_time()

    def current_system_time_ms(self) -> int:
        """Return the time of the wall clock, in ms since the epoch."""
        return self._context.wall_ms()


def _epoch_ms(start: datetime | int) -> int:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError(f"the start of a punctuation needs a zone, as in datetime(..., tzinfo=UTC), not {start!r}")
        start = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if start < 0:
        raise ValueError(f"the start of a punctuation must not be before 1970: {start} ms")
    return start


class FixedKeyProcessorContext(ProcessorContext[K, VR]):
    """The context of `process_values`, where a record's key can't change."""

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self.current: FixedKeyRecord[K, Any] | None = None

    def forward(self, record: Any, child: str | None = None) -> None:
        """Forward as `ProcessorContext.forward` does. The record must have the key of the record that is being
        processed, so make it from that one (`record.with_value(...)`)."""
        current = self.current
        if current is None or (record.key is not current.key and record.key != current.key):
            raise TopologyError(
                f"{self._context.node} forwards a record with a key that isn't the one in work: process_values can't "
                "change keys, or make records in a punctuation. Use process"
            )
        super().forward(record, child)


class Processor(Generic[K, V, KR, VR]):
    """Base class of processors. The type parameters are the key and the value that a processor receives, then those
    that it forwards: `Processor[str, Order, str, float]`. A subclass must override `process`. The `init` of this class
    stores the context in `self.context`.

    An attribute lives as long as its processor. A restart, a move of the task and a roll-back make a new processor. The
    new processor begins with `init`, and finds the stores as they were committed. So values that must last belong into
    a store. An attribute may hold a copy of a store's values, for speed. If processing a record fails, its writes,
    outputs, schedules and requests are undone, but attributes that it has set stay set. So set attributes last, after
    all calls that may fail.
    """

    context: ProcessorContext[KR, VR]

    def init(self, context: ProcessorContext[KR, VR]) -> None:
        """Called once, before the first record. Get stores and schedule punctuations here. Writes and forwarded records
        are committed. After a restart, a move of the task or a roll-back, `init` of a new processor is called."""
        self.context = context

    def process(self, record: Record[K, V]) -> None:
        """Called for each record that comes from a parent node."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method process(record)")

    def close(self) -> None:
        """Called once, when the task closes or after it was rolled back. Writes and forwarded records made here are
        dropped."""


class FixedKeyProcessor(Generic[K, V, VR]):
    """Base class of processors that don't change keys. The type parameters are the key, the value that a processor
    receives, and the value that it forwards. For its attributes see `Processor`."""

    context: FixedKeyProcessorContext[K, VR]

    def init(self, context: FixedKeyProcessorContext[K, VR]) -> None:
        """Called once, before the first record, like `Processor.init`."""
        self.context = context

    def process(self, record: FixedKeyRecord[K, V]) -> None:
        """Called for each record that comes from a parent node."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method process(record)")

    def close(self) -> None:
        """Called once at the end, like `Processor.close`."""


def check_supplier(supplier: Any, node: str) -> Callable[[], Any]:
    """Return `supplier` if it can make processors. Raises `TopologyError` if not. A function is called twice as a
    check, and must make a new processor each time."""
    hint = "each task needs one of its own, a roll-back another one: give the class, or a function that makes one"
    if not callable(supplier):
        raise TopologyError(f"the supplier of {node} can't be {supplier!r}: {hint}")
    makes_new_ones = isinstance(supplier, type) or is_coroutine_function(supplier)  # check_functions refuses the latter
    if not makes_new_ones:
        _check_call(supplier, node)
    if not makes_new_ones and supplier() is supplier():
        raise TopologyError(f"the supplier of {node} returns the same object each time: {hint}")
    return supplier  # type: ignore[no-any-return]


def _check_call(supplier: Callable[..., Any], node: str) -> None:
    try:
        signature(supplier, follow_wrapped=False).bind()
    except ValueError:
        return  # the signature isn't known
    except TypeError as error:
        raise TopologyError(
            f"{node}: {function_name(supplier)}{place_of(supplier)} can't be called without arguments ({error}): "
            "process needs a Processor class, process_values a FixedKeyProcessor class, whose process(record) sends "
            "records by self.context.forward; a function of records is for map, map_values, filter, peek"
        ) from None


def _refuse(result: object, node: str, process: object) -> None:
    """Raise if `process` has returned a record: it should have forwarded it."""
    several = result if isinstance(result, list | tuple) and not isinstance(result, _RECORDS) else (result,)
    if any(isinstance(each, _RECORDS) for each in several):
        raise TypeError(
            f"{node}: {function_name(process)}{place_of(process)} has returned a record, which goes nowhere: send it "
            "by self.context.forward(record)"
        )


def _bound(processor: Any, own: Any, context: OperatorContext) -> Callable[[Any], object]:
    """Set the processor's context, and return its method `process`. As the context is set here, a class with an `init`
    of its own needn't call that of its base class."""
    check_complete(processor, context.node)
    check_methods(processor, context.node)
    if isinstance(processor, Processor | FixedKeyProcessor):
        processor.context = own
    context.on_init(lambda: processor.init(own))
    context.on_close(processor.close)
    process: Callable[[Any], object] = processor.process
    return process


@dataclass(frozen=True)
class ProcessorOperator:
    """Runs the `Processor` that `supplier` makes."""

    supplier: Callable[[], Any]

    def bind(self, context: OperatorContext) -> Process:
        handle, scope = _bound(self.supplier(), ProcessorContext(context), context), context.record
        node = context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            headers, before = scope.headers, scope.timestamp
            scope.timestamp = timestamp
            try:
                result = handle(Record(key, value, timestamp, headers))
                if result is not None:
                    _refuse(result, node, handle)
            finally:
                scope.timestamp = before

        return process


@dataclass(frozen=True)
class FixedKeyProcessorOperator:
    """Runs the `FixedKeyProcessor` that `supplier` makes."""

    supplier: Callable[[], Any]

    def bind(self, context: OperatorContext) -> Process:
        own = FixedKeyProcessorContext(context)
        handle, scope, node = _bound(self.supplier(), own, context), context.record, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            headers, outer, before = scope.headers, own.current, scope.timestamp
            own.current = record = FixedKeyRecord(key, value, timestamp, headers)
            scope.timestamp = timestamp
            try:
                result = handle(record)
                if result is not None:
                    _refuse(result, node, handle)
            finally:
                own.current, scope.timestamp = outer, before

        return process
