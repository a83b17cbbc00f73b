"""`KTable.transform_values`: user code that gets a table's values, and may use stores and the time.

*Guarantees*: the calls are those of Kafka Streams. For each update the transformer gets the new value, which is None
for a deleted row. If old values are needed and the table has no store, it gets the old value in a second call. A join
that looks up rows of a table without a store has a transformer of its own, and calls it for each row.
*Assumes*: stores are `TableStore`s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn

from milestones.common.errors import TopologyError
from milestones.common.records import UNKNOWN_TIMESTAMP, Change, Headers
from milestones.common.topology.operators.getters import Get, GetAsOf, Getter, Row
from milestones.common.topology.operators.table_rows import table_rows
from milestones.common.topology.processor import ProcessorContext, check_supplier
from milestones.common.topology.program import OperatorContext, Process
from milestones.common.topology.user_functions import check_methods
from milestones.common.type_variables import VR, K, V

_METHODS = ("init", "transform", "close")


class ValueTransformerContext(ProcessorContext[Any, Any]):
    """The stores and the information that a `ValueTransformer` gets from its task."""

    def forward(self, record: Any, child: str | None = None) -> NoReturn:
        """Raise `TopologyError`, as a transformer returns its result from `transform`, and forwards no records."""
        raise TopologyError(f"{self._context.node} can't forward records: return the value from transform")

    @property
    def timestamp(self) -> int:
        """The timestamp of the row that is being transformed, in ms. -1 if a join looks up a row that doesn't exist."""
        return self._context.record.timestamp

    @property
    def headers(self) -> Headers:
        """The headers of the current record. Empty if a join looks up a row."""
        return list(self._context.record.headers or ())


class ValueTransformer(Generic[K, V, VR]):
    """Base class of the transformers of `KTable.transform_values`. A subclass must override `transform`. For its
    attributes see `Processor`."""

    context: ValueTransformerContext

    def init(self, context: ValueTransformerContext) -> None:
        """Called once, before the first row, like `Processor.init`. Get stores and schedule punctuations here."""
        self.context = context

    def transform(self, key: K, value: V | None) -> VR | None:
        """Return the new value of a row. None deletes the row. `value` is None for a deleted row."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method transform(key, value)")

    def close(self) -> None:
        """Called once at the end, like `Processor.close`."""


Transformers = Callable[[], ValueTransformer[K, V, VR]]
"""Makes a transformer for each task: the class, or a function."""


def check_transformers(given: Any, node: str) -> Any:
    """Return `given` if it makes transformers. Raises `TopologyError` if not."""
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
    """Make a transformer, and return its `transform`. The transformer's `init` is called when the program begins."""
    transformer, own = transformers(), ValueTransformerContext(context)
    _check_transformer(transformer, context.node)
    if isinstance(transformer, ValueTransformer):
        transformer.context = own
    context.on_init(lambda: transformer.init(own))
    context.on_close(transformer.close)
    return transformer.transform


@dataclass(frozen=True)
class TableTransformValues:
    """Replaces values by those that a transformer returns."""

    transformers: Transformers[Any, Any, Any]
    store: str | None = None
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        transform, send_old_values = _transform(self.transformers, context), self.send_old_values
        bytes_of, row_of, update, _ = table_rows(context, self.store, send_old_values)
        reads, record = self.store is not None and send_old_values, context.record

        def process(key: Any, change: Change, timestamp: int) -> None:
            new, old = change
            before, record.timestamp = record.timestamp, timestamp
            try:
                new = transform(key, new)
                if reads:
                    data, row = row_of(key)
                    old = None if row is None else row[0]
                else:
                    data = bytes_of(key)
                    old = transform(key, old) if send_old_values else None
            finally:
                record.timestamp = before
            update(key, data, new, old, timestamp, timestamp)

        return process


@dataclass(frozen=True)
class TransformValuesGetter:
    """Reads the parent's rows, with the values that a transformer returns. `connected`: the stores that the transformer
    uses."""

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
    """Make a function that returns the transformed row, also for a key that has no row."""
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
