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
"""The kinds whose rows are gone after a time."""

_HISTORY_SEGMENTS = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000), (1 << 63, 24, 300_000))
"""Of a history up to so many ms: into how many segments it is cut, and the shortest segment, as in Kafka Streams."""

SHORTEST_SEGMENT_MS = 60_000

DEFAULT_FORMAT, HEADERS_FORMAT = "default", "headers"
"""What values in the DSL's stores have beside them: their time at most, or headers, too (KIP-1271)."""

_NEVER_CACHED: Mapping[StoreKind, str] = {
    "versioned": "a versioned store can't be cached: each version counts",
    "lru": "an LRU store can't be cached: what makes room is gone at once",
    "expiring-key-value": "a store with a time to live can't be cached: what is over is gone at once",
}


@dataclass(frozen=True)
class StoreSpec:
    """One state store.

    `key_serde`, `value_serde`: None means the application's default. `logged` False: no changelog topic.
    Such a store stays behind when its task moves, and a crash may cost it its last writes (docs/compatibility.md).
    `changelog_config` adds to or overrides the topic settings of the changelog.
    `cached`: emits at the flush when `statestore_cache_max_bytes` is above 0.
    `source_topic`: the source topic that serves as changelog (nothing is written to it), else None.
    `logs_headers`: of a key-value store; changelog records have the headers of the record in work.
    `results_wait`: it is logged at a commit, behind the results. Of stores where a changelog that is ahead of the
    results, or has a part of what one record changes, would lose something in a crash: what is deleted was sent on as a
    result; rows follow from one another (sliding windows); or results depend on a row's old value, or on
    rows that an operator looks up.
    `of_dsl`: an operator keeps its rows in it, so that the application's `dsl_store_format` holds for it.

    Of window and session stores: `retention_ms` is how long before the highest time seen a window may start, or a
    session end, before it is gone; `window_ms` the size of the windows. `duplicates`: several values per key and start,
    for joins. `closing`: there is an order by time, too, for windows that are emitted when they close.

    Of versioned stores: `retention_ms` is the history, how long before the highest time seen a value may have held and
    still be known. `segment_interval_ms`: the time that a segment spans; 0 means Kafka Streams' default.

    Of expiring stores: `ttl_ms` is how long an entry lives, by the time of the records.

    Of LRU stores: `max_entries` is how many entries stay.
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
        """The time that one segment spans, as in Kafka Streams: what is gone is dropped by segments."""
        if self.kind == "versioned":
            return self.segment_interval_ms or next(
                max(self.retention_ms // count, least)
                for most, count, least in _HISTORY_SEGMENTS
                if self.retention_ms <= most
            )
        return max(self.retention_ms // 2, SHORTEST_SEGMENT_MS)

    @property
    def bare(self) -> StoreSpec:
        """The spec without serdes: what a process that reads only bytes is given."""
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
                f"{self.window_ms} ms: a window would be gone before it ends"
            )

    def _check_versioned(self) -> None:
        if self.retention_ms < 0 or self.segment_interval_ms < 0:
            raise TopologyError(
                f"store {self.name}: a history of {self.retention_ms} ms in segments of {self.segment_interval_ms} ms: "
                "neither can be negative"
            )


def is_trimmed(spec: StoreSpec) -> bool:
    """True if the store has a changelog of its own whose records have no use once their rows are gone. (A versioned
    store needs the last version of each key for ever.)"""
    return spec.kind in BOUNDED and spec.kind != "versioned" and spec.logged and spec.source_topic is None
