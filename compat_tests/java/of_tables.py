"""The operators on tables, as src/OfTables.java has them."""

from __future__ import annotations

from compat_tests.java.cases import WITH_KEYS
from compat_tests.java.of_processors import store
from compat_tests.java.of_streams import LONG, TEXT, aggregate, append, initial, text
from compat_tests.java.registry import Registry
from milestones.common.topology import KGroupedTable, KTable, StreamsBuilder, ValueTransformer

ENTRIES = Registry()


def starts_with_a(key: str, value: str) -> bool:
    return value.startswith("a")


def by_letter(key: str, value: str) -> tuple[str | None, str]:
    """Rows by the first letter of their value; an empty value belongs to no group."""
    return value[:1] or None, key + value


def grouped(builder: StreamsBuilder) -> KGroupedTable:
    return builder.table("in").group_by(by_letter)


def subtract(so_far: str, value: str) -> str:
    return "" if len(so_far.encode("utf-16-le")) // 2 > 12 else f"{so_far}-{value}"


def reduced(rows: KGroupedTable) -> KTable:
    return rows.reduce(append, subtract)


@ENTRIES.dsl("table")
def table(builder: StreamsBuilder) -> None:
    builder.table("in").to_stream().to("out")


@ENTRIES.dsl("table_named")
def table_named(builder: StreamsBuilder) -> None:
    builder.table("in", "rows", key=TEXT, value=TEXT).to_stream().to("out")


@ENTRIES.dsl("table_filter")
def table_filter(builder: StreamsBuilder) -> None:
    kept = builder.table("in").filter(starts_with_a)
    kept.to_stream().to("kept")
    kept.filter_not(lambda k, v: v.endswith("b")).to_stream().to("not-b")


@ENTRIES.dsl("table_filter_materialized", "in", "other")
def table_filter_materialized(builder: StreamsBuilder) -> None:
    builder.table("in").filter(starts_with_a, "kept").to_stream().to("kept")
    (
        builder.table("other", "rows", key=TEXT, value=TEXT)
        .filter_not(starts_with_a, key=TEXT, value=TEXT)
        .filter(lambda k, v: not v.endswith("b"), "not-b", key=TEXT, value=TEXT)
        .to_stream()
        .to("not-b")
    )


@ENTRIES.dsl("table_map_values", "in", "other")
def table_map_values(builder: StreamsBuilder) -> None:
    builder.table("in").map_values(lambda v: v + "!" if v else None).to_stream().to("out")
    builder.table("other").map_values(lambda k, v: k + v, with_key=True).to_stream().to("with-key")


@ENTRIES.dsl("table_map_values_materialized", "in", "other")
def table_map_values_materialized(builder: StreamsBuilder) -> None:
    builder.table("in").map_values(lambda v: v + "!" if v else None, "mapped").to_stream().to("out")
    (
        builder.table("other")
        .map_values(lambda k, v: k + v, "with-key", with_key=True, key=TEXT, value=TEXT)
        .group_by(by_letter)
        .count()
        .to_stream()
        .to("counts", value=LONG)
    )


@ENTRIES.dsl("table_to_stream_mapper")
def table_to_stream_mapper(builder: StreamsBuilder) -> None:
    builder.table("in").to_stream(lambda k, v: f"{k}/{'null' if v is None else v}").to("out")


@ENTRIES.dsl("table_group_by_count")
def table_group_by_count(builder: StreamsBuilder) -> None:
    grouped(builder).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("table_group_by_reduce")
def table_group_by_reduce(builder: StreamsBuilder) -> None:
    reduced(grouped(builder)).to_stream().to("out")


@ENTRIES.dsl("table_group_by_aggregate")
def table_group_by_aggregate(builder: StreamsBuilder) -> None:
    (
        grouped(builder)
        .aggregate(initial, aggregate, lambda k, v, a: None if v.endswith("x") else subtract(a, v))
        .to_stream()
        .to("out")
    )


@ENTRIES.dsl("table_group_by_filtered")
def table_group_by_filtered(builder: StreamsBuilder) -> None:
    rows = (
        builder.table("in")
        .filter(lambda k, v: not v.endswith("x"))
        .map_values(lambda v: v + ".")
        .group_by(lambda k, v: None if v.startswith("b") else by_letter(k, v))
    )
    rows.count().to_stream().to("counts", value=LONG)
    reduced(rows).to_stream().to("reduced")


