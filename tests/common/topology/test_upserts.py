"""`upserts=True`: what it changes of a sink on the stages that send all of its records, and what it doesn't change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones import (
    LogAndContinue,
    OutputSerializationError,
    ProcessingError,
    ProcessorWrapper,
    Serde,
    StreamsBuilder,
    Topology,
    serdes,
)
from milestones.common.assignment.plan import fingerprint
from milestones.common.topology.nodes import SinkNode
from milestones.testing import TopologyTestDriver

TEXT, LONG = serdes.STRING, serdes.LONG
RECORDS = (("a", "x"), ("b", "y"), ("a", "z"))
Program = Callable[[bool], Topology]


def count(upserts: bool) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().count("counts")
    counts.to_stream().to("out", value=LONG, upserts=upserts)
    return builder.build()


def copy(upserts: bool) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out", upserts=upserts)
    return builder.build()


def choosing(upserts: bool) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to(lambda *_: "out", upserts=upserts)
    return builder.build()


def by_hand(upserts: bool) -> Topology:
    topology = Topology().add_source("source", "in", key=TEXT, value=TEXT)
    return topology.add_sink("sink", "out", "source", key=TEXT, value=TEXT, upserts=upserts)


PROGRAMS = (count, copy, choosing, by_hand)
COPIES = (copy, choosing, by_hand)


def sinks(topology: Topology) -> list[SinkNode]:
    return [node for sub in topology.resolve("app") for node in sub.nodes if isinstance(node, SinkNode)]


def driven(topology: Topology, *records: tuple[str | None, str], **settings: Any) -> dict[str, list[Any]]:
    """What there is by topic, once these were processed."""
    with TopologyTestDriver(topology, **settings) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT, start_time_ms=1_000).pipe_all(records)
        return driver.produced()


# -- what it doesn't change


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_test_driver_has_every_record_of_an_upsert_sink(program: Program) -> None:
    outputs = driven(program(True), *RECORDS)
    assert outputs == driven(program(False), *RECORDS)
    assert [output.key for output in outputs["out"]] == [b"a", b"b", b"a"]


@pytest.mark.parametrize("program", COPIES)
def test_nodes_and_text_are_those_of_the_same_topology_in_java(program: Program) -> None:
    assert str(program(True).describe()) == str(program(False).describe())


@pytest.mark.parametrize("program", PROGRAMS)
def test_instances_with_and_without_it_may_share_a_group(program: Program) -> None:
    assert fingerprint(program(True).resolve("app")) == fingerprint(program(False).resolve("app"))


def test_a_deletion_is_written_as_by_any_sink() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT).filter(lambda _, value: value != "").to_stream().to("out", upserts=True)
    assert [output.value for output in driven(builder.build(), ("a", "x"), ("a", ""))["out"]] == [b"x", None]


# -- where it is said


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_sink_has_it_only_when_it_is_said(program: Program) -> None:
    assert [[sink.upserts for sink in sinks(program(said))] for said in (True, False)] == [[True], [False]]


def test_repartition_topics_get_every_record() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by(lambda _, value: value, key=TEXT).count()
    counts.to_stream().to("out", value=LONG, upserts=True)
    assert [sink.upserts for sink in sinks(builder.build())] == [False, True]


def test_it_stays_when_a_topology_is_optimised_or_its_processors_are_wrapped() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT).to_stream().to("out", upserts=True)
    assert [sink.upserts for sink in sinks(builder.build(topology_optimization="all"))] == [True]
    with TopologyTestDriver(builder, processor_wrapper=ProcessorWrapper()) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "x")
        assert len(driver.produced()["out"]) == 1


def test_a_description_and_a_chart_say_it() -> None:
    description = copy(True).describe()
    assert [node.upserts for sub in description.subtopologies for node in sub.nodes] == [False, True]
    assert [line.split()[1:5] for line in description.mermaid().splitlines() if "upserts" in line] == [
        ["--", "upserts", "-->", "topic3"]
    ]
    assert "upserts" not in copy(False).describe().mermaid()


# -- a record without a key


@pytest.mark.parametrize("program", COPIES)
def test_a_record_without_a_key_is_an_error_that_names_sink_topic_and_record(program: Program) -> None:
    (sink,) = sinks(program(True))
    with pytest.raises(ProcessingError, match=r"record in-0@1: .*a record for topic out has no key.*upserts") as caught:
        driven(program(True), ("a", "x"), (None, "y"))
    assert caught.value.node == sink.name
    cause = caught.value.__cause__
    assert isinstance(cause, OutputSerializationError)
    assert (cause.topic, cause.origin, cause.node) == ("out", "key", sink.name)


@pytest.mark.parametrize("program", COPIES)
def test_the_production_handler_is_asked_as_of_one_that_its_serde_refuses(program: Program) -> None:
    skips = {"production_exception_handler": LogAndContinue("dead")}
    outputs = driven(program(True), ("a", "x"), (None, "y"), (None, "z"), ("b", "v"), **skips)
    assert [output.value for output in outputs["out"]] == [b"x", b"v"]
    assert [(letter.key, letter.value) for letter in outputs["dead"]] == [(None, b"y"), (None, b"z")]


def test_a_key_that_its_serde_writes_as_nothing_is_none() -> None:
    builder = StreamsBuilder()
    nothing = Serde(lambda key: None, bytes)
    builder.stream("in", key=TEXT, value=TEXT).to("out", key=nothing, upserts=True)
    with pytest.raises(ProcessingError, match="has no key"):
        driven(builder.build(), ("a", "x"))


def test_an_empty_key_is_a_key() -> None:
    assert [output.key for output in driven(copy(True), ("", "x"))["out"]] == [b""]


def test_a_partitioner_chooses_for_an_upsert_sink_as_for_any(run: Any) -> None:
    builder = StreamsBuilder()
    records = builder.stream("in", key=TEXT, value=TEXT)
    records.to("out", partitioner=lambda topic, key, value, count: (0, 2), upserts=True)
    assert [output.partition for output in run(builder).pipe("in", "a", "x")] == [0, 2]


@pytest.mark.parametrize("program", COPIES)
def test_other_sinks_write_records_without_a_key(program: Program) -> None:
    assert [output.key for output in driven(program(False), (None, "y"))["out"]] == [None]
