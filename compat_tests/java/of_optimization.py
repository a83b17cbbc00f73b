"""Topologies that `topology.optimization` makes others of, as src/OfOptimization.java has them."""

from __future__ import annotations

from compat_tests.java.of_joins import WINDOWS, both, not_b
from compat_tests.java.of_streams import LONG, append
from compat_tests.java.registry import Registry
from milestones.common.records import FixedKeyRecord, Record
from milestones.common.topology import FixedKeyProcessor, KStream, KTable, Processor, StreamsBuilder

ENTRIES = Registry()


def rekeyed(builder: StreamsBuilder, topic: str = "in") -> KStream:
    return builder.stream(topic).select_key(lambda _, value: value)


def counted(stream: KStream, topic: str) -> None:
    stream.group_by_key().count().to_stream().to(topic, value=LONG)


def reduced(stream: KStream, topic: str) -> None:
    stream.group_by_key().reduce(append).to_stream().to(topic)


def out(table: KTable, topic: str = "out") -> None:
    table.to_stream().to(topic)


@ENTRIES.dsl("optimized_groups")
def groups(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder)
    counted(stream, "counts")
    reduced(stream, "reduced")
    out(stream.to_table(), "latest")
    stream.to("keys")


@ENTRIES.dsl("optimized_one_group")
def one_group(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by(lambda _, value: value).count("counts").to_stream().to("out", value=LONG)


@ENTRIES.dsl("optimized_named_groups")
def named_groups(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder)
    stream.group_by_key(name="first").count(name="counting").to_stream().to("counts", value=LONG)
    stream.group_by_key(name="second").reduce(append, "rows").to_stream().to("reduced")


@ENTRIES.dsl("optimized_filters_between")
def filters_between(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder)
    counted(stream.filter(lambda _, value: value != "b"), "counts")
    reduced(stream.peek(lambda _key, _value: None).filter_not(lambda _, value: value is None), "reduced")


@ENTRIES.dsl("optimized_values_changed_between")
def values_changed_between(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder)
    counted(stream.map_values(lambda value: value), "counts")
    reduced(stream, "reduced")


@ENTRIES.dsl("optimized_merge", "in", "other")
def merge(builder: StreamsBuilder) -> None:
    merged = rekeyed(builder).merge(rekeyed(builder, "other"))
    counted(merged, "counts")
    reduced(merged, "reduced")


@ENTRIES.dsl("optimized_merge_of_one_rekeyed", "in", "other")
def merge_of_one_rekeyed(builder: StreamsBuilder) -> None:
    merged = builder.stream("other").merge(rekeyed(builder))
    counted(merged, "counts")
    reduced(merged, "reduced")


@ENTRIES.dsl("optimized_process_between")
def process_between(builder: StreamsBuilder) -> None:
    class Swap(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_key(record.value).with_value(record.key))

    class Louder(FixedKeyProcessor):
        def process(self, record: FixedKeyRecord) -> None:
            self.context.forward(record.with_value(f"{record.value}!"))

    swapped = rekeyed(builder).process(Swap)
    counted(swapped, "counts")
    reduced(swapped, "reduced")
    reduced(rekeyed(builder, "in").process_values(Louder), "louder")


@ENTRIES.dsl("optimized_repartition_stays")
def repartition_stays(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder)
    counted(stream.repartition(name="mine"), "counts")
    reduced(stream, "reduced")


@ENTRIES.dsl("optimized_joins", "in", "right")
def joins(builder: StreamsBuilder) -> None:
    stream, table = rekeyed(builder), builder.table("right")
    stream.left_join(table, both).to("left")
    stream.join(table.filter(not_b), both).to("inner")
    counted(stream, "counts")


@ENTRIES.dsl("optimized_joined_streams", "in", "right")
def joined_streams(builder: StreamsBuilder) -> None:
    stream, other = rekeyed(builder), rekeyed(builder, "right")
    stream.join(other, both, within=WINDOWS).to("joined")
    counted(stream, "counts")
    counted(other, "others")


@ENTRIES.dsl("optimized_self_left")
def self_left(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.left_join(stream, both, within=WINDOWS.before(3).after(7)).to("out")


@ENTRIES.dsl("optimized_self_outer_named")
def self_outer_named(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.outer_join(stream, both, within=WINDOWS, name="joining", store="joined").to("out")


@ENTRIES.dsl("optimized_twin_sources")
def twin_sources(builder: StreamsBuilder) -> None:
    builder.stream("in").join(builder.stream("in"), both, within=WINDOWS).to("out")


@ENTRIES.dsl("optimized_self_rekeyed")
def self_rekeyed(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder)
    stream.join(stream, both, within=WINDOWS, name="joining").to("out")


@ENTRIES.dsl("optimized_self_of_two_branches")
def self_of_two_branches(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.join(stream.filter(lambda _, value: value != "b"), both, within=WINDOWS).to("out")


@ENTRIES.dsl("optimized_tables", "in", "other", "third")
def tables(builder: StreamsBuilder) -> None:
    one = builder.table("in", "rows").filter(not_b)
    out(one, "rows")
    out(one.join(builder.table("other"), both), "joined")
    builder.table("third", "kept", logging=False, in_memory=True).to_stream().to("third-out")
