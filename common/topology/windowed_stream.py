"""`WindowedKStream`: records by key and window of time, to be aggregated into a table of windows.

*Guarantees*: Kafka Streams' names, defaults and semantics (`TimeWindowedKStream`, `SessionWindowedKStream`).
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, Unpack

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.topology.graph import SideStream
from milestones.common.topology.materialized import Materialized, WindowOptions
from milestones.common.topology.missing import Explained
from milestones.common.topology.operators.aggregates import plus_one, zero
from milestones.common.topology.operators.session_aggregates import Merger, SessionAggregate
from milestones.common.topology.operators.window_aggregates import SlidingWindowAggregate, WindowAggregate
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice, WindowedOf, as_fallback
from milestones.common.topology.table import KTable
from milestones.common.topology.table_state import TableState
from milestones.common.topology.user_functions import function_of
from milestones.common.topology.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from milestones.common.type_variables import VR, K, V
from milestones.common.windowed import FOREVER, Windowed

if TYPE_CHECKING:
    from milestones.common.topology.grouped import KGroupedStream
    from milestones.common.topology.stream import KStream

Windows: TypeAlias = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
Emit: TypeAlias = Literal["on_update", "on_close"]

_AGGREGATE, _REDUCE = "KSTREAM-AGGREGATE-", "KSTREAM-REDUCE-"


@dataclass(frozen=True)
class WindowBounds:
    """The store that a windowed aggregation needs. `needed_ms`: how long the operator needs a row. `window_ms`: the
    length of a window, 0 if windows have no end. `grace_ms`: the time from a window's end until the window closes.
    `closing`: windows are emitted when they close. `results_wait`: the windows that a record makes depend on the
    windows before it."""

    kind: StoreKind
    needed_ms: int
    window_ms: int
    grace_ms: int
    closing: bool
    results_wait: bool = False

    def spec(self, materialized: Materialized, store: str, key: Choice, value: Choice) -> StoreSpec:
        return materialized.bounded_spec(
            store, self.kind, key, value, needed_ms=self.needed_ms, window_ms=self.window_ms, closing=self.closing,
            results_wait=self.results_wait,
        )  # fmt: skip

    def keys(self, key: Choice) -> Choice:
        if self.kind == "session":
            return WindowedOf(key, session=True)
        return WindowedOf(key, self.window_ms or None)


def bounds_of(windows: Windows, *, closing: bool) -> WindowBounds:
    """Return the kind of store that an aggregation by these windows needs."""
    match windows:
        case TimeWindows():
            needed_ms = windows.size_ms + windows.grace_ms
            return WindowBounds("timestamped-window", needed_ms, windows.size_ms, windows.grace_ms, closing)
        case UnlimitedWindows():
            return WindowBounds("timestamped-window", FOREVER, 0, windows.grace_ms, closing)
        case SlidingWindows():
            # The right window of a record's predecessor begins at most that long before the record.
            needed_ms = 2 * windows.difference_ms + windows.grace_ms
            return WindowBounds("timestamped-window", needed_ms, windows.difference_ms, windows.grace_ms, closing, True)
        case SessionWindows():
            grace_ms = windows.gap_ms + windows.grace_ms
            # With emit on close, results must wait: in a store that is ahead, sessions would end later than they do.
            return WindowBounds("session", max(1, grace_ms), 0, grace_ms, closing, closing)
    raise TopologyError(
        f"windowed_by needs TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, not {windows!r}"
    )


class WindowedKStream(Explained, Generic[K, V]):
    """Records grouped by key and window. `KGroupedStream.windowed_by` makes it. A program doesn't call this class.

    The keys of the tables are `Windowed`. In all methods, `store` is the name of the table's store, and the name of the
    store's changelog topic follows from it. `name` is the name of the operator's node. `WindowOptions` describes the
    other keyword arguments.
    """

    def __init__(
        self,
        grouped: KGroupedStream[K, V],
        windows: Windows,
        emit: Emit,
        on_late: Callable[[KStream[K, V]], object] | None = None,
    ) -> None:
        if emit not in ("on_update", "on_close"):
            raise TopologyError(f"emit must be 'on_update' or 'on_close', not {emit!r}")
        self._grouped, self._windows, self._on_close = grouped, windows, emit == "on_close"
        self._bounds = bounds_of(windows, closing=self._on_close)
        self._on_late = None if on_late is None else function_of(on_late)
        if self._on_close and isinstance(windows, UnlimitedWindows):
            raise TopologyError("an unlimited window never closes: emit its updates")

    def count(
        self, store: str | None = None, *, name: str | None = None, **options: Unpack[WindowOptions]
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window. By default the serde of the counts is LONG."""
        materialized = Materialized.of_windows(store, **options)
        # Kafka Streams uses up a number here without making a name of it, except for sliding windows.
        if store is None and materialized.given and not isinstance(self._windows, SlidingWindows):
            self._grouped._graph.names.store(_AGGREGATE)
        return self._add(
            _AGGREGATE, materialized, serdes.LONG, name, zero, plus_one,
            lambda _key, one, other: one + other,
        )  # fmt: skip

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[WindowOptions],
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window by `reducer(aggregate, value) -> aggregate`. The first value is
        the first aggregate."""
        function_of(reducer)

        def aggregator(_key: Any, value: Any, aggregate: Any) -> Any:
            return value if aggregate is None else reducer(aggregate, value)

        def merger(_key: Any, one: Any, other: Any) -> Any:
            return other if one is None else reducer(one, other)

        return self._add(
            _REDUCE, Materialized.of_windows(store, **options), self._grouped._value, name, _nothing, aggregator, merger
        )

    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR | None],
        merger: Callable[[K, VR, VR], VR | None] | None = None,
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[WindowOptions],
    ) -> KTable[Windowed[K], VR]:
        """Aggregate the values of each key and window by `aggregator(key, value, aggregate) -> aggregate`, starting
        with `initializer()`. Session windows need `merger(key, aggregate, other) -> aggregate`, because a record
        between two sessions merges them. Other windows take no merger."""
        function_of(initializer)
        function_of(aggregator)
        return self._add(
            _AGGREGATE, Materialized.of_windows(store, **options), as_fallback(self._grouped._value), name, initializer,
            aggregator, checked_merger(self._windows, merger),
        )  # fmt: skip

    def _add(
        self, prefix: str, materialized: Materialized, default_value: Choice, name: str | None,
        initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any], merger: Merger,
    ) -> KTable:
        late: list[str] = []

        def operator(state: TableState) -> Operator:
            made = windowed_operator(self._windows, state, initializer, aggregator, merger, on_close=self._on_close)
            return replace(made, late=late[0]) if late else made

        table = self._grouped._aggregate(prefix, materialized, default_value, name, operator, self._bounds)
        if self._on_late is not None:
            late.append(f"{table.name}-late")
            self._on_late(self._late_stream(late[0], table))
        return table

    def _late_stream(self, name: str, table: KTable) -> KStream[K, V]:
        from milestones.common.topology.stream import KStream  # which groups streams by windows

        grouped = self._grouped
        node = grouped._graph.add(SideStream(name), table._node)
        return KStream(grouped._graph, node, grouped._key, grouped._value)


def windowed_operator(
    windows: Windows, state: TableState, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any],
    merger: Merger, *, on_close: bool = False,
) -> WindowAggregate | SlidingWindowAggregate | SessionAggregate:
    """Return the operator that aggregates by these windows."""
    old_values = state.send_old_values
    if isinstance(windows, SessionWindows):
        return SessionAggregate(state.name, windows, initializer, aggregator, merger, on_close, old_values)
    if isinstance(windows, SlidingWindows):
        return SlidingWindowAggregate(state.name, windows, initializer, aggregator, on_close, old_values)
    return WindowAggregate(state.name, windows, initializer, aggregator, on_close, old_values)


def checked_merger(windows: Windows, merger: Merger | None) -> Merger:
    """Return the merger of session windows, or for other windows a function in its place. Raises `TopologyError` if
    sessions have no merger, if other windows have one, or if `merger` is no function, such as a store's name."""
    if merger is not None:
        function_of(merger)
    sessions = isinstance(windows, SessionWindows)
    if sessions and merger is None:
        raise TopologyError("sessions are merged by a record between them: give aggregate a merger")
    if merger is None:
        return _first
    if not sessions:
        raise TopologyError("only sessions are merged: these windows take no merger")
    return merger


def _nothing() -> None:
    """Return None, as there is no aggregate before the first value."""


def _first(_key: Any, one: Any, _other: Any) -> Any:
    return one
