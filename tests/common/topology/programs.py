"""The topologies of reference/Describe.java, in Python, and those of the other reference programs."""

from __future__ import annotations

import re
from collections.abc import Callable

from milestones.common import serdes
from milestones.common.records import Record
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import (
    FixedKeyProcessor,
    FixedKeyRecord,
    JoinWindows,
    Processor,
    StreamsBuilder,
    Topology,
)
from tests.common.topology import table_join_programs


class Forwarding(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


class ForwardingValues(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord) -> None:
        self.context.forward(record)


def pair(key: object, value: object) -> tuple[object, object]:
    return key, value


def always(key: object, value: object) -> bool:
    return True


def store(name: str) -> StoreSpec:
    return StoreSpec(name, persistent=False, key_serde=serdes.STRING, value_serde=serdes.STRING)


def word_count() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.STRING)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word, key=serdes.STRING)
        .count("counts")
        .to_stream()
        .to("word-counts", value=serdes.LONG)
    )
    return builder.build()


def repartition_aggregations_split_merge() -> Topology:
    builder = StreamsBuilder()
    source = builder.stream("input")
    grouped = (
        source.filter(lambda key, value: value is not None)
        .select_key(lambda key, value: value)
        .repartition(name="by-value", partitions=3)
        .group_by_key()
    )
    counts = grouped.count().to_stream()
    longest = grouped.reduce(max).to_stream()
    counts.map_values(str).merge(longest).to("output")
    branches = (
        source.split(name="split-")
        .branch(lambda key, value: value.startswith("a"), name="a")
        .branch(lambda key, value: value.startswith("b"))
        .default_branch(name="rest")
    )
    branches["split-a"].merge(branches["split-rest"]).peek(pair).to("a-and-rest")
    branches["split-2"].map(lambda key, value: (value, key)).group_by_key().count().to_stream().to("b")
    (
        source.split()
        .branch(lambda key, value: key is None, chain=lambda stream: stream.to("null-keys"))
        .branch(always, chain=lambda stream: stream.filter_not(lambda key, value: value is None))
        .no_default_branch()
    )
    return builder.build()


def processor_api() -> Topology:
    topology = Topology()
    topology.add_source("orders-source", "orders")
    topology.add_source("payments-source", "payments", "refunds")
    topology.add_source("clicks-source", re.compile("clicks-.*"))
    topology.add_processor("join", Forwarding, "orders-source", "payments-source")
    topology.add_processor("audit", Forwarding, "join")
    topology.add_processor("clicks", Forwarding, "clicks-source")
    topology.add_state_store(store("open-orders"), "join")
    topology.add_state_store(store("totals"), "join", "audit")
    topology.add_sink("paid-sink", "paid", "join")
    topology.add_sink("failed-sink", "failed", "join", "audit")
    topology.add_sink("clicks-sink", "clicks", "clicks")
    return topology


def table_group_by() -> Topology:
    builder = StreamsBuilder()
    by_city = (
        builder.table("users")
        .filter(lambda user, city: city is not None)
        .map_values(str.upper)
        .group_by(lambda user, city: (city, user))
    )
    by_city.count("users-per-city").to_stream().to("users-per-city")
    by_city.reduce(lambda a, b: a + b, lambda a, b: a).to_stream().to("users-in-city")
    sizes = by_city.aggregate(int, lambda k, v, total: total + 1, lambda k, v, total: total - 1)
    sizes.group_by(lambda city, count: (count, city)).count().to_stream().to("cities-per-size")
    builder.stream("clicks").to("clicks-copy")
    return builder.build()


def names() -> Topology:
    builder = StreamsBuilder()
    mapped = (
        builder.stream("input", name="in")
        .filter(always, name="filter")
        .filter_not(always)
        .map(pair, name="map")
        .map_values(str, name="map-values")
        .flat_map(lambda key, value: [(key, value)])
        .flat_map_values(list, name="flat-map-values")
        .select_key(lambda key, value: key, name="select-key")
        .peek(pair, name="peek")
    )
    mapped.for_each(pair, name="for-each")
    mapped.for_each(pair)
    mapped.print()
    grouped = mapped.group_by_key(name="grouped")
    grouped.count(name="count")
    grouped.aggregate(str, lambda key, value, aggregate: aggregate, "aggregated", name="aggregate")
    reduced = mapped.group_by(lambda key, value: value, name="by-value").reduce(lambda a, b: b)
    reduced.to_stream(name="to-stream").to("output", name="out")
    (
        builder.table("table", name="users")
        .filter(always, name="table-filter")
        .map_values(str, name="table-map-values")
        .group_by(pair, name="table-group")
        .count("table-counts", name="table-count")
    )
    return builder.build()


