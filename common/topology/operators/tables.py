"""The operators on tables. They send each other updates (new value, old value) in place of values.

*Guarantees*: the semantics are those of Kafka Streams. The old value is None unless an operator below needs it. A
filter that knows the old value sends no tombstone for a row that never passed the filter. An update that comes out of
order is applied nevertheless.
*Assumes*: stores are `TableStore`s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from milestones.common.records import Change
from milestones.common.topology.operators.table_rows import table_rows
from milestones.common.topology.program import OperatorContext, Process, RecordContext

_log = logging.getLogger(__name__)

NULL_KEY = "null key"


@dataclass(frozen=True)
class TableSource:
    """Makes a table of a stream. Each record is a row's new value. A value of None deletes the row. If `store` is None,
    the table has no store, and its updates only pass through."""

    sends_its_row: ClassVar[bool] = True

    store: str | None = None
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        return self._pass(context) if self.store is None else self._keep(context, self.store)

    def _pass(self, context: OperatorContext) -> Process:
        forward, dropped, node = context.forward_new, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
            else:
                forward(key, value, timestamp)

        return process

    def _keep(self, context: OperatorContext, name: str) -> Process:
        _, row_of, update, _ = table_rows(context, name, self.send_old_values)
        dropped, node = context.dropped, context.node
        late = OutOfOrder(name, context.record)

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
                return
            data, row = row_of(key)
            old = None
            if row is not None:
                old, stored = row
                if timestamp < stored:
                    late(stored, timestamp)
            update(key, data, value, old, timestamp, timestamp)

        return process


class OutOfOrder:
    """Logs updates of one table that are older than their rows: the 1st, 2nd, 4th, 8th..."""

    def __init__(self, store: str, record: RecordContext) -> None:
        self._store, self._record = store, record
        self._count = 0

    def __call__(self, stored: int, timestamp: int) -> None:
        self._count += 1
        if self._count & (self._count - 1):
            return
        at = self._record.metadata
        _log.warning(
            "table %s: the update at %s is out of order, its timestamp is %d and its row's %d; it is applied all the "
            "same; %d so far",
            self._store, "no input record" if at is None else f"{at.topic}-{at.partition} offset {at.offset}",
            timestamp, stored, self._count,
        )  # fmt: skip


@dataclass(frozen=True)
class TableFilter:
    """Passes rows for which the predicate is true (with `negate`: false). For other rows it sends deletions. In a
    `versioned` table it sends them even for rows that never passed."""

    sends_its_row: ClassVar[bool] = True

    predicate: Callable[[Any, Any], Any]
    negate: bool = False
    store: str | None = None
    send_old_values: bool = False
    versioned: bool = False

    def bind(self, context: OperatorContext) -> Process:
        predicate, negate, send_old_values = self.predicate, self.negate, self.send_old_values
        says_all = self.versioned
        bytes_of, row_of, update, _ = table_rows(context, self.store, send_old_values)
        reads = self.store is not None and send_old_values

        def process(key: Any, change: Change, timestamp: int) -> None:
            new, old = change
            if new is not None and bool(predicate(key, new)) is negate:
                new = None
            if reads:
                data, row = row_of(key)
                old = None if row is None else row[0]
            else:
                data = bytes_of(key)
                if send_old_values and old is not None and bool(predicate(key, old)) is negate:
                    old = None
            if send_old_values and old is None and new is None and not says_all:
                return
            update(key, data, new, old, timestamp, timestamp)

        return process


@dataclass(frozen=True)
class TableMapValues:
    """Maps values. The mapper takes the value, or with `with_key` (key, value)."""

    sends_its_row: ClassVar[bool] = True

    mapper: Callable[..., Any]
    with_key: bool = False
    store: str | None = None
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        mapper, with_key, send_old_values = self.mapper, self.with_key, self.send_old_values
        bytes_of, row_of, update, _ = table_rows(context, self.store, send_old_values)
        reads = self.store is not None and send_old_values

        def process(key: Any, change: Change, timestamp: int) -> None:
            new, old = change
            if new is not None:
                new = mapper(key, new) if with_key else mapper(new)
            if reads:
                data, row = row_of(key)
                old = None if row is None else row[0]
            else:
                data = bytes_of(key)
                if send_old_values and old is not None:
                    old = mapper(key, old) if with_key else mapper(old)
            update(key, data, new, old, timestamp, timestamp)

        return process


@dataclass(frozen=True)
class TableRepartitionMap:
    """Gives rows a new key and value for `group_by`. The deletion of the old pair is sent before the new pair. If the
    mapper returns None, or a pair with None in it, the row is in no group."""

    mapper: Callable[[Any, Any], tuple[Any, Any] | None]

    def bind(self, context: OperatorContext) -> Process:
        mapper, forward, node = self.mapper, context.forward, context.node

        def process(key: Any, change: Change, timestamp: int) -> None:
            if key is None:
                raise ValueError(f"a table's row without a key reached the group_by {node}")
            new, old = change
            new_key = new_value = old_key = old_value = None
            if new is not None and (pair := mapper(key, new)) is not None:
                new_key, new_value = pair
            if old is not None and (pair := mapper(key, old)) is not None:
                old_key, old_value = pair
            has_new = new_key is not None and new_value is not None
            has_old = old_key is not None and old_value is not None
            if has_new and has_old and new_key == old_key:
                forward(new_key, (new_value, old_value), timestamp)
                return
            if has_old:
                forward(old_key, (None, old_value), timestamp)
            if has_new:
                forward(new_key, (new_value, None), timestamp)

        return process


@dataclass(frozen=True)
class ToStream:
    """A table's updates as records: the new value, None for a deleted row."""

    passes_on: ClassVar[bool] = True

    def bind(self, context: OperatorContext) -> Process:
        forward = context.forward

        def process(key: Any, change: Change, timestamp: int) -> None:
            forward(key, change[0], timestamp)

        return process

    def bind_new(self, context: OperatorContext) -> Process:
        """Return the closure for a parent that sends no old values. The closure passes updates through."""
        return context.forward
