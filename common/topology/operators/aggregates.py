"""The operators that aggregate a stream or a table into a table.

*Guarantees*: timestamps, old values, the order of subtractor and adder, and dropped records are as in Kafka Streams. A
record of a stream without a key or a value is dropped and counted. The timestamp of a row is the later of the record's
and the stored one. The user's functions may change the aggregate that they get. Therefore the old value that is sent is
read from the store once more.
*Assumes*: the store is a `TableStore`. A table's updates come as (new value, old value), with a key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from milestones.common.copies import copy_of
from milestones.common.records import Change
from milestones.common.topology.operators.table_rows import table_rows
from milestones.common.topology.program import OperatorContext, Process

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""(key, value, aggregate) -> aggregate."""
Reducer = Callable[[Any, Any], Any]
"""(aggregate, value) -> aggregate."""

NULL_KEY_OR_VALUE = "null key or value"


def initial(initializer: Initializer) -> Initializer:
    """Make an initializer that returns a separate object for each aggregate. The user's own one may return the same
    object each time."""
    if isinstance(initializer, type) or initializer is zero:
        return initializer
    return lambda: copy_of(initializer())


@dataclass(frozen=True)
class StreamCount:
    """Counts the records of each key. As in Kafka Streams, the old value before the first record is 0."""

    sends_its_row: ClassVar[bool] = True
    makes_values: ClassVar[bool] = True

    store: str
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        if self.send_old_values:
            return StreamAggregate(self.store, zero, plus_one, True).bind(context)
        _, row_of, update, _ = table_rows(context, self.store, False)
        dropped, node = context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            data, row = row_of(key)
            if row is None:
                count = 1
            else:
                count, stored = row
                count += 1
                if stored > timestamp:
                    timestamp = stored
            update(key, data, count, None, timestamp, timestamp)

        return process


def zero() -> int:
    """Return the count before the first record."""
    return 0


def plus_one(_key: Any, _value: Any, aggregate: int) -> int:
    """Return the count with one more record."""
    return aggregate + 1


def _minus_one(_key: Any, _value: Any, aggregate: int) -> int:
    return aggregate - 1


@dataclass(frozen=True)
class StreamAggregate:
    """Aggregates the values of each key. The old value before the first record is that of the initializer."""

    sends_its_row: ClassVar[bool] = True

    store: str
    initializer: Initializer
    aggregator: Aggregator
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        _, row_of, update, again = table_rows(context, self.store, self.send_old_values)
        dropped, node = context.dropped, context.node
        initializer, aggregator = initial(self.initializer), self.aggregator

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            received = timestamp
            data, row = row_of(key)
            if row is None:
                old = initializer()
            else:
                old, stored = row
                if stored > timestamp:
                    timestamp = stored
            new = aggregator(key, value, old)
            if again:
                old = initializer() if row is None else row_of(key)[1][0]  # type: ignore[index]  # it is there
            update(key, data, new, old, received, timestamp)

        return process


@dataclass(frozen=True)
class StreamReduce:
    """Reduces the values of each key. The first value is the first aggregate."""

    sends_its_row: ClassVar[bool] = True

    store: str
    reducer: Reducer
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        _, row_of, update, again = table_rows(context, self.store, self.send_old_values)
        dropped, node, reducer = context.dropped, context.node, self.reducer

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                dropped(node, NULL_KEY_OR_VALUE)
                return
            received = timestamp
            data, row = row_of(key)
            if row is None:
                old, new = None, value
            else:
                old, stored = row
                new = reducer(old, value)
                if again:
                    old = row_of(key)[1][0]  # type: ignore[index]  # it is there
                if stored > timestamp:
                    timestamp = stored
            update(key, data, new, old, received, timestamp)

        return process


@dataclass(frozen=True)
class TableAggregate:
    """Aggregates the rows of a table by a new key. For each update it calls the subtractor with the old value first,
    then the adder with the new one."""

    sends_its_row: ClassVar[bool] = True

    store: str
    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator
    send_old_values: bool = False

    @classmethod
    def count(cls, store: str, send_old_values: bool) -> TableAggregate:
        """Return the aggregate that counts rows."""
        return cls(store, zero, plus_one, _minus_one, send_old_values)

    def bind(self, context: OperatorContext) -> Process:
        _, row_of, update, again = table_rows(context, self.store, self.send_old_values)
        initializer, adder, subtractor = initial(self.initializer), self.adder, self.subtractor
        check, record = _key_check(context.node), context.record

        def process(key: Any, change: Change, timestamp: int) -> None:
            if key is None:
                check()
            value, old_value = change
            data, row = row_of(key)
            old = stored = None
            if row is not None:
                old, stored = row
            new = old
            touched = value is not None
            if old_value is not None and old is not None:
                new = subtractor(key, old_value, old)
                touched = True
            if value is not None:
                new = adder(key, value, initializer() if new is None else new)
            if touched and stored is not None and stored > timestamp:
                timestamp = stored
            if again and row is not None:
                old = row_of(key)[1][0]  # type: ignore[index]  # it is there
            update(key, data, new, old, record.timestamp, timestamp)

        return process


@dataclass(frozen=True)
class TableReduce:
    """Reduces the rows of a table by a new key. For each update it calls the subtractor with the old value first, then
    the adder with the new one."""

    sends_its_row: ClassVar[bool] = True

    store: str
    adder: Reducer
    subtractor: Reducer
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        _, row_of, update, again = table_rows(context, self.store, self.send_old_values)
        adder, subtractor = self.adder, self.subtractor
        check, record = _key_check(context.node), context.record

        def process(key: Any, change: Change, timestamp: int) -> None:
            if key is None:
                check()
            value, old_value = change
            data, row = row_of(key)
            old = stored = None
            if row is not None:
                old, stored = row
            new, touched = old, False
            if old_value is not None and old is not None:
                new = subtractor(old, old_value)
                touched = True
            if value is not None:
                if new is None:
                    new = value
                else:
                    new = adder(new, value)
                    touched = True
            if touched and stored is not None and stored > timestamp:
                timestamp = stored
            if again and row is not None:
                old = row_of(key)[1][0]  # type: ignore[index]  # it is there
            update(key, data, new, old, record.timestamp, timestamp)

        return process


def _key_check(node: str) -> Callable[[], None]:
    def fail() -> None:
        raise ValueError(f"a record without a key reached the table aggregation {node}: another program wrote it")

    return fail
