"""Topologies as a whole: sub-topologies, real names, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import Processor, StreamsBuilder, Topology
from tests.common.topology import programs


def test_the_word_count_resolves_to_two_sub_topologies_with_real_names() -> None:
    first, second = programs.word_count().resolve("words")
    assert (first.id, second.id) == (0, 1)
    assert first.source_topics == ("lines",)
    assert first.sink_topics == second.source_topics == ("words-counts-repartition",)
    assert dict(first.repartition_topics) == {}
    assert second.repartition_topics["words-counts-repartition"].partitions is None
    assert second.sink_topics == ("word-counts",)
    assert [(spec.name, spec.key_serde, spec.value_serde) for spec in second.stores] == [
        ("counts", serdes.STRING, serdes.LONG)
    ]
    assert dict(second.changelogs) == {"counts": "words-counts-changelog"}


def test_processors_that_share_a_store_are_in_one_sub_topology() -> None:
    topology = Topology()
    for name in "abc":
        topology.add_source(f"source-{name}", name).add_processor(f"work-{name}", Processor, f"source-{name}")
    topology.add_state_store(StoreSpec("shared"), "work-a", "work-c").add_state_store(StoreSpec("own"), "work-b")
    first, second = topology.resolve("app")
    assert (first.source_topics, second.source_topics) == (("a", "c"), ("b",))
    assert [spec.name for spec in first.stores] == ["shared"]


def test_one_spec_may_be_added_again_to_connect_more_processors() -> None:
    topology, shared = Topology().add_source("source", "in"), StoreSpec("shared")
    for name in "ab":
        topology.add_processor(name, Processor, "source").add_state_store(shared, name)
    (sub,) = topology.resolve("app")
    assert [spec.name for spec in sub.stores] == ["shared"]


def test_a_store_without_logging_has_no_changelog_and_one_on_a_source_topic_uses_it() -> None:
    topology = Topology().add_source("source", "in").add_processor("work", Processor, "source")
    topology.add_state_store(StoreSpec("silent", logged=False), "work")
    topology.add_state_store(StoreSpec("logged"), "work")
    topology.add_state_store(StoreSpec("mirror", source_topic="in"), "work")
    assert dict(topology.resolve("app")[0].changelogs) == {"logged": "app-logged-changelog", "mirror": "in"}


def test_patterns_and_offset_resets_are_known_per_sub_topology() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a.*"), offset_reset="latest").to("out")
    builder.table("table", offset_reset="earliest")
    first, second = builder.build().resolve("app")
    assert (first.source_topics, first.source_patterns) == ((), ("a.*",))
    assert (second.source_topics, second.source_patterns) == (("table",), ())
    assert [sub.nodes[0].offset_reset for sub in (first, second)] == ["latest", "earliest"]  # type: ignore[union-attr]


def test_copartitioned_sources_share_a_group_of_real_topics() -> None:
    topology = Topology().add_source("a", "in-a", "in-b").add_source("c", "in-c").add_source("d", "in-d")
    topology.add_processor("work", Processor, "a", "c", "d")
    topology.copartition_sources(["a", "c"])
    topology.copartition_sources(["c", "d"])
    assert topology.resolve("app")[0].copartition_groups == (frozenset({"in-a", "in-b", "in-c", "in-d"}),)


def test_a_topology_that_was_built_can_be_added_to() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="lines")
    topology = builder.build().add_sink("sink", "out", "lines")
    assert topology.resolve("app")[0].sink_topics == ("out",)


def _base() -> Topology:
    return (
        Topology()
        .add_source("source", "in")
        .add_source("pattern", re.compile("p-.*"))
        .add_processor("work", Processor, "source")
        .add_sink("sink", "out", "work")
        .add_state_store(StoreSpec("store"), "work")
    )


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda t: t.add_source("source", "other"), "two nodes named source"),
        (lambda t: t.add_processor("work", Processor, "source"), "two nodes named work"),
        (lambda t: t.add_processor("", Processor, "source"), "must be a str with something in it"),
        (lambda t: t.add_processor("new", Processor, "missing"), "new has the parent missing, which isn't"),
        (lambda t: t.add_processor("new", Processor, "new"), "its own parent"),
        (lambda t: t.add_processor("new", Processor), "new has no parent"),
        (lambda t: t.add_processor("new", Processor(), "source"), "give the class"),
        (lambda t: t.add_processor("new", Processor, "sink"), "parent sink, a sink"),
        (lambda t: t.add_sink("new", "out", "missing"), "which isn't in the topology"),
        (lambda t: t.add_sink("new", "", "work"), "needs a topic's name"),
        (lambda t: t.add_sink("new", "out", "work", key="text"), "must be a Serde"),
        (lambda t: t.add_source("new", "in"), "topic in is read by two sources, new and source"),
        (lambda t: t.add_source("new", "p-1"), "by two sources, new and pattern"),
        (lambda t: t.add_source("new", re.compile("i.")), r"by two sources, new \(pattern i.\) and source"),
        (lambda t: t.add_source("new"), "needs topic names"),
        (lambda t: t.add_source("new", "a", re.compile("b")), "needs topic names"),
        (lambda t: t.add_source("new", "a", offset_reset="first"), "must be earliest, latest, none, or how old"),
        (lambda t: t.add_state_store(StoreSpec("store", logged=False)), "two stores named store"),
        (lambda t: t.add_state_store(StoreSpec("store")), "two stores named store: give one another name"),
        (lambda t: t.add_state_store(StoreSpec("new"), "missing"), "missing: it isn't in the topology"),
        (lambda t: t.add_state_store(StoreSpec("new"), "source"), "source: it is a source or a sink"),
        (lambda t: t.connect_processor_and_state_stores("work", "none"), "the store none, which isn't"),
        (lambda t: t.add_state_store(StoreSpec("lonely")).resolve("app"), "store lonely is connected to no processor"),
        (lambda t: Topology().resolve("app"), "reads no topic"),
    ],
)
def test_what_can_t_run_is_refused_with_what_to_do(use: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        use(_base())


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda b: [b.stream("in"), b.table("in")], "topic in is read by two sources"),
        (lambda b: [b.stream(["a", "b"]), b.stream(["b", "c"])], "read equal sets of topics"),
        (lambda b: [b.stream("a"), b.stream("a", offset_reset="latest")], "different offset_reset"),
        (lambda b: b.stream([]), "at least one topic"),
        (lambda b: b.stream("a b"), "can't be named 'a b'"),
        (lambda b: b.stream("in", name="a").peek(print, name="a"), "two nodes named a"),
        (lambda b: b.stream("in").process(Processor, "missing"), "the store missing, which isn't"),
        (lambda b: [b.table("a", "n"), b.table("b", "n", logging=False)], "two stores named n"),
        (lambda b: [b.table("a", "n"), b.add_state_store(StoreSpec("n"))], "two stores named n"),
        (lambda b: [b.stream(topic).group_by_key().count("n") for topic in "ab"], "two stores named n: give one"),
    ],
)
def test_a_program_that_can_t_be_a_topology_is_refused(use: Any, message: str) -> None:
    def build() -> Topology:
        builder = StreamsBuilder()
        use(builder)
        return builder.build()

    with pytest.raises(TopologyError, match=message):
        build()


def test_joined_repartition_topics_of_different_sizes_are_refused() -> None:
    topology = Topology()
    for name, count in (("a", 2), ("b", 3)):
        topology.add_internal_topic(name, count)
        topology.add_source(name, name)
    topology.copartition_sources(["a", "b"])
    with pytest.raises(TopologyError, match="equal partition counts"):
        topology.resolve("app")


def test_a_store_knows_the_topics_whose_records_reach_it_where_they_are_several() -> None:
    builder = StreamsBuilder()
    orders, products = builder.stream("orders"), builder.stream("products")
    builder.add_state_store(StoreSpec("table"))
    products.process(Processor, "table")
    orders.map_values(str).process(Processor, "table")
    builder.stream("lonely").group_by_key().count("counts")
    by_store = {store: topics for sub in builder.build().resolve("app") for store, topics in sub.shared_stores.items()}
    assert by_store == {"table": frozenset({"orders", "products"})}
