"""The operators on streams, as src/OfStreams.java has them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any

from compat_tests.java.registry import Registry
from milestones.common import serdes
from milestones.common.topology import KGroupedStream, KStream, StreamsBuilder
from milestones.common.topology.nodes import SinkRecord
from milestones.common.topology.timestamps import SourceRecord

ENTRIES = Registry()
TEXT, LONG = serdes.STRING, serdes.LONG


def text(value: str | None) -> str:
    """As Java concatenates it."""
    return "null" if value is None else value


def append(aggregate: str, value: str | None) -> str | None:
    """An aggregate that grows, and stops growing before it is long; Java counts in UTF-16. A windowed one gets values
    that are None, too."""
    return value if len(aggregate.encode("utf-16-le")) // 2 > 12 else f"{aggregate}+{text(value)}"


def initial() -> str:
    return "0"


def aggregate(key: str, value: str | None, so_far: str) -> str | None:
    """`append`; a value "del" deletes the row."""
    return None if value == "del" else append(so_far, key + text(value))


def words(value: str | None) -> list[str]:
    return [] if value is None else value.split(" ")


def nothing(key: Any, value: Any) -> None:
    pass


def pair(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def by_value(key: Any, value: Any) -> Any:
    return value


@ENTRIES.dsl("filter")
def filter_(builder: StreamsBuilder) -> None:
    builder.stream("in").filter(lambda k, v: v is not None).filter_not(lambda k, v: v.startswith("b")).to("out")


@ENTRIES.dsl("map")
def map_(builder: StreamsBuilder) -> None:
    builder.stream("in").map(lambda k, v: (v, k)).to("out")


@ENTRIES.dsl("map_values")
def map_values(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.map_values(lambda v: "none" if v is None else v + "!" if v else None).to("out")
    stream.map_values(lambda k, v: f"{text(k)}:{text(v)}", with_key=True).to("with-key")


@ENTRIES.dsl("flat_map")
def flat_map(builder: StreamsBuilder) -> None:
    builder.stream("in").flat_map(lambda k, v: [(word, k) for word in words(v)]).to("out")


@ENTRIES.dsl("flat_map_values")
def flat_map_values(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.flat_map_values(words).to("out")
    stream.flat_map_values(lambda k, v: [k, v, None], with_key=True).to("with-key")


@ENTRIES.dsl("select_key")
def select_key(builder: StreamsBuilder) -> None:
    builder.stream("in").select_key(by_value).to("out")


@ENTRIES.dsl("peek_for_each_and_print")
def peek_for_each_and_print(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").peek(nothing)
    stream.for_each(nothing)
    stream.print(file=io.StringIO())
    stream.to("out")


@ENTRIES.dsl("split")
def split(builder: StreamsBuilder) -> None:
    branches = (
        builder.stream("in")
        .split(name="split-")
        .branch(lambda k, v: v is None, name="none")
        .branch(lambda k, v: v.startswith("a"))
        .branch(lambda k, v: v.startswith("b"), name="chained", chain=lambda stream: stream.to("b"))
        .default_branch(name="rest")
    )
    branches["split-none"].to("none")
    branches["split-2"].merge(branches["split-rest"]).to("a-and-rest")
    no_key = builder.stream("in").split().branch(lambda k, v: k is None, chain=lambda stream: stream.to("no-key"))
    no_key.no_default_branch()


@ENTRIES.dsl("merge", "left", "right")
def merge(builder: StreamsBuilder) -> None:
    left, right = builder.stream("left"), builder.stream("right")
    left.merge(right.map_values(lambda v: text(v) + "'")).to("out")
    left.merge(right).group_by_key().count().to_stream().to("counts", value=LONG)


@ENTRIES.dsl("repartition")
def repartition(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    (
        stream.select_key(by_value)
        .repartition(name="by-value", partitions=1)
        .group_by_key()
        .count()
        .to_stream()
        .to("counts", value=LONG)
    )
    stream.repartition().to("out")


@ENTRIES.dsl("dynamic_topic")
def dynamic_topic(builder: StreamsBuilder) -> None:
    def choose(key: str | None, value: str | None, record: SinkRecord) -> str:
        kind = "marked" if any(name == "a" for name, _ in record.headers) else "plain"
        return f"none-{record.topic}" if value is None else f"{kind}-{record.timestamp % 2}"

    builder.stream("in").to(choose)


@ENTRIES.dsl("partitioner")
def partitioner(builder: StreamsBuilder) -> None:
    def chosen(topic: str, key: str | None, value: str | None, partitions: int) -> Iterable[int]:
        return [] if key == "b" else [partitions - 1]

    stream = builder.stream("in")
    stream.to("chosen", key=TEXT, value=TEXT, partitioner=chosen)
    stream.to("left", partitioner=lambda topic, key, value, partitions: None)
    stream.repartition(name="again", partitioner=chosen).to("again")


@ENTRIES.dsl("several_sources", "left", "right", "in-1", "in-22", "twice")
def several_sources(builder: StreamsBuilder) -> None:
    builder.stream(["left", "right"]).map_values(lambda v: "1" + text(v)).to("out")
    builder.stream(re.compile("in-[0-9]+")).map_values(lambda v: "2" + text(v)).to("out")
    builder.stream("twice").to("first")
    builder.stream("twice").group_by_key().count().to_stream().to("second", value=LONG)


@ENTRIES.dsl("timestamp_extractor")
def timestamp_extractor(builder: StreamsBuilder) -> None:
    def later(record: SourceRecord, partition_time: int) -> int:
        return -1 if record.value is None else max(record.timestamp, partition_time) + 7

    stream = builder.stream("in", timestamp_extractor=later)
    stream.to("out")
    stream.group_by_key().reduce(append).to_stream().to("reduced")


@ENTRIES.dsl("group_by_key_count")
def group_by_key_count(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("group_by_key_reduce")
def group_by_key_reduce(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().reduce(append).to_stream().to("out")


def aggregated(grouped: KGroupedStream) -> None:
    grouped.aggregate(initial, aggregate).to_stream().to("out")


@ENTRIES.dsl("group_by_key_aggregate")
def group_by_key_aggregate(builder: StreamsBuilder) -> None:
    aggregated(builder.stream("in").group_by_key())


@ENTRIES.dsl("group_by_count")
def group_by_count(builder: StreamsBuilder) -> None:
    words_of: KStream = builder.stream("in").flat_map_values(words)
    words_of.group_by(by_value).count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("group_by_reduce")
def group_by_reduce(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by(lambda k, v: v[:1] if v else None)
    grouped.reduce(append, "reduced").to_stream().to("out")


@ENTRIES.dsl("group_by_aggregate")
def group_by_aggregate(builder: StreamsBuilder) -> None:
    aggregated(builder.stream("in").group_by(by_value))


@ENTRIES.dsl("group_by_key_named")
def group_by_key_named(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").select_key(by_value).group_by_key(name="shared")
    grouped.count(name="counting").to_stream().to("counts", value=LONG)
    grouped.reduce(append).to_stream(name="updates").to("reduced", name="sink")


@ENTRIES.dsl("materialized")
def materialized(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by_key()
    grouped.count(key=TEXT, value=LONG).to_stream().to("counts", value=LONG)
    grouped.reduce(append, "unlogged", key=TEXT, value=TEXT, logging=False).to_stream().to("unlogged")
    grouped.reduce(append, "uncached", key=TEXT, value=TEXT, caching=False).to_stream().to("uncached")
    in_memory = grouped.aggregate(initial, aggregate, "in-memory", key=TEXT, value=TEXT, in_memory=True)
    in_memory.to_stream().to("in-memory")


@ENTRIES.dsl("to_table")
def to_table(builder: StreamsBuilder) -> None:
    builder.stream("in").to_table().to_stream().to("out")


@ENTRIES.dsl("to_table_named")
def to_table_named(builder: StreamsBuilder) -> None:
    builder.stream("in").to_table("rows").to_stream().to("out")


@ENTRIES.dsl("to_table_rekeyed")
def to_table_rekeyed(builder: StreamsBuilder) -> None:
    builder.stream("in").select_key(by_value).to_table().to_stream().to("out")


@ENTRIES.dsl("named_operators")
def named_operators(builder: StreamsBuilder) -> None:
    stream = (
        builder.stream("in", name="source")
        .filter(lambda k, v: True, name="filter")
        .map_values(lambda v: v, name="map-values")
        .map(pair, name="map")
        .flat_map_values(lambda v: [v, v], name="flat-map-values")
        .flat_map(lambda k, v: [(k, v)], name="flat-map")
        .select_key(by_value, name="select-key")
        .peek(nothing, name="peek")
    )
    stream.merge(stream.filter_not(lambda k, v: v is None), name="merge").to("out", name="sink")
    stream.to_table(name="to-table").to_stream(name="to-stream").to("rows")
