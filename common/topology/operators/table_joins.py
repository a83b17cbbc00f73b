"""The operators of joins with tables.

*Guarantees*: the semantics are those of Kafka Streams. A joined row of two tables has the later of both timestamps. A
record of a stream that is joined with a row keeps its own timestamp. If the join knows the old value, the deletion of a
row that was never joined sends no deletion. A record without a key is dropped and counted. In a left join with a stream
it is joined with None (KIP-962).
*Assumes*: stores are `TableStore`s. A table's updates come as (new value, old value).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from milestones.common.copies import copy_of
from milestones.common.records import Change
from milestones.common.topology.joins import Joiner
from milestones.common.topology.operators.aggregates import NULL_KEY_OR_VALUE
from milestones.common.topology.operators.getters import Getter
from milestones.common.topology.operators.table_rows import table_rows
from milestones.common.topology.operators.tables import NULL_KEY
from milestones.common.topology.program import OperatorContext, Process


@dataclass(frozen=True)
class TableJoin:
    """Joins the updates of one table with the rows of the `other` one.

    `swapped`: the updates are those of the right table, so the joiner takes their value as its second argument.
    `alone`: a value of this side needs no row of the other side. `other_alone`: a value of the other side needs no row
    of this side.
    """

    other: Getter
    joiner: Joiner
    swapped: bool
    alone: bool
    other_alone: bool
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        get, alone, other_alone, send_old_values = (
            self.other.bind(context), self.alone, self.other_alone, self.send_old_values,
        )  # fmt: skip
        join = _swap(self.joiner) if self.swapped else self.joiner
        forward = context.forward if send_old_values else context.forward_new
        dropped, node = context.dropped, context.node

        def process(key: Any, change: Change, timestamp: int) -> None:
            if key is None:
                dropped(node, NULL_KEY)
                return
            new, old = change
            row = get(key)
            if row is None:
                if not alone or (new is None and old is None):
                    return
                other, whatever = None, False
            else:
                other, stored = row
                whatever = other_alone
                if stored > timestamp:
                    timestamp = stored
            if not send_old_values:
                forward(key, join(new, other) if new is not None or whatever else None, timestamp)
                return
            same = copy_of(other)  # the joiner may change what it is given
            joined = join(new, other) if new is not None or whatever else None
            forward(key, (joined, join(old, same) if old is not None or whatever else None), timestamp)

        return process


def _swap(joiner: Joiner) -> Joiner:
    def swapped(value: Any, other: Any) -> Any:
        return joiner(other, value)

    return swapped


@dataclass(frozen=True)
class PassUpdates:
    """Forwards the updates of both sides of a join whose result has no store."""

    def bind(self, context: OperatorContext) -> Process:
        return context.forward

    def bind_new(self, context: OperatorContext) -> Process:
        """Pass new values through, when no old values are sent."""
        return context.forward_new


@dataclass(frozen=True)
class KeepUpdates:
    """Writes the updates of both sides of a join to the store of its result, and forwards them."""

    sends_its_row: ClassVar[bool] = True

    store: str
    send_old_values: bool = False

    def bind(self, context: OperatorContext) -> Process:
        bytes_of, _, update, _ = table_rows(context, self.store, self.send_old_values)

        def process(key: Any, change: Change, timestamp: int) -> None:
            new, old = change
            update(key, bytes_of(key), new, old, timestamp, timestamp)

        return process


@dataclass(frozen=True)
class StreamTableJoin:
    """Joins each record with the row of its key, as the row is at that moment. For a versioned table, it is the row
    that was valid at the record's time. `alone`: a record for which there is no row is joined with None."""

    table: Getter
    joiner: Callable[..., Any]
    with_key: bool
    alone: bool

    def bind(self, context: OperatorContext) -> Process:
        return self._bind_as_of(context) if self.table.versioned else self._bind(context)

    def _bind(self, context: OperatorContext) -> Process:
        get, joiner, with_key, alone = self.table.bind(context), self.joiner, self.with_key, self.alone
        forward, dropped, node = context.forward, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if value is None or (key is None and not alone):
                dropped(node, NULL_KEY_OR_VALUE)
                return
            row = None if key is None else get(key)
            if row is None and not alone:
                return
            other = None if row is None else row[0]
            forward(key, joiner(key, value, other) if with_key else joiner(value, other), timestamp)

        return process

    def _bind_as_of(self, context: OperatorContext) -> Process:
        get, joiner, with_key, alone = self.table.bind_as_of(context), self.joiner, self.with_key, self.alone
        forward, dropped, node = context.forward, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            if value is None or (key is None and not alone):
                dropped(node, NULL_KEY_OR_VALUE)
                return
            row = None if key is None else get(key, timestamp)
            if row is None and not alone:
                return
            other = None if row is None else row[0]
            forward(key, joiner(key, value, other) if with_key else joiner(value, other), timestamp)

        return process
