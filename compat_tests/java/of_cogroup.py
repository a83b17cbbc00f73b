"""Several streams in one table, as src/OfCogroup.java has it. The topics are `left` and `right`."""

from __future__ import annotations

from compat_tests.java.of_joins import both
from compat_tests.java.of_streams import LONG, TEXT, aggregate, append, by_value, initial, text
from compat_tests.java.of_tables import by_letter
from compat_tests.java.of_windows import HOPPING, LONG_MS, SESSION, SLIDING, TUMBLING, merge, texts
from compat_tests.java.registry import Registry
from milestones.common.topology import CogroupedKStream, KGroupedStream, KTable, StreamsBuilder
from milestones.common.topology.materialized import WindowOptions
from milestones.common.topology.windows import UnlimitedWindows

ENTRIES = Registry()
SIDES = ("left", "right")
LONG_KEPT: WindowOptions = {"key": TEXT, "value": TEXT, "retention": LONG_MS}
"""A retention beyond all inputs: a cache of Kafka Streams still has windows whose retention is over."""


def right(key: str, value: str | None, so_far: str) -> str | None:
    return append(so_far, "r" + text(value))


def third(key: str, value: str, so_far: str) -> str | None:
    """Deletes the row for an empty value."""
    return append(so_far, "t" + value) if value else None


def grouped(builder: StreamsBuilder, topic: str) -> KGroupedStream:
    return builder.stream(topic).group_by_key()


def cogrouped(builder: StreamsBuilder) -> CogroupedKStream:
    left = grouped(builder, "left")
    return left.cogroup(aggregate).cogroup(grouped(builder, "right"), right)


def out(table: KTable) -> None:
    table.to_stream().to("out")


@ENTRIES.dsl("cogroup", *SIDES)
def cogroup(builder: StreamsBuilder) -> None:
    out(cogrouped(builder).aggregate(initial))


@ENTRIES.dsl("cogroup_one", "left")
def one(builder: StreamsBuilder) -> None:
    out(grouped(builder, "left").cogroup(aggregate).aggregate(initial))


@ENTRIES.dsl("cogroup_three", *SIDES, "third")
def three(builder: StreamsBuilder) -> None:
    out(cogrouped(builder).cogroup(grouped(builder, "third"), third).aggregate(initial, name="three"))


@ENTRIES.dsl("cogroup_rekeyed", *SIDES)
def rekeyed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").group_by(by_value).cogroup(aggregate)
    both_sides = left.cogroup(grouped(builder, "right"), right)
    out(both_sides.aggregate(initial, "cogrouped", name="cogrouping", key=TEXT, value=TEXT))


@ENTRIES.dsl("cogroup_all_rekeyed", *SIDES)
def all_rekeyed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").group_by(by_value).cogroup(aggregate)
    out(left.cogroup(builder.stream("right").group_by(by_value, name="right-by-value"), right).aggregate(initial))


@ENTRIES.dsl("cogroup_uncached", *SIDES)
def uncached(builder: StreamsBuilder) -> None:
    out(cogrouped(builder).aggregate(initial, key=TEXT, value=TEXT, caching=False, logging=False))


@ENTRIES.dsl("cogroup_twice", *SIDES)
def twice(builder: StreamsBuilder) -> None:
    left = builder.stream("left").group_by(by_value, name="by-value").cogroup(aggregate)
    both_sides = left.cogroup(grouped(builder, "right"), right)
    out(both_sides.aggregate(initial))
    texts(both_sides.windowed_by(TUMBLING).aggregate(initial, **LONG_KEPT))


@ENTRIES.dsl("cogroup_regrouped", *SIDES)
def regrouped(builder: StreamsBuilder) -> None:
    cogrouped(builder).aggregate(initial).group_by(by_letter).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("cogroup_joined", *SIDES, "third")
def joined(builder: StreamsBuilder) -> None:
    table = cogrouped(builder).aggregate(initial)
    out(table.outer_join(builder.table("third"), both))


@ENTRIES.dsl("cogroup_tumbling", *SIDES)
def tumbling(builder: StreamsBuilder) -> None:
    texts(cogrouped(builder).windowed_by(TUMBLING).aggregate(initial, **LONG_KEPT))


@ENTRIES.dsl("cogroup_hopping", *SIDES)
def hopping(builder: StreamsBuilder) -> None:
    texts(cogrouped(builder).windowed_by(HOPPING).aggregate(initial, **LONG_KEPT))


@ENTRIES.dsl("cogroup_sliding", *SIDES)
def sliding(builder: StreamsBuilder) -> None:
    texts(cogrouped(builder).windowed_by(SLIDING).aggregate(initial, **LONG_KEPT))


@ENTRIES.dsl("cogroup_unlimited", *SIDES)
def unlimited(builder: StreamsBuilder) -> None:
    texts(cogrouped(builder).windowed_by(UnlimitedWindows()).aggregate(initial))


@ENTRIES.dsl("cogroup_session", *SIDES)
def session(builder: StreamsBuilder) -> None:
    sessions = cogrouped(builder).windowed_by(SESSION)
    texts(sessions.aggregate(initial, merge, **LONG_KEPT))


@ENTRIES.dsl("cogroup_tumbling_named", *SIDES)
def tumbling_named(builder: StreamsBuilder) -> None:
    windows = cogrouped(builder).windowed_by(TUMBLING)
    texts(windows.aggregate(initial, None, "windows", name="cogrouping", **LONG_KEPT))


@ENTRIES.dsl("cogroup_session_rekeyed", *SIDES)
def session_rekeyed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").group_by(by_value, name="by-value").cogroup(aggregate)
    sessions = left.cogroup(grouped(builder, "right"), right).windowed_by(SESSION)
    texts(sessions.aggregate(initial, merge, "sessions", name="cogrouping", **LONG_KEPT))


@ENTRIES.dsl("cogroup_suppressed", *SIDES)
def suppressed(builder: StreamsBuilder) -> None:
    windows = cogrouped(builder).windowed_by(TUMBLING).aggregate(initial, **LONG_KEPT)
    texts(windows.suppress(until="window_closes"))
