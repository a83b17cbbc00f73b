"""The table of store kinds, `KINDS`. One `Kind` has everything in which a kind differs from the others.

*Guarantees*: no other module branches on a store's kind. To add a kind is to add an entry to `KINDS`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from milestones.common.records import Emitted, Headers
from milestones.common.state.changelog import (
    TIMESTAMP,
    TIMESTAMP_BYTES,
    HasHeaders,
    Layout,
    Log,
    PlainLayout,
    TimestampedLayout,
    changelog,
    changelog_of_headers,
)
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.state.stores.expiring_store import ExpiringLayout, ExpiringStore
from milestones.common.state.stores.global_readers import (
    ExpiringReader,
    LruReader,
    SessionReader,
    SessionWithHeadersReader,
    TimestampedWindowReader,
    TimestampedWindowWithHeadersReader,
    WindowReader,
)
from milestones.common.state.stores.join_buffer import JoinBuffer, join_buffer_changelog, waiting_since
from milestones.common.state.stores.key_value_stores import KeyValueStore, TimestampedKeyValueStore
from milestones.common.state.stores.key_views import ViewCache
from milestones.common.state.stores.lru_rows import LruLayout
from milestones.common.state.stores.lru_store import LruStore
from milestones.common.state.stores.row_headers import (
    HeadersLayout,
    TimedHeadersLayout,
    behind,
    headers_in,
    timed_headers,
    without_headers,
)
from milestones.common.state.stores.rows import Rows, StoreParts
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.stores_with_headers import (
    SessionStoreWithHeaders,
    TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowStoreWithHeaders,
)
from milestones.common.state.stores.suppress_buffer import SuppressBuffer
from milestones.common.state.stores.suppress_layout import SuppressLayout, new_value, suppress_changelog
from milestones.common.state.stores.versioned_layout import VersionedLayout
from milestones.common.state.stores.versioned_store import VersionedStore
from milestones.common.state.stores.window_layouts import (
    SESSIONS,
    WINDOWS,
    SegmentedLayout,
    session_layout,
    session_of,
    timestamped_window_layout,
    window_layout,
    window_of,
)
from milestones.common.state.stores.window_stores import TimestampedWindowStore, WindowStore
from milestones.common.windowed import END_AND_START, START_AND_SEQUENCE, Windowed

CHANGELOG_SETTINGS: Final = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
"""Topic settings of every changelog, as in Kafka Streams. The store's kind adds its own (`Kind.topic`)."""


LONGEST_LAG: Final = str((1 << 63) - 1)
"""A compaction lag in ms that is never over, so that no record of the topic is compacted away."""

_NEEDED: Final = ("retention.ms", "retention.bytes", "min.compaction.lag.ms", "max.compaction.lag.ms")
"""Topic settings that decide how long the topic keeps the records that the store needs."""

Row = tuple["bytes | None", "int | None"]
"""The bytes of a value and the value's time. The bytes are None for a deletion that a buffer keeps back. The time is
None if the rows of the kind have no time."""

MakeLog = Callable[
    [str, int, str, Callable[[Emitted], None], "Callable[[bytes], bytes] | None", "HasHeaders | None"], Log
]
"""A function that makes a store's `Log`, with the arguments of `changelog.changelog`. The last argument is the current
record."""


def _plain(_: StoreSpec) -> Layout:
    return PlainLayout()


def _timestamped(_: StoreSpec) -> Layout:
    return TimestampedLayout()


def _timestamped_with_headers(spec: StoreSpec) -> Layout:
    return TimestampedLayout() if _without_any(spec) else TimedHeadersLayout()


def _windows_with_headers(spec: StoreSpec) -> Layout:
    return SegmentedLayout(spec, TimedHeadersLayout(), WINDOWS)


def _sessions_with_headers(spec: StoreSpec) -> Layout:
    return SegmentedLayout(spec, HeadersLayout(), SESSIONS)


def _without_any(spec: StoreSpec) -> bool:
    """True if the rows have no headers even though the kind has them.

    In this case a source topic serves as changelog, and an operator of the DSL puts its records into the store.
    Operators put no headers. A restoration must restore the same rows, so it ignores the headers of the topic's
    records."""
    return spec.of_dsl and spec.source_topic is not None


def _suppress(_: StoreSpec) -> Layout:
    return SuppressLayout()


def _plain_value(local: bytes) -> Row:
    return local, None


def _timed_value(local: bytes) -> Row:
    return local[TIMESTAMP_BYTES:], TIMESTAMP.unpack_from(local)[0]


