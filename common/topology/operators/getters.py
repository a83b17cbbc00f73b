"""Getters look up the row of a key in a table, for joins. They read it from the table's store, or compute it from the
rows of the tables above it.

A getter is an immutable description. Like an operator it is bound once per program. Kafka Streams calls it a value
getter.

*Guarantees*: for a table without a store, a getter returns the row that its store would have, with value and timestamp.
`stores` names the stores that a node must be connected to before it binds the getter.
*Assumes*: stores are `TableStore`s. User functions are pure, because a getter calls those of each table without a
store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from milestones.common.topology.joins import Alone, Joiner
from milestones.common.topology.operators.versioned_tables import VersionedTable
from milestones.common.topology.program import OperatorContext, TableStore

Row: TypeAlias = tuple[Any, int]
"""Value and timestamp."""

Get: TypeAlias = Callable[[Any], "Row | None"]
"""Returns the row of a key, None if there is none."""

_NOTHING: Row = (None, -1)


GetAsOf: TypeAlias = Callable[[Any, int], "Row | None"]
"""Returns the row of a key that was valid at a time (ms), None if there was none."""


class Getter(Protocol):
    """Describes how the rows of one table are read. `versioned`: True if rows of earlier times can be read, too."""

    @property
    def versioned(self) -> bool: ...

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of the stores that the rows come from."""
        ...

    def bind(self, context: OperatorContext) -> Get:
        """Make the function that reads a row, for one task."""
        ...

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        """Make the function that reads the row of a versioned table that was valid at a given time."""
        ...


@dataclass(frozen=True)
class StoreGetter:
    """Reads the rows of a table that has a store."""

    store: str
    versioned: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    def bind(self, context: OperatorContext) -> Get:
        store: TableStore = context.store(self.store)
        return store.get_raw

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        store: VersionedTable = context.store(self.store)
        return store.get_as_of


@dataclass(frozen=True)
class FilterGetter:
    """Reads the parent's rows for which the predicate is true (with `negate`: false)."""

    parent: Getter
    predicate: Callable[[Any, Any], Any]
    negate: bool

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    def bind(self, context: OperatorContext) -> Get:
        get, predicate, negate = self.parent.bind(context), self.predicate, self.negate

        def filtered(key: Any) -> Row | None:
            row = get(key)
            return None if row is None or bool(predicate(key, row[0])) is negate else row

        return filtered

    @property
    def versioned(self) -> bool:
        return self.parent.versioned

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        get, predicate, negate = self.parent.bind_as_of(context), self.predicate, self.negate

        def filtered(key: Any, time: int) -> Row | None:
            row = get(key, time)
            return None if row is None or bool(predicate(key, row[0])) is negate else row

        return filtered


@dataclass(frozen=True)
class MapValuesGetter:
    """Reads the parent's rows, and maps their values."""

    parent: Getter
    mapper: Callable[..., Any]
    with_key: bool

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def versioned(self) -> bool:
        return self.parent.versioned

    def bind(self, context: OperatorContext) -> Get:
        get, map_row = self.parent.bind(context), self._map_row

        def mapped(key: Any) -> Row | None:
            row = get(key)
            return None if row is None else map_row(key, row)

        return mapped

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        get, map_row = self.parent.bind_as_of(context), self._map_row

        def mapped(key: Any, time: int) -> Row | None:
            row = get(key, time)
            return None if row is None else map_row(key, row)

        return mapped

    def _map_row(self, key: Any, row: Row) -> Row | None:
        value = self.mapper(key, row[0]) if self.with_key else self.mapper(row[0])
        return None if value is None else (value, row[1])


@dataclass(frozen=True)
class JoinGetter:
    """Joins the rows of two tables. The timestamp of a joined row is the later of both. A join is never versioned,
    even if its tables are (KIP-914)."""

    left: Getter
    right: Getter
    joiner: Joiner
    alone: Alone
    versioned: ClassVar[bool] = False

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    def bind(self, context: OperatorContext) -> Get:
        get_left, get_right, joiner = self.left.bind(context), self.right.bind(context), self.joiner
        left_alone, right_alone = self.alone

        def joined(key: Any) -> Row | None:
            left = get_left(key)
            if left is None and not right_alone:
                return None
            right = get_right(key)
            if right is None and (left is None or not left_alone):
                return None
            (left_value, left_time), (right_value, right_time) = left or _NOTHING, right or _NOTHING
            value = joiner(left_value, right_value)
            return None if value is None else (value, max(left_time, right_time))

        return joined

    def bind_as_of(self, context: OperatorContext) -> GetAsOf:
        raise NotImplementedError  # only of versioned tables
