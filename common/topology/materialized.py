"""The keyword arguments of Kafka Streams' `Materialized` as one value, which says how a table is stored.

*Guarantees*: immutable.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

from milestones.common.errors import TopologyError
from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.topology.naming import check_keywords, check_name
from milestones.common.topology.serde_choice import Choice, check_serde
from milestones.common.topology.windows import Duration, milliseconds
from milestones.common.typed_serdes import SerdeLike


class KeepOptions(TypedDict, total=False):
    """Keyword arguments that say how a table is kept.

    `history`: the table is versioned (KIP-889). The store of a versioned table keeps old values. It can return the
    value that a key had at any time of the last `history`, measured by the timestamps of the records. A versioned store
    is never cached. `segment`: old values are dropped in segments of this length.

    `logging=False`: the store has no changelog topic. `caching=False`: every update is sent, whatever the size of the
    cache is. `in_memory=True`: the store is kept in memory, not in RocksDB. `changelog_config`: topic settings of the
    changelog, which override the defaults.
    """

    logging: bool
    caching: bool
    in_memory: bool
    changelog_config: Mapping[str, str]
    history: Duration | None
    segment: Duration | None


class StoreOptions(KeepOptions, total=False):
    """Keyword arguments of operators that keep a table: `KeepOptions`, and the serdes of keys and values. A type may
    stand for its serde. The store's name is a separate argument."""

    key: SerdeLike[Any] | None
    value: SerdeLike[Any] | None


class WindowOptions(StoreOptions, total=False):
    """Keyword arguments of operators that keep a table of windows. `retention`: how long rows are kept, measured by the
    timestamps of the records. By default rows are kept as long as the operator needs them."""

    retention: Duration | None


@dataclass(frozen=True)
class Materialized:
    """A user's choices for a table. `store`: the store's name. If it is None, a store that is needed gets a generated
    name."""

    store: str | None = None
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    logging: bool = True
    caching: bool = True
    in_memory: bool = False
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    retention: Duration | None = None
    history: Duration | None = None
    segment: Duration | None = None

    @classmethod
    def of(cls, store: str | None = None, **options: Unpack[WindowOptions]) -> Materialized:
        """Make the choices of these keyword arguments, for a table without windows. Raises `TopologyError` for a value
        that isn't a name or a serde, and for a retention, which only windows have. Raises `TypeError` for an unknown
        keyword."""
        if "retention" in options:
            raise TopologyError(
                "retention= is only for tables of windows (windowed_by); a table without them keeps its rows until "
                "they are deleted, and history= its old values"
            )
        return cls.of_windows(store, **options)

    @classmethod
    def of_windows(cls, store: str | None = None, **options: Unpack[WindowOptions]) -> Materialized:
        """Make the choices of these keyword arguments, for a table of windows. Errors are as in `of`."""
        check_keywords(options, WindowOptions.__annotations__)
        if store is not None:
            check_name(store, "a store")
        elif options.get("history") is not None:
            raise TopologyError("a versioned table (history=...) is kept: give its store a name")
        if options.get("segment") is not None and options.get("history") is None:
            raise TopologyError("segment= is only for versioned tables, which have a history=, too")
        serdes = {what: check_serde(options.get(what), what) for what in ("key", "value")}
        choices: dict[str, Any] = {**options, **serdes}
        return cls(store, **choices)

    @property
    def given(self) -> bool:
        """True if the user made any choice. Kafka Streams numbers some operators differently then."""
        return self != _DEFAULT

    def spec(self, name: str, key: Choice, value: Choice) -> StoreSpec:
        """Return the spec of this table's store: versioned, or timestamped key-value."""
        spec = StoreSpec(
            name=name,
            kind="timestamped-key-value",
            persistent=not self.in_memory,
            logged=self.logging,
            cached=self.caching,
            key_serde=key,
            value_serde=value,
            changelog_config=dict(self.changelog_config),
            of_dsl=True,
        )
        if self.history is None:
            return spec
        return replace(
            spec,
            kind="versioned",
            cached=False,
            retention_ms=milliseconds(self.history, "a history"),
            segment_interval_ms=0 if self.segment is None else milliseconds(self.segment, "a segment", least=1),
        )

    def bounded_spec(
        self, name: str, kind: StoreKind, key: Choice, value: Choice, *, needed_ms: int, window_ms: int, closing: bool,
        results_wait: bool,
    ) -> StoreSpec:  # fmt: skip
        """Return the spec of this table's store, for a table of windows or sessions. `needed_ms`: the shortest
        retention that is allowed. `closing`: windows are emitted when they close. Then the store has no cache, as a
        cache would delay the results. `results_wait`: see `StoreSpec`."""
        retention_ms = needed_ms if self.retention is None else milliseconds(self.retention, "a retention")
        if retention_ms < needed_ms:
            raise TopologyError(
                f"store {name}: its retention of {retention_ms} ms is shorter than window and grace, {needed_ms} ms: "
                "late records would find their windows gone"
            )
        if self.history is not None:
            raise TopologyError(f"store {name}: a table of windows can't be versioned; its retention= is a history")
        spec = self.spec(name, key, value)
        return replace(
            spec, kind=kind, cached=self.caching and not closing, retention_ms=retention_ms, window_ms=window_ms,
            closing=closing, results_wait=results_wait,
        )  # fmt: skip


_DEFAULT = Materialized()
