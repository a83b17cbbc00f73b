"""Versioned tables, as src/OfVersioned.java, src/OfTableJoins.java and src/OfStreamJoins.java have them."""

from __future__ import annotations

from typing import TypedDict

from compat_tests.java.cases import WITH_KEYS
from compat_tests.java.of_joins import SIDES, both, loud, not_b, out
from compat_tests.java.of_streams import LONG, TEXT, aggregate, append, by_value, initial
from compat_tests.java.of_tables import by_letter, starts_with_a, subtract
from compat_tests.java.registry import Registry
from milestones.common.serdes import Serde
from milestones.common.topology import KTable, StreamsBuilder

ENTRIES = Registry()
HISTORY_MS = 120_000


class Kept(TypedDict):
    history: int
    key: Serde[str]
    value: Serde[str]


KEPT: Kept = {"history": HISTORY_MS, "key": TEXT, "value": TEXT}


def versioned(builder: StreamsBuilder, topic: str) -> KTable:
    return builder.table(topic, f"versions-of-{topic}", history=HISTORY_MS)


def counted(table: KTable, topic: str = "out") -> None:
    table.group_by(by_letter).count().to_stream().to(topic, value=LONG)


@ENTRIES.dsl("versioned_table")
def table(builder: StreamsBuilder) -> None:
    out(versioned(builder, "in"))


@ENTRIES.dsl("versioned_table_group_by")
def table_group_by(builder: StreamsBuilder) -> None:
    counted(versioned(builder, "in"))


@ENTRIES.dsl("versioned_table_filter")
def table_filter(builder: StreamsBuilder) -> None:
    out(versioned(builder, "in").filter(starts_with_a))


@ENTRIES.dsl("versioned_table_short_history")
def table_short_history(builder: StreamsBuilder) -> None:
    out(builder.table("in", "short", history=20, segment=10, in_memory=True))


@ENTRIES.dsl("versioned_count")
def count(builder: StreamsBuilder) -> None:
    counts = builder.stream("in").group_by_key().count("versions", history=HISTORY_MS, key=TEXT)
    counts.to_stream().to("out", value=LONG)


@ENTRIES.dsl("versioned_to_table")
def to_table(builder: StreamsBuilder) -> None:
    out(builder.stream("in").to_table("versions", history=HISTORY_MS))


@ENTRIES.dsl("versioned_chain_grouped")
def chain_grouped(builder: StreamsBuilder) -> None:
    counted(versioned(builder, "in").filter(not_b).map_values(loud))


@ENTRIES.dsl("versioned_filter_chosen")
def filter_chosen(builder: StreamsBuilder) -> None:
    counted(versioned(builder, "in").filter(not_b, key=TEXT, value=TEXT))


@ENTRIES.dsl("versioned_filter_kept")
def filter_kept(builder: StreamsBuilder) -> None:
    rows = versioned(builder, "in")
    counted(rows.filter(not_b, "kept", **KEPT), "counts")
    out(rows.filter(not_b, "plain", key=TEXT, value=TEXT))


@ENTRIES.dsl("versioned_map_values_kept", "in", "other")
def map_values_kept(builder: StreamsBuilder) -> None:
    counted(builder.table("in").map_values(loud, "loud", **KEPT).filter(not_b), "counts")
    plain = versioned(builder, "other").map_values(lambda v: v + "?" if v else None, "plain", key=TEXT, value=TEXT)
    out(plain)


@ENTRIES.dsl("versioned_join_mapped", *SIDES)
def join_mapped(builder: StreamsBuilder) -> None:
    left = versioned(builder, "left").map_values(loud)
    out(left.outer_join(builder.table("right"), both))


@ENTRIES.dsl("versioned_join_kept", *SIDES)
def join_kept(builder: StreamsBuilder) -> None:
    left, right = versioned(builder, "left"), versioned(builder, "right")
    counted(left.left_join(right, both, "joined", **KEPT))