def _timed_value_of_headers(local: bytes) -> Row:
    return _timed_value(without_headers(local))


def _value_behind_headers(local: bytes) -> Row:
    return local[behind(local) :], None


def _like_all(_: StoreSpec) -> Mapping[str, str]:
    return {}


def _like_any(_: StoreSpec) -> str:
    return ""


def _bounded(_: StoreSpec) -> Mapping[str, str]:
    """Return topic settings with which the broker deletes nothing by age or size.

    The store's task deletes the records of expired rows, by the store's time. A broker would delete by its own clock,
    which may have nothing to do with the timestamps of the records."""
    return {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}


def _with_all(_: StoreSpec) -> Mapping[str, str]:
    """Return topic settings with which the broker compacts no record away.

    A restoration needs every version of the history, which is measured by the store's time. A broker would compact by
    its own clock, which may have nothing to do with the timestamps of the records."""
    return {"min.compaction.lag.ms": LONGEST_LAG, "max.compaction.lag.ms": LONGEST_LAG}


def _values(caches: ReadCaches, _: StoreSpec) -> ReadCache:
    return ReadCache(caches)


def _views_of_windows(caches: ReadCaches, spec: StoreSpec) -> ReadCache:
    return ViewCache(caches, START_AND_SEQUENCE.size, values_too=not spec.duplicates)


def _views_of_sessions(caches: ReadCaches, _: StoreSpec) -> ReadCache:
    return ViewCache(caches, END_AND_START.size, values_too=False)


def _of_history(spec: StoreSpec) -> str:
    return f"segments of {spec.segment_ms} ms"


def _by_segments(spec: StoreSpec) -> str:
    return f"segments of {spec.segment_ms} ms{', and by time' if spec.closing else ''}"


@dataclass(frozen=True)
class Kind:
    """One kind of store.

    `store`: the class that user code sees.
    `layout`: makes the local layout of one store.
    `version`: the version of that layout's bytes; 1 is Kafka Streams' own layout.
    `topic`: returns settings of the changelog topic that are added to `CHANGELOG_SETTINGS`, or override them.
    `arrangement`: describes the settings of the user that the local keys depend on. If they change, the rows on disk
    can't be found.
    `plain`: the same kind without headers, whose changelog restores this kind, too. None if there is no such kind.
    `reads_plain`: True means that the local rows of `plain` are read as they are, as rows without headers.
    `windowed`: returns the key's bytes and the window of a changelog key. None if keys have no windows.
    `value`: returns the plain value and the time of a local value.
    `headers`: returns the headers of a local value. None if values have no headers.
    `changelog`: makes the store's `Log`.
    `reader`: the class through which tasks read a global store. None if no global store can have this kind.
    `logs_at_commit`: True means that the changelog gets its records at a commit, because a deleted row was forwarded as
    a result (`StoreSpec.results_wait`). Only the last write of each key is logged, unless `history` is True.
    `held`: returns the number of updates that a store keeps back, and their bytes. None if a store keeps none back.
    `whole`: True means that a commit must be written in one step. A replay couldn't repair a part of it, because rows
    depend on each other or on reads.
    `history`: True means that the changelog needs every write, even if the store logs at a commit.
    `cache`: makes the memory of the rows that one store has read.
    """

    store: Callable[[StoreParts], Rows]
    layout: Callable[[StoreSpec], Layout]
    version: int = 1
    topic: Callable[[StoreSpec], Mapping[str, str]] = _like_all
    arrangement: Callable[[StoreSpec], str] = _like_any
    plain: StoreKind | None = None
    reads_plain: bool = False
    windowed: Callable[[StoreSpec, bytes], Windowed[bytes]] | None = None
    value: Callable[[bytes], Row] = _plain_value
    headers: Callable[[bytes], Headers] | None = None
    changelog: MakeLog = changelog
    reader: Callable[[StoreParts], Rows] | None = None
    logs_at_commit: bool = False
    held: Callable[[Any], tuple[int, int]] | None = None
    whole: bool = False
    history: bool = False
    cache: Callable[[ReadCaches, StoreSpec], ReadCache] = _values

    @property
    def timed(self) -> bool:
        """True if the rows of this kind have a time."""
        return self.value not in (_plain_value, _value_behind_headers)


