"""The text of a topology, against what Kafka Streams prints (reference/Describe.java)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milestones.common import serdes
from milestones.common.topology import StreamsBuilder
from milestones.common.topology.java_order import TreeSet, hash_code, hash_order
from tests.common.topology import programs

EXPECTED = Path(__file__).with_name("expected")


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPECTED.glob("*.txt")))
def test_describe_prints_what_kafka_streams_prints(name: str) -> None:
    assert str(programs.ALL[name]().describe()) == (EXPECTED / f"{name}.txt").read_text()


def test_every_reference_topology_has_an_expected_text() -> None:
    assert sorted(programs.ALL) == sorted(path.stem for path in EXPECTED.glob("*.txt"))


def test_building_twice_gives_the_same_topology() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=serdes.STRING).group_by(lambda k, v: (v, k)).count("n").to_stream().to("out")
    assert str(builder.build().describe()) == str(builder.build().describe())


def test_a_description_can_be_read_as_data() -> None:
    first, second = programs.word_count().describe().subtopologies
    assert first.nodes[0].name == "KSTREAM-SOURCE-0000000000"
    assert second.nodes[1].predecessors == ("counts-repartition-source",)
    source, sink = first.nodes[0], second.nodes[-1]
    assert (source.kind, source.topics, source.pattern, source.stores) == ("Source", ("lines",), None, ())
    assert (sink.kind, sink.topics, sink.successors) == ("Sink", ("word-counts",), ())
    assert [node.stores for node in second.nodes if node.kind == "Processor" and node.stores] == [("counts",)]


def test_what_a_pattern_and_a_function_choose_is_no_topic() -> None:
    def chosen(*_: object) -> str:
        return "out"

    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).to(chosen)
    [sub] = builder.build().describe().subtopologies
    source, sink = sub.nodes
    assert (source.pattern, source.topics) == ("in-.*", ())
    assert (sink.topic_extractor, sink.topics) == (chosen, ())


def test_a_global_store_is_a_sub_topology_of_its_own() -> None:
    builder = StreamsBuilder()
    builder.global_table("everywhere", "rows")
    builder.stream("in").to("out")
    subs = builder.build().describe().subtopologies
    assert [(sub.of_global_store, [node.stores for node in sub.nodes if node.stores]) for sub in subs] == [
        (True, [("rows",)]), (False, [])
    ]


def test_mermaid_draws_topics_nodes_and_stores() -> None:
    chart = programs.word_count().describe().mermaid()
    assert chart.startswith("flowchart TD\n")
    assert 'subgraph sub1["Sub-topology 1"]' in chart
    for text in ('(["lines"])', '["KSTREAM-AGGREGATE-0000000003"]', '[("counts")]', '(["word-counts"])'):
        assert chart.count(text) == 1
    ids = {line.split("[")[0].split("(")[0].strip() for line in chart.splitlines() if '["' in line or '("' in line}
    edges = [line.split() for line in chart.splitlines() if "-->" in line]
    assert edges
    assert all(edge[0] in ids and edge[2] in ids for edge in edges)


def test_a_dynamic_topic_is_described_by_its_function() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, record: "out")
    assert "(extractor class: " in str(builder.build().describe())


def test_java_hash_codes_are_java_s() -> None:
    assert hash_code("hello") == 99162322
    assert hash_code("KSTREAM-SOURCE-0000000000") == hash_code("KSTREAM-SOURCE-0000000000") & 0xFFFFFFFF
    assert hash_code("\U0001f600") == 1772899
    assert hash_order(["b", "a", "b"]) == ["a", "b"]


def test_a_tree_set_is_ordered_and_unique_whatever_the_order_of_insertion() -> None:
    tree: TreeSet[int] = TreeSet(lambda one, other: one - other)
    for number in [5, 3, 8, 1, 9, 2, 7, 3, 6, 4, 0, *range(20, 10, -1)]:
        tree.add(number)
    assert list(tree) == [*range(10), *range(11, 21)]
