"""Operators of several kinds, one behind the other, as src/OfChains.java has them. The topics are `left` and `right`,
and `other`, a stream beside tables or results of the two."""

from __future__ import annotations

from typing import Any

from compat_tests.java.cases import WITH_KEYS
from compat_tests.java.of_foreign_keys import of_letter
from compat_tests.java.of_joins import WINDOWS, both, out
from compat_tests.java.of_streams import LONG, TEXT, append
from compat_tests.java.of_suppress import LIMIT
from compat_tests.java.of_tables import by_letter
from compat_tests.java.of_windows import HOPPING, LONG_MS, SESSION, SLIDING, TUMBLING, texts
from compat_tests.java.registry import Registry
from milestones.common.topology import JoinWindows, KStream, StreamsBuilder

ENTRIES = Registry()
SIDES = ("left", "right")
THREE = (*SIDES, "other")


def joined(builder: StreamsBuilder) -> KStream:
    return builder.stream("left").outer_join(builder.stream("right"), both, within=WINDOWS)


def closed(builder: StreamsBuilder) -> KStream:
    windows = builder.stream("left").group_by_key(key=TEXT, value=TEXT).windowed_by(TUMBLING).reduce(append)
    return windows.suppress(until="window_closes").to_stream(lambda w, _: w.key)


@ENTRIES.dsl("chain_joined_in_windows", *SIDES)
def joined_in_windows(builder: StreamsBuilder) -> None:
    texts(joined(builder).group_by_key(key=TEXT, value=TEXT).windowed_by(HOPPING).count())


@ENTRIES.dsl("chain_joined_in_closing_windows", *SIDES)
def joined_in_closing_windows(builder: StreamsBuilder) -> None:
    windowed = joined(builder).group_by_key(key=TEXT, value=TEXT).windowed_by(TUMBLING, emit="on_close")
    texts(windowed.count(key=TEXT, value=LONG, retention=LONG_MS))


@ENTRIES.dsl("chain_joined_in_sessions", *SIDES)
def joined_in_sessions(builder: StreamsBuilder) -> None:
    texts(joined(builder).group_by_key(key=TEXT, value=TEXT).windowed_by(SESSION).reduce(append))


@ENTRIES.dsl("chain_later_partners", "left", "other")
def later_partners(builder: StreamsBuilder) -> None:
    builder.stream("left").left_join(builder.stream("other"), both, within=WINDOWS.before(-2)).to("out")


@ENTRIES.dsl("chain_earlier_partners", "left", "other")
def earlier_partners(builder: StreamsBuilder) -> None:
    builder.stream("left").outer_join(builder.stream("other"), both, within=WINDOWS.after(-3)).to("out")


@ENTRIES.dsl("chain_joined_twice", *THREE)
def joined_twice(builder: StreamsBuilder) -> None:
    joined(builder).outer_join(builder.stream("other"), both, within=JoinWindows(4, grace=2)).to("out")


@ENTRIES.dsl("chain_closed_joined_with_table", *SIDES)
def closed_joined_with_table(builder: StreamsBuilder) -> None:
    closed(builder).left_join(builder.table("right"), both, key=TEXT, value=TEXT, other_value=TEXT).to("out")


@ENTRIES.dsl("chain_closed_in_windows", *SIDES)
def closed_in_windows(builder: StreamsBuilder) -> None:
    merged = closed(builder).merge(builder.stream("right")).group_by_key(key=TEXT, value=TEXT)
    texts(merged.windowed_by(SLIDING).count())


@ENTRIES.dsl("chain_sessions_grouped", "left")
def sessions_grouped(builder: StreamsBuilder) -> None:
    sessions = builder.stream("left").group_by_key(key=TEXT, value=TEXT).windowed_by(SESSION)
    rows = sessions.reduce(append, key=TEXT, value=TEXT, retention=LONG_MS)
    grouped: Any = rows.group_by(lambda w, v: (w.key, v), key=TEXT, value=TEXT)
    out(grouped.reduce(append, lambda a, v: a + "-"))


@ENTRIES.dsl("chain_grace_in_sessions", *SIDES, records=WITH_KEYS)
def grace_in_sessions(builder: StreamsBuilder) -> None:
    right = builder.table("right", "versions", history=120_000)
    paired = builder.stream("left").left_join(right, both, key=TEXT, value=TEXT, other_value=TEXT, grace=6)
    texts(paired.group_by_key(key=TEXT, value=TEXT).windowed_by(SESSION).reduce(append))


@ENTRIES.dsl("chain_foreign_key_suppressed", *SIDES)
def foreign_key_suppressed(builder: StreamsBuilder) -> None:
    linked = builder.table("left").left_join(builder.table("right"), both, foreign_key=of_letter)
    grouped: Any = linked.suppress(after=LIMIT, max_records=3).group_by(by_letter, key=TEXT, value=TEXT)
    grouped.count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("chain_suppressed_foreign_key", *SIDES)
def suppressed_foreign_key(builder: StreamsBuilder) -> None:
    left = builder.table("left").suppress(after=LIMIT)
    right = builder.table("right").suppress(after=4)
    out(left.join(right, both, foreign_key=of_letter))


@ENTRIES.dsl("chain_updates_joined", *THREE)
def updates_joined(builder: StreamsBuilder) -> None:
    updates = builder.table("left").outer_join(builder.table("right"), both).to_stream()
    updates.outer_join(builder.stream("other"), both, within=WINDOWS).to("out")


@ENTRIES.dsl("chain_joined_then_deleted", *SIDES)
def joined_then_deleted(builder: StreamsBuilder) -> None:
    out(joined(builder).group_by_key(key=TEXT, value=TEXT).reduce(short))


@ENTRIES.dsl("chain_joined_then_windows_deleted", *SIDES)
def joined_then_windows_deleted(builder: StreamsBuilder) -> None:
    grouped = joined(builder).group_by_key(key=TEXT, value=TEXT)
    texts(grouped.windowed_by(HOPPING).reduce(short))


def short(so_far: str, value: str) -> str | None:
    """None where it would be long, as Java counts."""
    return None if len(so_far.encode("utf-16-le")) > 16 else append(so_far, value)
