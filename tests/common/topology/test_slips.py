"""Slips that are easy to make: each is told where it was made, with what to do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from milestones.common.errors import ProcessingError, TopologyError
from milestones.common.records import Record
from milestones.common.serdes import STRING
from milestones.common.state.spec import StoreSpec
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology import FixedKeyProcessor, Processor, StreamsBuilder

WRONG_ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda stream: stream.filter(lambda value: value),
    "map": lambda stream: stream.map(lambda value: (value, value)),
    "map_values": lambda stream: stream.map_values(lambda: 0),
    "split": lambda stream: stream.split().branch(lambda value: True).default_branch(),
    "aggregate": lambda stream: stream.group_by_key().aggregate(lambda: 0, lambda value, total: total),
    "initializer": lambda stream: stream.group_by_key().aggregate(lambda key: 0, lambda key, value, total: total),
    "table": lambda stream: stream.to_table().map_values(lambda: 0),
}


@pytest.mark.parametrize("use", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_a_function_of_other_arguments_is_refused_when_the_topology_is_built(use: Callable[[Any], Any]) -> None:
    def build() -> None:
        builder = StreamsBuilder()
        use(builder.stream("in"))
        builder.build()

    with pytest.raises(TopologyError, match=r"<lambda>.*\(.*\) is called with .* arguments?: "):
        build()


def test_functions_that_take_more_by_default_or_whose_arguments_are_not_known_are_fine() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=STRING)
    stream.map_values(str.split).map_values(len).map_values(int).peek(print).filter(lambda key, value, least=3: True)
    builder.build()


def with_a_session(function: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
    """A decorator that gives what it wraps one argument more."""

    @functools.wraps(function)
    def wrapper(value: Any) -> Any:
        return function(value, "session")

    return wrapper


@with_a_session
def looked_up(value: Any, session: str) -> Any:
    return value, session


class Model:
    """No processor, though it has a method of that name."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def process(self) -> None:
        """For others."""


def test_a_decorators_function_and_a_class_that_makes_values_are_taken_as_they_are_called() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=STRING).map_values(looked_up).map_values(Model)
    builder.build()


class NoBase:
    def process(self, record: Record) -> None:
        """Nothing."""


@pytest.mark.parametrize("supplier", [NoBase, lambda: NoBase()], ids=["class", "function"])
def test_a_processor_without_base_class_is_told_which_to_take(supplier: Any) -> None:
    def start() -> None:
        builder = StreamsBuilder()
        builder.stream("in").process(supplier)
        TopologyTestDriver(builder.build())  # a function's processor is seen when its task is made

    with pytest.raises(TopologyError, match=r"has no method init: derive its class from milestones.Processor"):
        start()


class OwnInit(Processor):
    def init(self, context: Any) -> None:
        self.store = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value)
        self.context.forward(record)


class OwnInitFixed(FixedKeyProcessor):
    def init(self, context: Any) -> None:
        """Its own."""

    def process(self, record: Any) -> None:
        self.context.forward(record)


def test_a_processor_that_does_not_call_the_init_of_its_base_has_its_context() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(StoreSpec("seen", key_serde=STRING, value_serde=STRING))
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(OwnInit, "seen").process_values(OwnInitFixed).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe("k", "v")
        assert driver.create_output_topic("out", key=STRING, value=STRING).read_values() == ["v"]


class Forwards(Processor):
    def process(self, record: Record) -> None:
        self.context.forward((record.key, record.value))  # type: ignore[arg-type]


def test_a_forward_of_a_pair_says_what_it_takes() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).process(Forwards).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        with pytest.raises(ProcessingError, match=r"forwards \('k', 'v'\): forward takes one Record\("):
            topic.pipe("k", "v")


def test_a_store_of_a_kind_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(TopologyError, match=r"store s: there is no kind 'windows'; there are 'key-value' and"):
        StoreSpec("s", kind="windows")  # type: ignore[arg-type]


def test_a_stream_of_nothing_and_a_merge_with_a_table_say_what_is_needed() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="a stream needs the name of a topic, several, or a compiled pattern"):
        builder.stream(None)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"merge needs another stream .* to_stream\(\) makes one"):
        builder.stream("in").merge(builder.table("table"))  # type: ignore[arg-type]
