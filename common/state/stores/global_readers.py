"""The classes through which tasks read global stores of kinds that need more than rows, for example the store's time.

    GlobalTask --commits--> namespace, ShownCells <--get, scan, value-- any number of stores, each of one task

*Guarantees*: a read changes nothing. A read isn't a use of an LRU store's entry, and doesn't raise the time of an
expiring store. A write is refused before it has any effect. A row has expired for readers if it had expired for the
writer at its last commit.
*Assumes*: only the writer's thread calls `ShownCells.follow`. The store's log refuses each write with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from milestones.common.state.cells import Cell, Cells
from milestones.common.state.stores.expiring_store import ExpiringStore
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.lru_rows import Uses
from milestones.common.state.stores.lru_store import LruStore
from milestones.common.state.stores.rows import StoreParts
from milestones.common.state.stores.segmented_rows import SegmentedRows
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.stores_with_headers import (
    AggregationWithHeaders,
    SessionStoreWithHeaders,
    TimestampedWindowStoreWithHeaders,
    ValueTimestampHeaders,
)
from milestones.common.state.stores.window_stores import TimestampedWindowStore, WindowStore
from milestones.common.type_variables import K, V


class _ShownCell(Cell):
    """A cell with the writer's value, which readers can't change."""

    __slots__ = ()

    def back(self, value: Any) -> None:
        """Do nothing: the cell keeps the writer's value."""

    def follow(self, value: Any) -> None:
        """Take over the writer's present value."""
        super().back(value)


class ShownCells(Cells):
    """The cells of the stores that a `GlobalTask` writes, with their values after its last commit. Any thread reads
    them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__([])
        self._shown = {name: _ShownCell(value, []) for name, value in values.items()}

    def cell(self, name: str, initial: Any) -> Cell:
        return self._shown.get(name) or _ShownCell(initial, [])

    def begin(self, name: str, value: Any) -> None:
        """Do nothing: the cell keeps the writer's value."""

    def follow(self, values: Mapping[str, Any]) -> None:
        """Take over the writer's values, keyed by the cell's name."""
        for name, cell in self._shown.items():
            cell.follow(values[name])


class _SegmentedReader(SegmentedRows[K, V]):
    __slots__ = ()

    def _may_put(self, time: int) -> bool:
        self._log(b"", None, time)
        return False


class _WindowReader(_SegmentedReader[K, V]):
    __slots__ = ()

    _next_sequence: Callable[[Any], int]

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        log = self._log

        def refuse(_: Any) -> int:
            log(b"", None, 0)
            return 0

        self._next_sequence = refuse


class WindowReader(_WindowReader[K, V], WindowStore[K, V]):
    """A `WindowStore` that refuses writes."""

    __slots__ = ()


class TimestampedWindowReader(_WindowReader[K, ValueAndTimestamp[V]], TimestampedWindowStore[K, V]):
    """A `TimestampedWindowStore` that refuses writes."""

    __slots__ = ()


class SessionReader(_SegmentedReader[K, V], SessionStore[K, V]):
    """A `SessionStore` that refuses writes."""

    __slots__ = ()


class TimestampedWindowWithHeadersReader(
    _WindowReader[K, ValueTimestampHeaders[V]], TimestampedWindowStoreWithHeaders[K, V]
):
    """A `TimestampedWindowStoreWithHeaders` that refuses writes."""

    __slots__ = ()


class SessionWithHeadersReader(_SegmentedReader[K, AggregationWithHeaders[V]], SessionStoreWithHeaders[K, V]):
    """A `SessionStoreWithHeaders` that refuses writes."""

    __slots__ = ()


class LruReader(LruStore[K, V]):
    """An `LruStore` in which a read isn't a use."""

    __slots__ = ()

    def _found(self) -> Uses:
        return Uses()

    def _use(self, key: bytes) -> None:
        """Do nothing: a read isn't a use."""


class ExpiringReader(ExpiringStore[K, V]):
    """An `ExpiringStore` whose time isn't raised by the reading task's records. Only the writer raises it."""

    __slots__ = ()

    def _note_time(self) -> None:
        self._check_open()