@ENTRIES.dsl("versioned_join_unkept_grouped", *SIDES)
def join_unkept_grouped(builder: StreamsBuilder) -> None:
    left, right = versioned(builder, "left"), versioned(builder, "right")
    counted(left.join(right, both))


@ENTRIES.dsl("versioned_reduce")
def reduce(builder: StreamsBuilder) -> None:
    def append_or_delete(so_far: str, value: str) -> str | None:
        return None if value == "del" else append(so_far, value)

    out(builder.stream("in").group_by_key().reduce(append_or_delete, "reduced", **KEPT))


@ENTRIES.dsl("versioned_aggregate")
def aggregate_versions(builder: StreamsBuilder) -> None:
    out(builder.stream("in").group_by_key().aggregate(initial, aggregate, "aggregated", **KEPT))


@ENTRIES.dsl("versioned_grouped_table")
def grouped_table(builder: StreamsBuilder) -> None:
    out(builder.table("in").group_by(by_letter).reduce(append, subtract, "reduced", **KEPT))


@ENTRIES.dsl("join_tables_versioned_inner", *SIDES)
def join_inner(builder: StreamsBuilder) -> None:
    left, right = versioned(builder, "left"), versioned(builder, "right")
    out(left.join(right, both))


@ENTRIES.dsl("join_tables_versioned_outer", *SIDES)
def join_outer(builder: StreamsBuilder) -> None:
    left, right = versioned(builder, "left"), versioned(builder, "right")
    out(left.outer_join(right, both))


def right(builder: StreamsBuilder) -> KTable:
    return builder.table("right", "versions", history=HISTORY_MS)


@ENTRIES.dsl("join_stream_versioned_table_inner", *SIDES)
def stream_inner(builder: StreamsBuilder) -> None:
    builder.stream("left").join(right(builder), both).to("out")


@ENTRIES.dsl("join_stream_versioned_table_left", *SIDES)
def stream_left(builder: StreamsBuilder) -> None:
    builder.stream("left").left_join(right(builder), both).to("out")


@ENTRIES.dsl("join_stream_versioned_table_mapped", *SIDES)
def stream_mapped(builder: StreamsBuilder) -> None:
    stream = builder.stream("left")
    stream.left_join(versioned(builder, "right").filter(not_b).map_values(loud), both).to("out")


# A left join fails in Java at a record without a key, which its buffer doesn't take: see declared.py.


@ENTRIES.dsl("join_stream_versioned_table_grace_inner", *SIDES)
def grace_inner(builder: StreamsBuilder) -> None:
    builder.stream("left").join(right(builder), both, grace=5, key=TEXT, value=TEXT).to("out")


@ENTRIES.dsl("join_stream_versioned_table_grace_left", *SIDES, records=WITH_KEYS)
def grace_left(builder: StreamsBuilder) -> None:
    builder.stream("left").left_join(right(builder), both, grace=5, key=TEXT, value=TEXT).to("out")


@ENTRIES.dsl("join_stream_grace_named", *SIDES)
def grace_named(builder: StreamsBuilder) -> None:
    stream = builder.stream("left")
    stream.join(versioned(builder, "right"), both, name="waiting", key=TEXT, grace=12).to("out")


@ENTRIES.dsl("join_stream_grace_rekeyed", *SIDES)
def grace_rekeyed(builder: StreamsBuilder) -> None:
    stream = builder.stream("left").select_key(by_value)
    table = versioned(builder, "right").filter(not_b).map_values(loud)
    joined = stream.join(table, both, grace=12, key=TEXT, value=TEXT)
    joined.group_by_key().count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("join_stream_grace_none", *SIDES, records=WITH_KEYS)
def grace_none(builder: StreamsBuilder) -> None:
    stream = builder.stream("left")
    stream.left_join(versioned(builder, "right"), both, grace=0, key=TEXT, value=TEXT).to("out")


@ENTRIES.dsl("join_stream_grace_long", *SIDES)
def grace_long(builder: StreamsBuilder) -> None:
    stream = builder.stream("left")
    stream.join(versioned(builder, "right"), both, grace=HISTORY_MS, key=TEXT, value=TEXT).to("out")
