"""State stores for processors, as Kafka Streams' `Stores` makes them.

    from milestones import stores

    builder.add_state_store(stores.key_value("seen", str, int))

*Guarantees*: each function gives a `StoreSpec`, or raises `TopologyError` for what can't be one.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from milestones.common.public import publish
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.topology.naming import check_name
from milestones.common.topology.serde_choice import check_serde
from milestones.common.topology.windows import Duration, milliseconds
from milestones.common.typed_serdes import SerdeLike

__all__ = [
    "SpecOptions", "key_value", "lru", "session", "session_with_headers", "timestamped_key_value",
    "timestamped_key_value_with_headers", "timestamped_window", "timestamped_window_with_headers", "versioned",
    "window",
]  # fmt: skip


class SpecOptions(TypedDict, total=False):
    """How a store is kept.

    `in_memory`: no RocksDB. `logging` False: no changelog topic. `changelog_config`: topic settings that override those
    of the changelog. `caching` True: of each key the last write per commit is logged, when `statestore_cache_max_bytes`
    is above 0; versioned and LRU stores have no cache.
    """

    in_memory: bool
    logging: bool
    caching: bool
    changelog_config: Mapping[str, str]


def key_value(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    ttl: Duration | None = None,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `KeyValueStore`. `key`, `value`: serdes, or types that have one; by default the application's. `ttl`: how long
    an entry lives, by the time of the records: then it is an `ExpiringStore`, without a cache."""
    if ttl is None:
        return _spec(name, "key-value", key, value, options)
    return _spec(
        name, "expiring-key-value", key, value, options, ttl_ms=milliseconds(ttl, "a time to live", least=1)
    )


def timestamped_key_value(
    name: str, key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None, **options: Unpack[SpecOptions]
) -> StoreSpec:
    """A `TimestampedKeyValueStore`, as tables have."""
    return _spec(name, "timestamped-key-value", key, value, options)


def timestamped_key_value_with_headers(
    name: str, key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None, **options: Unpack[SpecOptions]
) -> StoreSpec:
    """A `TimestampedKeyValueStoreWithHeaders` (KIP-1271)."""
    return _spec(name, "timestamped-key-value-with-headers", key, value, options)


def window(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    size: Duration,
    retention: Duration,
    duplicates: bool = False,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `WindowStore` of windows of `size`. `retention`: how long before the highest time seen a window may start, and
    still be there. `duplicates`: a key may have several values in a window."""
    return _spec(name, "window", key, value, options, **_windows(size, retention), duplicates=duplicates)


def timestamped_window(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    size: Duration,
    retention: Duration,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `TimestampedWindowStore`, as tables of windows have."""
    return _spec(name, "timestamped-window", key, value, options, **_windows(size, retention))


def timestamped_window_with_headers(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    size: Duration,
    retention: Duration,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `TimestampedWindowStoreWithHeaders` (KIP-1271)."""
    return _spec(name, "timestamped-window-with-headers", key, value, options, **_windows(size, retention))


def session(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    retention: Duration,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `SessionStore`. `retention`: how long before the highest time seen a session may end, and still be there."""
    retention_ms = milliseconds(retention, "a retention", least=1)
    return _spec(name, "session", key, value, options, retention_ms=retention_ms)


def session_with_headers(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    retention: Duration,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `SessionStoreWithHeaders` (KIP-1271). `retention`: as in `session`."""
    retention_ms = milliseconds(retention, "a retention", least=1)
    return _spec(name, "session-with-headers", key, value, options, retention_ms=retention_ms)


def versioned(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    history: Duration,
    segment: Duration | None = None,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """A `VersionedStore`: what each key's value was at each time (KIP-889). `history`: how long before the highest time
    seen, and how old a put may be. `segment`: old values are dropped by spans of this length."""
    return _spec(
        name, "versioned", key, value, options,
        retention_ms=milliseconds(history, "a history"),
        segment_interval_ms=0 if segment is None else milliseconds(segment, "a segment", least=1),
    )  # fmt: skip


def lru(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    max_entries: int,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """An `LruStore` of the last `max_entries` that were used; in memory, unless `in_memory` is False."""
    kept: SpecOptions = {"in_memory": True, **options}
    return _spec(name, "lru", key, value, kept, max_entries=max_entries)


def _windows(size: Duration, retention: Duration) -> dict[str, int]:
    return {
        "window_ms": milliseconds(size, "the size of a window", least=1),
        "retention_ms": milliseconds(retention, "a retention", least=1),
    }


def _spec(
    name: str, kind: StoreKind, key: SerdeLike[Any] | None, value: SerdeLike[Any] | None, options: SpecOptions,
    **more: Any,
) -> StoreSpec:
    return StoreSpec(
        name=check_name(name, "a store"),
        kind=kind,
        persistent=not options.get("in_memory", False),
        logged=options.get("logging", True),
        cached=options.get("caching", False),
        changelog_config=dict(options.get("changelog_config", {})),
        key_serde=check_serde(key, "key"),
        value_serde=check_serde(value, "value"),
        **more,
    )  # fmt: skip


publish(__name__)
