"""Suppress by windows and by time, as src/OfSuppress.java has it. Updates wait for 10 ms."""

from __future__ import annotations

from typing import Any

from compat_tests.java.of_joins import both, loud, not_b
from compat_tests.java.of_streams import LONG, TEXT, aggregate, append, by_value, initial
from compat_tests.java.of_tables import by_letter
from compat_tests.java.of_windows import GRACE, HOPPING, LONG_MS, SESSION, SIZE, SLIDING, TUMBLING, texts
from compat_tests.java.registry import Registry
from milestones.common.topology import KGroupedStream, KTable, StreamsBuilder
from milestones.common.topology.materialized import WindowOptions
from milestones.common.topology.windows import TimeWindows

ENTRIES = Registry()
LIMIT = 10
LONG_KEPT: WindowOptions = {"key": TEXT, "value": LONG, "retention": LONG_MS}
"""A retention beyond all inputs: a cache of Kafka Streams still has windows whose retention is over."""


def keyed(builder: StreamsBuilder, topic: str = "in") -> KGroupedStream:
    return builder.stream(topic).group_by_key(key=TEXT, value=TEXT)


def tumbling(builder: StreamsBuilder) -> KTable:
    return keyed(builder).windowed_by(TUMBLING).count()


def limited(builder: StreamsBuilder, **bound: Any) -> None:
    builder.table("in").suppress(after=LIMIT, **bound).to_stream().to("out")


@ENTRIES.dsl("suppress_tumbling")
def of_tumbling(builder: StreamsBuilder) -> None:
    texts(tumbling(builder).suppress(until="window_closes"))


@ENTRIES.dsl("suppress_session")
def of_sessions(builder: StreamsBuilder) -> None:
    sessions = keyed(builder).windowed_by(SESSION).count(**LONG_KEPT)
    texts(sessions.suppress(until="window_closes"))


@ENTRIES.dsl("suppress_hopping")
def of_hopping(builder: StreamsBuilder) -> None:
    texts(keyed(builder).windowed_by(HOPPING).count().suppress(until="window_closes"))


@ENTRIES.dsl("suppress_sliding")
def of_sliding(builder: StreamsBuilder) -> None:
    texts(keyed(builder).windowed_by(SLIDING).count().suppress(until="window_closes"))


@ENTRIES.dsl("suppress_windows_rekeyed")
def windows_rekeyed(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by(by_value, name="by-value", key=TEXT, value=TEXT)
    texts(grouped.windowed_by(TUMBLING).count().suppress(until="window_closes"))


@ENTRIES.dsl("suppress_windows_mapped")
def windows_mapped(builder: StreamsBuilder) -> None:
    mapped = tumbling(builder).filter(lambda k, v: v % 2 == 0).map_values(lambda v: f"n{v}")
    texts(mapped.suppress(until="window_closes").filter_not(lambda k, v: v == "n4"))


@ENTRIES.dsl("suppress_windows_named")
def windows_named(builder: StreamsBuilder) -> None:
    texts(tumbling(builder).suppress(until="window_closes", max_bytes=10_000_000, name="held"))


@ENTRIES.dsl("suppress_windows_joined", "left", "right")
def windows_joined(builder: StreamsBuilder) -> None:
    left = keyed(builder, "left").windowed_by(TUMBLING).count(**LONG_KEPT)
    right = keyed(builder, "right").windowed_by(TimeWindows(SIZE, grace=GRACE + 3)).count(**LONG_KEPT)
    texts(left.outer_join(right, counts).suppress(until="window_closes"))


def counts(left: int | None, right: int | None) -> str:
    return both(*(None if count is None else str(count) for count in (left, right)))


@ENTRIES.dsl("suppress_windows_until_full")
def windows_until_full(builder: StreamsBuilder) -> None:
    texts(tumbling(builder).suppress(until="window_closes", max_records=3, when_full="stop"))


@ENTRIES.dsl("suppress_time")
def by_time(builder: StreamsBuilder) -> None:
    limited(builder)


@ENTRIES.dsl("suppress_time_records")
def by_time_records(builder: StreamsBuilder) -> None:
    limited(builder, max_records=2)


@ENTRIES.dsl("suppress_time_bytes")
def by_time_bytes(builder: StreamsBuilder) -> None:
    limited(builder, max_bytes=72, when_full="emit")


@ENTRIES.dsl("suppress_time_until_full")
def by_time_until_full(builder: StreamsBuilder) -> None:
    limited(builder, max_records=2, when_full="stop")


@ENTRIES.dsl("suppress_time_unlogged")
def by_time_unlogged(builder: StreamsBuilder) -> None:
    limited(builder, logging=False)


@ENTRIES.dsl("suppress_time_both_bounds")
def by_time_both_bounds(builder: StreamsBuilder) -> None:
    limited(builder, max_records=3, max_bytes=110)


@ENTRIES.dsl("suppress_time_bytes_until_full")
def by_time_bytes_until_full(builder: StreamsBuilder) -> None:
    limited(builder, max_bytes=110, when_full="stop")


@ENTRIES.dsl("suppress_time_headers_of_others", "left", "right")
def two_topics(builder: StreamsBuilder) -> None:
    left = builder.stream("left")
    merged = left.merge(builder.stream("right")).group_by_key(key=TEXT, value=TEXT)
    merged.aggregate(initial, aggregate).suppress(after=LIMIT).to_stream().to("out")


@ENTRIES.dsl("suppress_time_filtered")
def filtered(builder: StreamsBuilder) -> None:
    suppressed = builder.table("in").filter(not_b).map_values(loud).suppress(after=LIMIT)
    suppressed.filter(lambda k, v: len(v.encode("utf-16-le")) < 6).to_stream().to("out")


@ENTRIES.dsl("suppress_time_twice")
def twice(builder: StreamsBuilder) -> None:
    builder.table("in").suppress(after=LIMIT, max_records=2).suppress(after=3).to_stream().to("out")


@ENTRIES.dsl("suppress_time_kept")
def kept(builder: StreamsBuilder) -> None:
    regrouped: Any = by_letter  # a row of no group has the key None
    (
        builder.table("in")
        .suppress(after=LIMIT)
        .map_values(loud, "kept", key=TEXT, value=TEXT)
        .group_by(regrouped, key=TEXT, value=TEXT)
        .reduce(append, lambda a, v: a + "-")
        .to_stream()
        .to("out")
    )


@ENTRIES.dsl("suppress_time_joined", "left", "right")
def joined(builder: StreamsBuilder) -> None:
    left = builder.table("left").map_values(loud).suppress(after=LIMIT)
    right = builder.table("right").suppress(after=LIMIT, max_records=2)
    left.outer_join(right, both).to_stream().to("out")


@ENTRIES.dsl("suppress_time_joined_with_stream", "left", "right")
def joined_with_stream(builder: StreamsBuilder) -> None:
    right = builder.table("right").suppress(after=LIMIT, name="held").filter(not_b)
    builder.stream("left").left_join(right, both).to("out")


@ENTRIES.dsl("suppress_no_time")
def no_time(builder: StreamsBuilder) -> None:
    suppressed = builder.table("in").suppress(after=0)
    suppressed.group_by(by_letter).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("suppress_named")
def named(builder: StreamsBuilder) -> None:
    (
        builder.stream("in")
        .group_by_key()
        .count()
        .suppress(after=LIMIT, name="held")
        .group_by(lambda k, v: (f"n{v % 2}", k), key=TEXT, value=TEXT)
        .reduce(append, lambda a, v: a + "-")
        .to_stream()
        .to("out")
    )
