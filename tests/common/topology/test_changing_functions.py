"""Functions that change what they are given have the results of functions that don't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from milestones import KStream, Processor, StreamsBuilder, Topology
from milestones.common.topology import compiled
from milestones.testing import TopologyTestDriver
from tests.common.topology.changing_programs import impure, outputs, pure


@pytest.mark.parametrize("seed", range(40))
def test_functions_that_change_their_arguments_have_the_results_of_those_that_do_not(seed: int) -> None:
    cache, persistent = (0, 10_000_000)[seed % 2], seed % 8 == 7
    changed = outputs(seed, impure, cache=cache, persistent=persistent)
    assert changed == outputs(seed, pure, cache=cache, persistent=persistent)


def test_what_a_function_changes_in_one_branch_is_not_seen_in_another() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("i", key=str, value=dict)
    stream.peek(lambda _, value: value.update(spoilt=True)).to("one", key=str, value=dict)
    stream.to("other", key=str, value=dict)
    assert _values(builder, "other", {"x": 1}) == [{"x": 1}]


def test_what_a_function_changes_in_a_record_is_seen_below_it_in_the_same_stream() -> None:
    builder = StreamsBuilder()
    builder.stream("i", key=str, value=dict).peek(lambda _, value: value.update(seen=True)).to(
        "o", key=str, value=dict
    )
    assert _values(builder, "o", {"x": 1}) == [{"x": 1, "seen": True}]


SEVERAL: dict[str, Callable[[KStream], KStream]] = {
    "flat_map": lambda stream: stream.flat_map(lambda key, value: [(key, value), (key, value)]),
    "flat_map_values": lambda stream: stream.flat_map_values(lambda value: [value, value]),
    "flat_map_values with the key": lambda stream: stream.flat_map_values(
        lambda _, value: [value, value], with_key=True
    ),
}


@pytest.mark.parametrize("twice", SEVERAL.values(), ids=SEVERAL)
def test_one_object_that_a_function_gives_several_times_is_a_value_of_each_record(
    twice: Callable[[KStream], KStream]
) -> None:
    def count(value: dict) -> dict:
        value["x"] += 1
        return value

    builder = StreamsBuilder()
    twice(builder.stream("i", key=str, value=dict)).map_values(count).to("o", key=str, value=dict)
    assert _values(builder, "o", {"x": 1}) == [{"x": 2}, {"x": 2}]


class SendsToBoth(Processor):
    def process(self, record: Any) -> None:
        self.context.forward(record, "spoils")
        self.context.forward(record, "keeps")
        record.value["kept"] = True
        self.context.forward(record, "keeps")


class Spoils(Processor):
    def process(self, record: Any) -> None:
        record.value["spoilt"] = True
        record.headers.append(("spoilt", b""))


class Keeps(Processor):
    def process(self, record: Any) -> None:
        self.context.forward(record)


def test_a_processor_finds_its_record_as_it_has_left_it_whatever_its_children_do() -> None:
    topology = Topology()
    topology.add_source("source", "i", key=str, value=dict)
    topology.add_processor("both", SendsToBoth, "source")
    topology.add_processor("spoils", Spoils, "both")
    topology.add_processor("keeps", Keeps, "both")
    topology.add_sink("sink", "o", "keeps", key=str, value=dict)
    assert _values(topology, "o", {"x": 1}) == [{"x": 1}, {"x": 1, "kept": True}]


def test_an_initializer_may_give_the_same_object_each_time() -> None:
    builder, nothing = StreamsBuilder(), {"n": 0}

    def add(_key: str, _value: dict, total: dict) -> dict:
        total["n"] += 1
        return total

    table = builder.stream("i", key=str, value=dict).group_by(lambda _, value: str(value["x"]), key=str).aggregate(
        lambda: nothing, add, value=dict
    )  # fmt: skip
    table.to_stream().to("o", key=str, value=dict)
    assert _values(builder, "o", {"x": 1}, {"x": 2}, {"x": 1}) == [{"n": 1}, {"n": 1}, {"n": 2}]


@dataclass
class Total:
    cents: int = 0
    notes: list[str] = field(default_factory=list)


def test_an_aggregate_of_a_class_of_the_user_may_be_changed_in_place() -> None:
    builder = StreamsBuilder()

    def add(_key: str, value: dict, total: Total) -> Total:
        total.cents += value["x"]
        return total

    totals = builder.stream("i", key=str, value=dict).group_by_key().aggregate(Total, add, value=Total)
    totals.group_by(lambda _, total: ("all", total.cents), key=str, value=int).reduce(
        lambda whole, cents: whole + cents, lambda whole, cents: whole - cents
    ).to_stream().to("o", key=str, value=int)
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("i", key=str, value=dict)
        for key, cents in [("a", 1), ("b", 10), ("a", 2), ("b", 20), ("a", 3)]:
            topic.pipe(key, {"x": cents})
        assert driver.create_output_topic("o", key=str, value=int).read_values()[-1] == 36


def test_a_stream_without_functions_behind_it_makes_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("i", key=str, value=dict)
    stream.to("one", key=str, value=dict)
    stream.group_by_key().count().to_stream().map_values(str).to("two", key=str, value=str)
    stream.to("o", key=str, value=dict)
    monkeypatch.setattr(compiled, "copy_of", None)
    assert _values(builder, "o", {"x": 1}) == [{"x": 1}]


def _values(topology: Any, output: str, *given: dict[str, Any]) -> list[Any]:
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("i", key=str, value=dict)
        for value in given:
            topic.pipe("k", value)
        return driver.create_output_topic(output, key=str, value=dict).read_values()