def materialized() -> Topology:
    builder = StreamsBuilder()
    text = serdes.STRING
    (
        builder.table("named", "named-store")
        .filter(always, "filtered")
        .map_values(str, "mapped")
        .to_stream(lambda key, value: value)
        .to("named-output")
    )
    (
        builder.table("unnamed", key=text, value=text)
        .filter(always, key=text, value=text)
        .filter_not(always)
        .map_values(str, key=text, value=text)
        .to_stream()
        .to("unnamed-output")
    )
    stream = builder.stream("stream")
    stream.to_table().to_stream().to("table-output")
    stream.select_key(lambda key, value: value).to_table("table-store", name="to-table")
    stream.map(lambda key, value: (value, key)).to_table().group_by(pair).count().to_stream().to("by-key")
    stream.group_by_key().count(key=text, value=serdes.LONG).to_stream().to("counts")
    stream.group_by_key().reduce(lambda a, b: b, key=text, value=text)
    stream.repartition().to("repartitioned")
    return builder.build()


def sources() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(store("shared"))
    many = builder.stream(["zeta", "alpha", "gamma-7", "b", "orders", "x1"])
    one = builder.stream("one")
    again = builder.stream("one")
    pattern = builder.stream(re.compile("p-[0-9]+"))
    many.process(Forwarding, "shared").to("processed")
    one.process_values(ForwardingValues, "shared", name="values").group_by_key().count()
    again.process(Forwarding, name="rekey").group_by_key().count()
    pattern.merge(again).to("merged", name="merged-sink")
    return builder.build()


def fan_out() -> Topology:
    topology = Topology().add_source("source", "input")
    for i in range(9):
        topology.add_processor(f"worker-{i}", Forwarding, *([] if i % 3 == 0 else [f"worker-{i - 1}"]), "source")
    for i in range(9):
        topology.add_state_store(store(f"s{i * 37}"), f"worker-{i % 4}")
    for i in range(12):
        topology.add_sink(f"sink-{i}", f"out-{i}", *dict.fromkeys((f"worker-{i % 9}", f"worker-{(i * 5 + 1) % 9}")))
    return topology


WINDOWS = JoinWindows(300_000, grace=60_000)


def stream_joins() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, pair, within=WINDOWS).to("inner")
    left.left_join(right, pair, within=WINDOWS).to("left-joined")
    left.outer_join(right, pair, within=WINDOWS).map_values(str).to("outer")
    left.join(left, pair, within=WINDOWS).to("self")
    left.join(right, pair, within=WINDOWS, name="named")
    left.left_join(right, pair, within=WINDOWS, name="n", store="kept")
    left.outer_join(right, pair, within=WINDOWS, name="m", store="outer")
    joined = builder.stream("left").merge(right).join(builder.table("rows").to_stream(), pair, within=WINDOWS)
    joined.group_by_key().count().to_stream().to("counts")
    return builder.build()


def stream_joins_by_new_keys() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    by_value = left.select_key(lambda key, value: value)
    by_value.join(right, pair, within=WINDOWS).to("first")
    by_value.left_join(right, pair, within=WINDOWS).to("second")
    by_value.outer_join(right.map(pair), pair, within=WINDOWS, name="named").to("third")
    by_value.join(right, pair, within=WINDOWS).to("fourth")
    by_value.join(by_value, pair, within=WINDOWS).group_by_key().count()
    rekeyed = left.select_key(lambda key, value: value, name="rekey")
    rekeyed.join(by_value.peek(pair), pair, within=WINDOWS).to("fifth")
    again = left.join(right, pair, within=WINDOWS).select_key(lambda key, value: value)
    again.left_join(left, pair, within=WINDOWS).to("sixth")
    return builder.build()


ALL: dict[str, Callable[[], Topology]] = {
    program.__name__: program
    for program in (
        word_count,
        repartition_aggregations_split_merge,
        processor_api,
        table_group_by,
        names,
        materialized,
        sources,
        fan_out,
        stream_joins,
        stream_joins_by_new_keys,
    )
}
ALL |= table_join_programs.ALL
