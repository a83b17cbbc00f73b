"""Global stores as tasks read them: the stores whose reads or writes need more of the one that writes than its rows.

    GlobalTask --commits--> namespace, ShownCells <--get, scan, value-- any number of stores, each of one task

*Guarantees*: a read changes nothing: it is no use of an entry of an LRU store, and its record's time is none of an
expiring store. A write is refused before anything of it is done. What is gone by time is what is gone for the writer,
as of its last commit.
*Assumes*: one thread, that of the writer, calls `ShownCells.follow`. What a store's log does is refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milestones.common.state.cells import Cell, Cells
from milestones.common.state.stores.expiring_store import ExpiringStore
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.lru_rows import Uses
from milestones.common.state.stores.lru_store import LruStore
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
    """A value of the writer's."""

    __slots__ = ()

    def back(self, value: Any) -> None:
        """Keep the writer's."""

    def follow(self, value: Any) -> None:
        """Take what the writer has now."""
        super().back(value)


class ShownCells(Cells):
    """The memory of the stores that a `GlobalTask` writes, as of its last commit. Any thread reads it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__([])
        self._shown = {name: _ShownCell(value, []) for name, value in values.items()}

    def cell(self, name: str, initial: Any) -> Cell:
        return self._shown.get(name) or _ShownCell(initial, [])

    def begin(self, name: str, value: Any) -> None:
        """Keep the writer's."""

    def follow(self, values: Mapping[str, Any]) -> None:
        """Show these values from now on."""
        for name, cell in self._shown.items():
            cell.follow(values[name])


class _SegmentedReader(SegmentedRows[K, V]):
    __slots__ = ()

    def _may_put(self, time: int) -> bool:
        self._log(b"", None, time)
        return False


class _WindowReader(_SegmentedReader[K, V]):
    __slots__ = ()

    def _next_sequence(self, value: Any) -> int:
        self._log(b"", None, 0)
        return 0


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
    """An `LruStore` whose reads are no uses."""

    __slots__ = ()

    def _found(self) -> Uses:
        return Uses()

    def _use(self, key: bytes) -> None:
        """A read is no use."""


class ExpiringReader(ExpiringStore[K, V]):
    """An `ExpiringStore` whose time is that of its own records."""

    __slots__ = ()

    def _note_time(self) -> None:
        self._check_open()