KINDS: Final[Mapping[StoreKind, Kind]] = {
    "key-value": Kind(KeyValueStore, _plain, reader=KeyValueStore),
    "timestamped-key-value": Kind(
        TimestampedKeyValueStore, _timestamped, value=_timed_value, reader=TimestampedKeyValueStore
    ),
    "window": Kind(
        WindowStore, window_layout, topic=_bounded, arrangement=_by_segments, windowed=window_of, reader=WindowReader,
        cache=_views_of_windows,
    ),
    "timestamped-window": Kind(
        TimestampedWindowStore, timestamped_window_layout, topic=_bounded, arrangement=_by_segments,
        windowed=window_of, value=_timed_value, reader=TimestampedWindowReader,
        cache=_views_of_windows,
    ),
    "suppress": Kind(
        SuppressBuffer, _suppress, value=new_value, changelog=suppress_changelog, logs_at_commit=True,
        held=SuppressBuffer.held,
    ),
    "session": Kind(
        SessionStore, session_layout, topic=_bounded, arrangement=_by_segments, windowed=session_of,
        reader=SessionReader, cache=_views_of_sessions,
    ),
    "versioned": Kind(
        VersionedStore, VersionedLayout, value=_timed_value, topic=_with_all, arrangement=_of_history,
        reader=VersionedStore, whole=True, history=True,
    ),
    "lru": Kind(LruStore, LruLayout, reader=LruReader, whole=True, history=True),
    "expiring-key-value": Kind(ExpiringStore, ExpiringLayout, value=_timed_value, reader=ExpiringReader, history=True),
    "join-buffer": Kind(
        JoinBuffer, _plain, windowed=waiting_since, value=new_value, changelog=join_buffer_changelog,
        logs_at_commit=True, history=True,
    ),
    "timestamped-key-value-with-headers": Kind(
        TimestampedKeyValueStoreWithHeaders, _timestamped_with_headers, plain="timestamped-key-value", reads_plain=True,
        value=_timed_value_of_headers, headers=timed_headers, changelog=changelog_of_headers,
        reader=TimestampedKeyValueStoreWithHeaders,
    ),
    "timestamped-window-with-headers": Kind(
        TimestampedWindowStoreWithHeaders, _windows_with_headers, plain="timestamped-window", reads_plain=True,
        topic=_bounded, arrangement=_by_segments, windowed=window_of, value=_timed_value_of_headers,
        headers=timed_headers, changelog=changelog_of_headers, reader=TimestampedWindowWithHeadersReader,
    ),
    "session-with-headers": Kind(
        SessionStoreWithHeaders, _sessions_with_headers, plain="session", topic=_bounded, arrangement=_by_segments,
        windowed=session_of, value=_value_behind_headers, headers=headers_in, changelog=changelog_of_headers,
        reader=SessionWithHeadersReader,
    ),
}

_WITH_HEADERS: Final[Mapping[StoreKind, StoreKind]] = {
    kind.plain: name for name, kind in KINDS.items() if kind.plain is not None
}


def with_headers(spec: StoreSpec) -> StoreSpec:
    """Return the spec of the store under the `dsl_store_format` `headers`. As in Kafka Streams, only the DSL's stores
    on disk get headers. Other specs are returned as they are."""
    if not (spec.of_dsl and spec.persistent and spec.kind in _WITH_HEADERS):
        return spec
    return replace(spec, kind=_WITH_HEADERS[spec.kind])


def reads_as_own(kind: StoreKind, written: str) -> bool:
    """True if a store of `kind` reads the rows of a store of the kind `written` as they are."""
    return kind == written or (KINDS[kind].reads_plain and KINDS[kind].plain == written)


def same_changelog(kind: StoreKind, written: str) -> bool:
    """True if the changelog of a store of the kind `written` restores a store of `kind`."""
    return written in KINDS and _plain_of(kind) == _plain_of(written)  # type: ignore[arg-type]  # just looked up


def _plain_of(kind: StoreKind) -> StoreKind:
    return KINDS[kind].plain or kind


def kind_of(spec: StoreSpec) -> Kind:
    """Return the `Kind` of a store."""
    return KINDS[spec.kind]


def layout_of(spec: StoreSpec) -> Layout:
    """Make a new layout for a store."""
    return kind_of(spec).layout(spec)


def changelog_settings(spec: StoreSpec, of_all: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the store's changelog topic.

    `of_all`: the settings that the config has for all internal topics. These settings don't override those by which the
    topic keeps records as long as the store needs them."""
    own = kind_of(spec).topic(spec)
    needed = {name: own[name] for name in _NEEDED if name in own}
    return {**CHANGELOG_SETTINGS, **own, **of_all, **needed, **spec.changelog_config}
