"""State stores for processors, as Kafka Streams' `Stores` makes them.

    from milestones import stores

    builder.add_state_store(stores.key_value("seen", str, int))

*Guarantees*: each function returns a `StoreSpec`, or raises a `TopologyError` if the arguments can't describe a store.
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
    """The options of a store.

    `in_memory` True: the store is kept in memory, not in RocksDB. `logging` False: the store has no changelog topic.
    `changelog_config`: topic settings that override those of the changelog. `caching` True: of each key only the last
    write per commit is logged, if `statestore_cache_max_bytes` is above 0. Versioned and LRU stores have no cache.
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
    """Return the spec of a `KeyValueStore`. `key`, `value`: serdes, or types that have one; by default the
    application's. `ttl`: how long an entry lives, by the time of the records. With a `ttl` the store is an
    `ExpiringStore`, which has no cache."""
    if ttl is None:
        return _spec(name, "key-value", key, value, options)
    return _spec(
        name, "expiring-key-value", key, value, options, ttl_ms=milliseconds(ttl, "a time to live", least=1)
    )


def timestamped_key_value(
    name: str, key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None, **options: Unpack[SpecOptions]
) -> StoreSpec:
    """Return the spec of a `TimestampedKeyValueStore`, as tables have."""
    return _spec(name, "timestamped-key-value", key, value, options)


def timestamped_key_value_with_headers(
    name: str, key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None, **options: Unpack[SpecOptions]
) -> StoreSpec:
    """Return the spec of a `TimestampedKeyValueStoreWithHeaders` (KIP-1271)."""
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
    """Return the spec of a `WindowStore` with windows of this `size`. `retention`: a window is kept if it starts at
    most this long before the highest time seen. `duplicates`: True if a key may have several values in a window."""
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
    """Return the spec of a `TimestampedWindowStore`, as tables of windows have."""
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
    """Return the spec of a `TimestampedWindowStoreWithHeaders` (KIP-1271)."""
    return _spec(name, "timestamped-window-with-headers", key, value, options, **_windows(size, retention))


def session(
    name: str,
    key: SerdeLike[Any] | None = None,
    value: SerdeLike[Any] | None = None,
    *,
    retention: Duration,
    **options: Unpack[SpecOptions],
) -> StoreSpec:
    """Return the spec of a `SessionStore`. `retention`: a session is kept if it ends at most this long before the
    highest time seen."""
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
    """Return the spec of a `SessionStoreWithHeaders` (KIP-1271). `retention`: as in `session`."""
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
    """Return the spec of a `VersionedStore`, which knows each key's value at each time (KIP-889). `history`: how long
    before the highest time seen values are known. A put may be as old as this, too. `segment`: old values are removed
    in spans of time of this length."""
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
    """Return the spec of an `LruStore`, which keeps the `max_entries` entries that were used last. The store is in
    memory unless `in_memory` is False."""
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