@ENTRIES.dsl("table_group_by_named")
def table_group_by_named(builder: StreamsBuilder) -> None:
    rows = (
        builder.table("in", name="users")
        .filter(starts_with_a, name="kept")
        .map_values(lambda v: v + "!", name="loud")
        .group_by(by_letter, name="shared")
    )
    rows.count("counts", name="counting").to_stream().to("counts", value=LONG)
    reduced(rows).to_stream().to("reduced")


@ENTRIES.dsl("counts_regrouped")
def counts_regrouped(builder: StreamsBuilder) -> None:
    (
        builder.stream("in")
        .group_by_key()
        .count()
        .group_by(lambda k, v: (f"n{v % 2}", v), key=TEXT, value=LONG)
        .reduce(lambda a, v: a + v, lambda a, v: a - v)
        .to_stream()
        .to("out", value=LONG)
    )


@ENTRIES.dsl("counts_filtered")
def counts_filtered(builder: StreamsBuilder) -> None:
    counts = builder.stream("in").group_by_key().count()
    counts.filter(lambda k, v: v % 2 == 0).to_stream().to("even", value=LONG)
    counts.map_values(lambda v: None if v % 3 == 0 else f"n{v}").to_stream().to("texts")
    labels = counts.map_values(lambda v: f"n{v}", "labels", key=TEXT, value=TEXT)
    labels.filter_not(lambda k, v: v.endswith("2")).to_stream().to("labels")


@ENTRIES.dsl("reduce_that_deletes")
def reduce_that_deletes(builder: StreamsBuilder) -> None:
    rows = builder.stream("in").group_by_key().reduce(lambda a, v: None if v == "del" else append(a, v))
    rows.to_stream().to("reduced")
    rows.group_by(by_letter).count().to_stream().to("counts", value=LONG)


class Numbered(ValueTransformer):
    """Values with the row's time, by turns with the number of calls so far; an empty value deletes."""

    calls = 0

    def transform(self, key: str, value: str | None) -> str | None:
        self.calls += 1
        return None if value == "" else f"{self.calls}:{text(value)}@{self.context.timestamp}"


class Followed(ValueTransformer):
    """Values after what the store has of the key so far."""

    def transform(self, key: str, value: str | None) -> str | None:
        seen = self.context.get_state_store("seen")
        before = seen.get(key)
        seen.put(key, value)
        return None if value is None else f"{text(before)}>{value}"


@ENTRIES.dsl("table_transform_values")
def table_transform_values(builder: StreamsBuilder) -> None:
    builder.table("in").transform_values(Numbered).to_stream().to("out")


@ENTRIES.dsl("table_transform_values_materialized", "in", "other")
def table_transform_values_materialized(builder: StreamsBuilder) -> None:
    kept = builder.table("in").transform_values(Numbered, store="kept", name="numbering", key=TEXT, value=TEXT)
    kept.to_stream().to("out")
    kept.group_by(by_letter).count().to_stream().to("counts", value=LONG)
    builder.table("other").transform_values(Numbered, value=TEXT, logging=False).to_stream().to("unkept")


@ENTRIES.dsl("table_transform_values_grouped")
def table_transform_values_grouped(builder: StreamsBuilder) -> None:
    numbered = builder.table("in").transform_values(Numbered).filter(lambda _, value: not value.startswith("3"))
    reduced(numbered.group_by(by_letter)).to_stream().to("out")


@ENTRIES.dsl("table_transform_values_with_store", "in", "other")
def table_transform_values_with_store(builder: StreamsBuilder) -> None:
    builder.add_state_store(store("seen"))
    builder.table("in").transform_values(Followed, "seen").to_stream().to("out")
    builder.table("other").transform_values(Followed, "seen", store="kept", in_memory=True).to_stream().to("kept")


@ENTRIES.dsl("table_transform_values_joined", "in", "other", "stream")
def table_transform_values_joined(builder: StreamsBuilder) -> None:
    numbered, other = builder.table("in").transform_values(Numbered), builder.table("other")
    numbered.left_join(other, lambda one, two: f"{text(one)}&{text(two)}").to_stream().to("tables")
    builder.stream("stream").left_join(numbered, lambda one, two: f"{text(one)}&{text(two)}").to("streams")


@ENTRIES.dsl("table_transform_values_versioned", "in", "stream", records=WITH_KEYS)
def table_transform_values_versioned(builder: StreamsBuilder) -> None:
    numbered = builder.table("in", "versions", history=120_000).transform_values(Numbered)
    numbered.to_stream().to("out")
    numbered.group_by(by_letter).count().to_stream().to("counts", value=LONG)
    grace = builder.stream("stream").left_join(numbered, lambda one, two: f"{text(one)}&{text(two)}", grace=12)
    grace.to("joined")
