"""Joins of tables by foreign key, as src/OfTableJoins.java and src/OfForeignKeys.java have them. The topics are `left`
and `right`; a left row refers to the row of the first letter of its value."""

from __future__ import annotations

from collections.abc import Iterable

from compat_tests.java.of_joins import SIDES, both, loud, not_b, out, tables
from compat_tests.java.of_streams import LONG, TEXT, by_value
from compat_tests.java.of_tables import by_letter
from compat_tests.java.registry import Registry
from milestones.common.topology import KTable, StreamsBuilder

ENTRIES = Registry()


def versioned(builder: StreamsBuilder, topic: str) -> KTable:
    return builder.table(topic, f"versions-of-{topic}", history=120_000)


def of_letter(_key: str, value: str) -> str | None:
    return value[:1] or None


def unless_x(_key: str, value: str) -> str | None:
    return None if value.startswith("x") else value[:1] or None


def of_key_or_letter(key: str, value: str) -> str:
    return value[:1] or key


def first_partition(_topic: str, _key: str, _value: None, _partitions: int) -> Iterable[int]:
    return {0}


def by_default(_topic: str, _key: str, _value: None, _partitions: int) -> None:
    return None


@ENTRIES.dsl("foreign_key_inner", *SIDES)
def inner(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(right, both, foreign_key=of_letter))


@ENTRIES.dsl("foreign_key_left", *SIDES)
def outer_left(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.left_join(right, both, foreign_key=of_letter))


@ENTRIES.dsl("foreign_key_by_key_and_value", *SIDES)
def by_key_and_value(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(right, both, foreign_key=of_key_or_letter))


@ENTRIES.dsl("foreign_key_materialized", *SIDES)
def materialized(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.left_join(right, both, "linked", foreign_key=of_letter, name="linking", key=TEXT, value=TEXT))


@ENTRIES.dsl("foreign_key_regrouped", *SIDES)
def regrouped(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    left.join(right, both, foreign_key=of_letter).group_by(by_letter).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("foreign_key_null_inner", *SIDES)
def null_inner(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(right, both, foreign_key=unless_x))


@ENTRIES.dsl("foreign_key_null_left", *SIDES)
def null_left(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.left_join(right, both, foreign_key=unless_x))


@ENTRIES.dsl("foreign_key_null_results", *SIDES)
def null_results(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    joined = left.left_join(right, lambda one, other: None if other is None else one + other, foreign_key=of_letter)
    out(joined)


@ENTRIES.dsl("foreign_key_named", *SIDES)
def named(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(right, both, foreign_key=of_letter, name="linking"))


@ENTRIES.dsl("foreign_key_uncached", *SIDES)
def uncached(builder: StreamsBuilder) -> None:
    left, right = builder.table("left", "lefts", caching=False), builder.table("right", "rights", caching=False)
    out(left.join(right, both, "linked", foreign_key=of_letter, value=TEXT, caching=False))


@ENTRIES.dsl("foreign_key_in_memory", *SIDES)
def in_memory(builder: StreamsBuilder) -> None:
    left = builder.table("left", "left-rows", in_memory=True)
    right = builder.table("right", "right-rows", in_memory=True)
    out(left.left_join(right, both, "linked", foreign_key=of_letter, value=TEXT, in_memory=True, logging=False))


@ENTRIES.dsl("foreign_key_partitioned", *SIDES)
def partitioned(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    out(left.join(
        right, both, foreign_key=unless_x, name="by", partitioner=first_partition, other_partitioner=by_default
    ))  # fmt: skip


@ENTRIES.dsl("foreign_key_mapped", *SIDES)
def mapped(builder: StreamsBuilder) -> None:
    kept = builder.table("left").filter(not_b).map_values(loud)
    out(kept.left_join(builder.table("right").map_values(loud).filter(not_b), both, foreign_key=of_letter))


@ENTRIES.dsl("foreign_key_kept", *SIDES)
def kept_rows(builder: StreamsBuilder) -> None:
    kept = builder.table("left").map_values(loud, "loud", value=TEXT)
    out(kept.join(builder.table("right").filter(not_b, "not-b"), both, foreign_key=of_letter))


@ENTRIES.dsl("foreign_key_self", "left")
def of_itself(builder: StreamsBuilder) -> None:
    left = builder.table("left")
    out(left.left_join(left, both, foreign_key=of_letter))


@ENTRIES.dsl("foreign_key_twice", *SIDES, "third")
def twice(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    third = builder.table("third")
    joined = left.join(right, both, foreign_key=of_letter)
    out(joined.left_join(third, both, foreign_key=lambda _, value: value[-1:]))


@ENTRIES.dsl("foreign_key_of_both", *SIDES)
def of_both(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    left.join(right, both, foreign_key=of_letter).to_stream().to("out")
    right.left_join(left, both, foreign_key=of_letter).to_stream().to("other")


@ENTRIES.dsl("foreign_key_joined_further", *SIDES, "third")
def joined_further(builder: StreamsBuilder) -> None:
    left, right = tables(builder)
    joined = left.left_join(right, both, foreign_key=of_letter)
    out(joined.filter(not_b).left_join(builder.table("third"), both))


@ENTRIES.dsl("foreign_key_rekeyed", *SIDES)
def rekeyed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").select_key(by_value).to_table()
    out(left.left_join(builder.table("right"), both, foreign_key=of_key_or_letter))


@ENTRIES.dsl("foreign_key_of_counts", *SIDES)
def of_counts(builder: StreamsBuilder) -> None:
    counts = builder.stream("left").group_by_key().count("counts")
    joined = counts.join(builder.table("right"), lambda one, other: f"{one}&{other}", foreign_key=lambda key, _: key,
                         value=TEXT)  # fmt: skip
    out(joined)


@ENTRIES.dsl("foreign_key_to_counts", *SIDES)
def to_counts(builder: StreamsBuilder) -> None:
    left, counts = builder.table("left"), builder.stream("right").group_by(lambda _, value: value).count("counts")
    out(left.left_join(counts, lambda one, other: f"{one}&{'null' if other is None else other}",
                       foreign_key=of_letter, value=TEXT))  # fmt: skip


@ENTRIES.dsl("foreign_key_versioned", *SIDES)
def of_versions(builder: StreamsBuilder) -> None:
    left, right = versioned(builder, "left"), versioned(builder, "right")
    out(left.left_join(right, both, foreign_key=of_letter))


@ENTRIES.dsl("foreign_key_versioned_mapped", *SIDES)
def of_versions_mapped(builder: StreamsBuilder) -> None:
    left, right = versioned(builder, "left").map_values(loud), versioned(builder, "right").filter(not_b)
    out(left.join(right, both, foreign_key=of_letter))
