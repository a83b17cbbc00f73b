"""Tables and aggregations against Kafka Streams itself: reference/Semantics.java wrote what each record leads to. Here
the runtime's own tasks and stores do it."""

from __future__ import annotations

from pathlib import Path

from milestones.common import serdes
from milestones.common.topology import StreamsBuilder
from milestones.testing import TopologyTestDriver
from tests.common.topology.replaying import replayed

TEXT, LONG = serdes.STRING, serdes.LONG
TOPICS = ("reduced", "aggregated", "labels", "joined", "rekeyed", "kept", "rows", "counts", "even", "sum")
VALUES = dict.fromkeys(("rows", "counts", "even", "sum"), LONG)
EXPECTED = Path(__file__).with_name("expected") / "semantics.tsv"


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    grouped = (
        builder.table("users", key=TEXT, value=TEXT)
        .filter(lambda k, v: not v.startswith("x"))
        .map_values(str.upper)
        .group_by(lambda k, v: (None if len(v) > 2 else v[:1], k + v))
    )
    grouped.count("rows-store").to_stream().to("rows")
    reduced = grouped.reduce(lambda a, v: f"{a}+{v}", lambda a, v: None if len(a) > 30 else f"{a}-{v}")
    reduced.to_stream().to("reduced")
    (
        reduced.group_by(lambda k, v: (f"n{len(v) % 3}", v))
        .aggregate(lambda: "I", lambda k, v, a: "" if len(a) > 40 else f"{a}{len(v)}", lambda k, v, a: a + "~")
        .to_stream()
        .to("aggregated")
    )
    stream = builder.stream("events", key=TEXT, value=TEXT)
    counts = stream.group_by_key().count()
    counts.to_stream().to("counts")
    counts.filter(lambda k, v: v % 2 == 0).to_stream().to("even")
    labels = counts.map_values(lambda v: f"v{v}").filter_not(lambda k, v: v.endswith("3"), "labels", value=TEXT)
    labels.to_stream().to("labels")
    (
        counts.group_by(lambda k, v: ("all", v), value=LONG)
        .reduce(lambda a, v: a + v, lambda a, v: a - v)
        .to_stream()
        .to("sum")
    )
    (
        stream.group_by_key()
        .aggregate(str, lambda k, v, a: None if v == "del" else a + v[0], value=TEXT)
        .map_values(lambda v: v + "!", "joined", value=TEXT)
        .to_stream()
        .to("joined")
    )
    stream.select_key(lambda k, v: v).to_table().filter(lambda k, v: not v.startswith("a")).to_stream().to("rekeyed")
    stream.to_table("kept").filter(lambda k, v: not v.startswith("a")).to_stream().to("kept")
    return builder


def test_every_record_leads_to_the_updates_that_kafka_streams_sends() -> None:
    expected = EXPECTED.read_text().splitlines()
    with TopologyTestDriver(program(), default_key_serde=TEXT, default_value_serde=TEXT) as driver:
        inputs = {name: driver.create_input_topic(name, key=TEXT, value=TEXT) for name in ("users", "events")}
        outs = {name: driver.create_output_topic(name, key=TEXT, value=VALUES.get(name, TEXT)) for name in TOPICS}
        assert replayed(expected, inputs, outs) == expected
