"""`KTable.transform_values`: user code that has a table's values, stores and time.

*Guarantees*: Kafka Streams' calls: for each update the transformer gets the new value first, None for a deleted row,
and after it, where the old value is asked for and the table isn't kept, the old one. A join that reads a table which
isn't kept has a transformer of its own, and calls it for each row that it looks up.
*Assumes*: stores are `TableStore`s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn

from milestones.common.errors import TopologyError
from milestones.common.records import UNKNOWN_TIMESTAMP, Change, Headers
from milestones.common.topology.operators.aggregates import forwarding, keeping
from milestones.common.topology.operators.getters import Get, GetAsOf, Getter, Row
from milestones.common.topology.processor import ProcessorContext, check_supplier
from milestones.common.topology.program import OperatorContext, Process, TableStore
from milestones.common.topology.user_functions import check_methods
from milestones.common.type_variables import VR, K, V

_METHODS = ("init", "transform", "close")


class ValueTransformerContext(ProcessorContext[Any, Any]):
    """The calls of a `ValueTransformer` to its task."""

    def forward(self, record: Any, child: str | None = None) -> NoReturn:
        """Refused: the values that `transform` returns are what comes of a table."""
        raise TopologyError(f"{self._context.node} can't forward records: return the value from transform")

    @property
    def timestamp(self) -> int:
        """The time of the row in work, ms; -1 where a join looks up a row that isn't there."""
        return self._context.record.timestamp

    @property
    def headers(self) -> Headers:
        """The headers of the record in work; none where a join looks up a row."""
        return list(self._context.record.headers or ())


class ValueTransformer(Generic[K, V, VR]):
    """Base of the objects that `KTable.transform_values` takes. Overriding `transform` is enough. Attributes live as
    long as those of a `Processor`."""

    context: ValueTransformerContext

    def init(self, context: ValueTransformerContext) -> None:
        """As `Processor.init`: get stores, schedule punctuations."""
        self.context = context

    def transform(self, key: K, value: V | None) -> VR | None:
        """The new value of a row; None deletes it. `value` is None for a deleted row."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method transform(key, value)")

    def close(self) -> None:
        """As `Processor.close`."""


Transformers = Callable[[], ValueTransformer[K, V, VR]]
"""Makes a transformer for each task: the class, or a function."""


def check_transformers(given: Any, node: str) -> Any:
    """`given`, if it makes transformers, else `TopologyError`."""
    supplier = check_supplier(given, node)
    if isinstance(supplier, type):
        _check_transformer(supplier, node)
    return supplier


def _check_transformer(transformer: object, node: str) -> None:
    missing = [name for name in _METHODS if not callable(getattr(transformer, name, None))]
    if missing:
        raise TopologyError(
            f"{node}: {transformer!r} has no method {missing[0]}: derive its class from milestones.ValueTransformer, "
            "which has all but transform"
        )
    check_methods(transformer, node)


def _transform(transformers: Transformers[Any, Any, Any], context: OperatorContext) -> Callable[[Any, Any], Any]:
    """The `transform` of a new transformer, which gets its context when the program begins."""
    transformer, own = transformers(), ValueTransformerContext(context)
    _check_transformer(transformer, context.node)
    if isinstance(transformer, ValueTransformer):
        transformer.context = own
    context.on_init(lambda: transformer.init(own))
    context.on_close(transformer.close)
    return transformer.transform


@dataclass(frozen=True)
class TableTransformValues:
    """Replaces values by those of a transformer."""

    transformers: Transformers[Any, Any, Any]
    store: str | None = None
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        transform, send_old_values = _transform(self.transformers, context), self.send_old_values
        store: TableStore | None = None if self.store is None else context.store(self.store)
        get, put = (None, None) if store is None else (store.get_raw, keeping(store))
        forward = context.forward_new
        if store is not None:
            forward = forwarding(context, store, send_old_values)
        elif send_old_values:
            forward = context.forward
        record = context.record

        def transformed(key: Any, change: Change) -> Any:
            new, old = change
            new = transform(key, new)
            if not send_old_values:
                return new
            if get is None:
                return new, transform(key, old)
            row = get(key)
            return new, None if row is None else row[0]

        def process(key: Any, change: Change, timestamp: int) -> None:
            before, record.timestamp = record.timestamp, timestamp
            try:
                update = transformed(key, change)
                if put is not None:
                    put(key, update[0] if send_old_values else update, timestamp)
            finally:
                record.timestamp = before
            forward(key, update, timestamp)

        return process


@dataclass(frozen=True)
class TransformValuesGetter:
    """The parent's rows with values of a transformer. `connected`: the stores that the transformer uses."""

    parent: Getter
    transformers: Transformers[Any, Any, Any]
    connected: tuple[str, ...]

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.parent.stores, *self.connected)))

    @property
    def versioned(self) -> bool:
        return self.parent.versioned

    def bind(self, context: OperatorContext) -> Get:
        get, transform_row = self.parent.bind(context), _of_rows(self.transformers, context)
        return lambda key: transform_row(key, get(key))

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        get, transform_row = self.parent.bind_as_of(context), _of_rows(self.transformers, context)
        return lambda key, time: transform_row(key, get(key, time))


def _of_rows(
    transformers: Transformers[Any, Any, Any], context: OperatorContext
) -> Callable[[Any, Row | None], Row | None]:
    """A function that gives the transformed row, also of a key without one."""
    transform, record = _transform(transformers, context), context.record

    def transformed(key: Any, row: Row | None) -> Row | None:
        value, timestamp = row or (None, UNKNOWN_TIMESTAMP)
        former = record.stand_in(timestamp, None, None)
        try:
            value = transform(key, value)
        finally:
            record.resume(former)
        return None if value is None else (value, timestamp)

    return transformed
