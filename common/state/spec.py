"""`StoreSpec`: a topology's description of a state store.

*Guarantees*: immutable; equal specs open equal stores.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from milestones.common.errors import TopologyError

StoreKind = Literal[
    "key-value", "timestamped-key-value", "window", "timestamped-window", "session", "suppress", "versioned", "lru",
    "join-buffer", "expiring-key-value", "timestamped-key-value-with-headers", "timestamped-window-with-headers",
    "session-with-headers",
]

BOUNDED: frozenset[StoreKind] = frozenset({
    "window", "timestamped-window", "session", "versioned", "timestamped-window-with-headers", "session-with-headers",
})
"""The kinds of stores that drop rows once their retention is over."""

_HISTORY_SEGMENTS = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000), (1 << 63, 24, 300_000))
"""The segments of a versioned store, as in Kafka Streams: (longest history in ms to which this entry applies, number of
segments, shortest segment in ms)."""

SHORTEST_SEGMENT_MS = 60_000

DEFAULT_FORMAT, HEADERS_FORMAT = "default", "headers"
"""The values of `dsl_store_format`. With `DEFAULT_FORMAT` the DSL's stores keep at most a time with each value. With
`HEADERS_FORMAT` they keep the record's headers, too (KIP-1271)."""

_NEVER_CACHED: Mapping[StoreKind, str] = {
    "versioned": "a versioned store can't be cached, because a cache would drop versions",
    "lru": "an LRU store can't be cached, because entries that exceed its size are removed immediately",
    "expiring-key-value": "a store with a time to live can't be cached, because a cache would keep expired entries",
}


@dataclass(frozen=True)
class StoreSpec:
    """One state store.

    `key_serde`, `value_serde`: None means the application's default.
    `logged`: False means that the store has no changelog topic. Such a store stays behind when its task moves, and a
    crash may cost it its last writes (docs/compatibility.md).
    `changelog_config`: topic settings that are added to those of the changelog, or override them.
    `cached`: True means that results are emitted at the flush, if `statestore_cache_max_bytes` is above 0.
    `source_topic`: the source topic that serves as changelog, to which nothing is written. None if there is no such
    topic.
    `logs_headers`: only for key-value stores. True means that changelog records have the headers of the current record.
    `results_wait`: True means that a commit logs the store's writes after the results. Such a store would lose data in
    a crash if Kafka had the changelog records without the results, or only a part of one record's changelog records.
    There are three reasons: a deleted row was forwarded as a result; a row is computed from others (sliding windows);
    or a result depends on a row's old value or on rows that an operator looks up.
    `of_dsl`: True means that an operator of the DSL keeps its rows in the store, which then follows the application's
    `dsl_store_format`.

    Window and session stores: `retention_ms` is the time for which a row is kept. A window expires when it starts
    `retention_ms` or more before the highest time seen, a session when it ends so early. `window_ms` is the size of the
    windows. `duplicates`: True means several values per key and start, for joins. `closing`: True means that the store
    has an index by time, for windows that are emitted when they close.

    Versioned stores: `retention_ms` is the length of the history. A value is still known if it was valid at most
    `retention_ms` before the highest time seen. `segment_interval_ms` is the time that a segment spans; 0 means Kafka
    Streams' default.

    Expiring stores: `ttl_ms` is the lifetime of an entry, by the timestamps of the records.

    LRU stores: `max_entries` is the number of entries that are kept.
    """

    name: str
    kind: StoreKind = "key-value"
    persistent: bool = True
    logged: bool = True
    cached: bool = False
    key_serde: Any = None
    value_serde: Any = None
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    source_topic: str | None = None
    retention_ms: int = 0
    window_ms: int = 0
    duplicates: bool = False
    closing: bool = False
    segment_interval_ms: int = 0
    max_entries: int = 0
    logs_headers: bool = False
    ttl_ms: int = 0
    of_dsl: bool = False
    results_wait: bool = False

    @property
    def segment_ms(self) -> int:
        """The time that one segment spans, as in Kafka Streams. Expired rows are dropped by whole segments."""
        if self.kind == "versioned":
            return self.segment_interval_ms or next(
                max(self.retention_ms // count, least)
                for most, count, least in _HISTORY_SEGMENTS
                if self.retention_ms <= most
            )
        return max(self.retention_ms // 2, SHORTEST_SEGMENT_MS)

    @property
    def bare(self) -> StoreSpec:
        """The spec without serdes, for a process that reads only bytes."""
        return replace(self, key_serde=None, value_serde=None)

    def __post_init__(self) -> None:
        if self.kind not in get_args(StoreKind):
            kinds = " and ".join(map(repr, get_args(StoreKind)))
            raise TopologyError(f"store {self.name}: there is no kind {self.kind!r}; there are {kinds}")
        if self.cached and self.kind in _NEVER_CACHED:
            raise TopologyError(f"store {self.name}: {_NEVER_CACHED[self.kind]}")
        if self.kind == "versioned":
            self._check_versioned()
        elif (self.kind == "expiring-key-value") != (self.ttl_ms > 0):
            raise TopologyError(
                f"store {self.name}: a {self.kind} store with ttl_ms={self.ttl_ms}: a time to live is at least 1 ms, "
                "and only key-value stores of the kind 'expiring-key-value' have one"
            )
        elif (self.kind == "lru") != (self.max_entries > 0):
            raise TopologyError(
                f"store {self.name}: a {self.kind} store with max_entries={self.max_entries}: an LRU store has at "
                "least one entry, and no other store has a limit"
            )
        elif self.kind in BOUNDED and self.retention_ms == 0:
            raise TopologyError(
                f"store {self.name}: a {self.kind} store needs retention_ms=, how long before the highest time seen "
                "its rows are kept, at least window_ms"
            )
        elif self.kind in BOUNDED and self.retention_ms < max(1, self.window_ms):
            raise TopologyError(
                f"store {self.name}: its retention of {self.retention_ms} ms is shorter than its windows of "
                f"{self.window_ms} ms: a window would expire before it ends"
            )

    def _check_versioned(self) -> None:
        if self.retention_ms < 0 or self.segment_interval_ms < 0:
            raise TopologyError(
                f"store {self.name}: a history of {self.retention_ms} ms in segments of {self.segment_interval_ms} ms: "
                "neither can be negative"
            )


def is_trimmed(spec: StoreSpec) -> bool:
    """True if the store has its own changelog, and a changelog record is useless once its row has expired.

    A versioned store isn't trimmed, because it needs the last version of each key for ever."""
    return spec.kind in BOUNDED and spec.kind != "versioned" and spec.logged and spec.source_topic is None
