"""Joins of streams and tables, as src/OfStreamJoins.java and src/OfTableJoins.java have them. The topics are `left` and
`right`."""

from __future__ import annotations

from compat_tests.java.of_streams import LONG, TEXT, by_value, text
from compat_tests.java.of_tables import by_letter
from compat_tests.java.registry import Registry
from milestones.common.topology import JoinWindows, KStream, KTable, StreamsBuilder

ENTRIES = Registry()
SIDES = ("left", "right")

WINDOWS = JoinWindows(10, grace=5)
ASYMMETRIC = WINDOWS.before(3).after(7)


def both(left: str | None, right: str | None) -> str:
    return f"{text(left)}&{text(right)}"


def everything(key: str | None, left: str | None, right: str | None) -> str:
    return f"{text(key)}:{both(left, right)}"


def streams(builder: StreamsBuilder) -> tuple[KStream, KStream]:
    return builder.stream("left"), builder.stream("right")


def stream_and_table(builder: StreamsBuilder) -> tuple[KStream, KTable]:
    return builder.stream("left"), builder.table("right")


def tables(builder: StreamsBuilder) -> tuple[KTable, KTable]:
    return builder.table("left"), builder.table("right")


def out(table: KTable) -> None:
    table.to_stream().to("out")


def not_b(key: str, value: str) -> bool:
    return not value.startswith("b")


def loud(value: str) -> str:
    return value + "!"


@ENTRIES.dsl("join_streams_inner", *SIDES)
def streams_inner(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.join(right, both, within=WINDOWS).to("out")


@ENTRIES.dsl("join_streams_left", *SIDES)
def streams_left(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.left_join(right, both, within=WINDOWS).to("out")


@ENTRIES.dsl("join_streams_outer", *SIDES)
def streams_outer(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.outer_join(right, both, within=WINDOWS).to("out")


@ENTRIES.dsl("join_streams_asymmetric_inner", *SIDES)
def streams_asymmetric_inner(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.join(right, both, within=ASYMMETRIC).to("out")


@ENTRIES.dsl("join_streams_asymmetric_outer", *SIDES)
def streams_asymmetric_outer(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.outer_join(right, both, within=ASYMMETRIC).to("out")


@ENTRIES.dsl("join_streams_no_grace", *SIDES)
def streams_no_grace(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.outer_join(right, both, within=JoinWindows(10, grace=0)).to("out")


@ENTRIES.dsl("join_streams_with_key", *SIDES)
def streams_with_key(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.left_join(right, everything, within=WINDOWS, with_key=True).to("out")


@ENTRIES.dsl("join_streams_self", "left")
def streams_self(builder: StreamsBuilder) -> None:
    left = builder.stream("left")
    left.join(left, both, within=WINDOWS).to("out")


@ENTRIES.dsl("join_streams_rekeyed", *SIDES)
def streams_rekeyed(builder: StreamsBuilder) -> None:
    # Nodes are numbered as they are added: the right stream is the first.
    swapped = builder.stream("right").map(lambda k, v: (v, k))
    builder.stream("left").select_key(by_value).left_join(swapped, both, within=WINDOWS).to("out")


@ENTRIES.dsl("join_streams_named", *SIDES)
def streams_named(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.outer_join(right, both, within=WINDOWS, name="joining", store="joined").to("out")


@ENTRIES.dsl("join_streams_in_memory", *SIDES)
def streams_in_memory(builder: StreamsBuilder) -> None:
    left, right = streams(builder)
    left.left_join(right, both, within=WINDOWS, in_memory=True).to("out")


@ENTRIES.dsl("join_stream_table_inner", *SIDES)
def stream_table_inner(builder: StreamsBuilder) -> None:
    left, right = stream_and_table(builder)
    left.join(right, both).to("out")


@ENTRIES.dsl("join_stream_table_left", *SIDES)
def stream_table_left(builder: StreamsBuilder) -> None:
    left, right = stream_and_table(builder)
    left.left_join(right, both).to("out")


@ENTRIES.dsl("join_stream_table_with_key", *SIDES)
def stream_table_with_key(builder: StreamsBuilder) -> None:
    left, right = stream_and_table(builder)
    left.left_join(right, everything, with_key=True).to("out")


@ENTRIES.dsl("join_stream_table_rekeyed", *SIDES)
def stream_table_rekeyed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").select_key(by_value)
    left.left_join(builder.table("right"), both, name="by-value").to("out")


@ENTRIES.dsl("join_stream_table_mapped", *SIDES)
def stream_table_mapped(builder: StreamsBuilder) -> None:
    left, right = stream_and_table(builder)
    left.left_join(right.filter(not_b).map_values(loud), both).to("out")


@ENTRIES.dsl("join_tables_inner", *SIDES)
def tables_inner(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(right, both))


@ENTRIES.dsl("join_tables_left", *SIDES)
def tables_left(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.left_join(right, both))


@ENTRIES.dsl("join_tables_outer", *SIDES)
def tables_outer(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.outer_join(right, both))


@ENTRIES.dsl("join_tables_materialized", *SIDES)
def tables_materialized(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.outer_join(right, both, "joined", name="joining", key=TEXT, value=TEXT))


@ENTRIES.dsl("join_tables_regrouped", *SIDES)
def tables_regrouped(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    left.left_join(right, both).group_by(by_letter).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("join_tables_mapped", *SIDES)
def tables_mapped(builder: StreamsBuilder) -> None:
    kept = builder.table("left").filter(not_b)
    out(kept.outer_join(builder.table("right").map_values(loud), both))


@ENTRIES.dsl("join_tables_three", *SIDES, "third")
def tables_three(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(right, both).outer_join(builder.table("third"), both))


@ENTRIES.dsl("join_tables_null_results", *SIDES)
def tables_null_results(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.left_join(right, lambda one, other: None if other is None else one + other))
