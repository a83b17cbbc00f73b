"""Functions that would never do their work are refused when the topology is built, or where they are given."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.errors import ConfigError, ProcessingError, TopologyError
from milestones.common.serdes import STRING, Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology import FixedKeyProcessor, KStream, KTable, Processor, StreamsBuilder, Topology

AWAITS = r"(?:\(.*test_user_functions\.py:\d+\) )?is a coroutine function, and nothing awaits it"


async def asks_a_service(*_: Any) -> Any:
    return True


async def streams_answers(*_: Any) -> AsyncIterator[Any]:
    yield True


class Asks:
    async def __call__(self, *_: Any) -> Any:
        return True

    async def method(self, *_: Any) -> Any:
        return True


ASYNCHRONOUS = [
    asks_a_service,
    streams_answers,
    Asks(),
    Asks().method,
    functools.partial(asks_a_service, 1),
    functools.partial(Asks(), 1),
]

Use = Callable[[KStream, Any], Any]

STREAM_OPERATORS: dict[str, Use] = {
    "filter": lambda stream, f: stream.filter(f),
    "filter_not": lambda stream, f: stream.filter_not(f),
    "map": lambda stream, f: stream.map(f),
    "map_values": lambda stream, f: stream.map_values(f),
    "map_values with key": lambda stream, f: stream.map_values(f, with_key=True),
    "flat_map": lambda stream, f: stream.flat_map(f),
    "flat_map_values": lambda stream, f: stream.flat_map_values(f),
    "flat_map_values with key": lambda stream, f: stream.flat_map_values(f, with_key=True),
    "select_key": lambda stream, f: stream.select_key(f),
    "peek": lambda stream, f: stream.peek(f),
    "for_each": lambda stream, f: stream.for_each(f),
    "print": lambda stream, f: stream.print(mapper=f),
    "group_by": lambda stream, f: stream.group_by(f).count(),
    "branch": lambda stream, f: stream.split().branch(lambda *_: False).branch(f).no_default_branch(),
    "reduce": lambda stream, f: stream.group_by_key().reduce(f),
    "aggregate, initializer": lambda stream, f: stream.group_by_key().aggregate(f, max),
    "aggregate, aggregator": lambda stream, f: stream.group_by_key().aggregate(str, f),
    "to, topic": lambda stream, f: stream.to(f),
    "to, partitioner": lambda stream, f: stream.to("out", partitioner=f),
    "repartition": lambda stream, f: stream.repartition(partitioner=f),
    "process": lambda stream, f: stream.process(f),
    "process_values": lambda stream, f: stream.process_values(f),
}

TABLE_OPERATORS: dict[str, Callable[[KTable, Any], Any]] = {
    "filter": lambda table, f: table.filter(f),
    "filter_not": lambda table, f: table.filter_not(f),
    "map_values": lambda table, f: table.map_values(f),
    "group_by": lambda table, f: table.group_by(f).count(),
    "to_stream": lambda table, f: table.to_stream(f),
    "reduce, adder": lambda table, f: table.group_by(lambda k, v: (v, k)).reduce(f, max),
    "reduce, subtractor": lambda table, f: table.group_by(lambda k, v: (v, k)).reduce(max, f),
    "aggregate, initializer": lambda table, f: table.group_by(lambda k, v: (v, k)).aggregate(f, max, max),
    "aggregate, adder": lambda table, f: table.group_by(lambda k, v: (v, k)).aggregate(str, f, max),
    "aggregate, subtractor": lambda table, f: table.group_by(lambda k, v: (v, k)).aggregate(str, max, f),
}


@pytest.mark.parametrize("function", ASYNCHRONOUS, ids=["function", "generator", "object", "method", "partial", "both"])
@pytest.mark.parametrize("use", STREAM_OPERATORS.values(), ids=STREAM_OPERATORS)
def test_no_operator_of_a_stream_takes_a_coroutine_function(use: Use, function: Any) -> None:
    builder = StreamsBuilder()
    use(builder.stream("in", key=STRING, value=STRING), function)
    with pytest.raises(TopologyError, match=AWAITS):
        builder.build()


@pytest.mark.parametrize("use", TABLE_OPERATORS.values(), ids=TABLE_OPERATORS)
def test_no_operator_of_a_table_takes_a_coroutine_function(use: Any) -> None:
    builder = StreamsBuilder()
    use(builder.table("in", key=STRING, value=STRING), asks_a_service)
    with pytest.raises(TopologyError, match=f"asks_a_service {AWAITS}"):
        builder.build()


def test_a_source_takes_no_coroutine_function_for_its_timestamps() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=asks_a_service)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=f"KSTREAM-SOURCE-0000000000: asks_a_service {AWAITS}"):
        builder.build()


class Waits(Processor):
    async def process(self, record: Any) -> None:  # type: ignore[override]
        pass


class WaitsInInit(FixedKeyProcessor):
    async def init(self, context: Any) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize("kind", [Waits, WaitsInInit])
def test_a_processors_methods_are_no_coroutine_functions(kind: Any) -> None:
    with pytest.raises(TopologyError, match=f"{kind.__name__}.* {AWAITS}"):
        Topology().add_source("source", "in").add_processor("p", kind, "source")


class Schedules(Processor):
    def init(self, context: Any) -> None:
        context.schedule(1, "wall-clock-time", asks_a_service)


@pytest.mark.parametrize(("supplier", "named"), [(lambda: Waits(), "Waits.process"), (Schedules, "asks_a_service")])
def test_nor_are_those_of_processors_that_a_function_makes_nor_punctuations(supplier: Any, named: str) -> None:
    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("p", supplier, "source")
    with pytest.raises((TopologyError, ProcessingError), match=f"p: {named} {AWAITS}"):
        TopologyTestDriver(topology)


def test_a_serde_is_made_of_plain_functions() -> None:
    with pytest.raises(TypeError, match=AWAITS):
        Serde(asks_a_service, bytes)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [
    "deserialization_exception_handler", "processing_exception_handler", "production_exception_handler",
    "default_timestamp_extractor",
])  # fmt: skip
def test_a_handler_of_the_configuration_is_a_plain_function(key: str) -> None:
    with pytest.raises(ConfigError, match=AWAITS):
        StreamsConfig(application_id="a", bootstrap_servers="b:1", **{key: asks_a_service})


def yields(*_: Any) -> Iterator[Any]:
    yield True


@pytest.mark.parametrize("name", ["filter", "filter_not", "peek", "for_each", "branch"])
def test_a_generator_function_is_refused_where_nothing_iterates_over_it(name: str) -> None:
    builder = StreamsBuilder()
    STREAM_OPERATORS[name](builder.stream("in"), yields)
    says = r"yields \(.*test_user_functions\.py:\d+\) is a generator function, and nothing iterates"
    with pytest.raises(TopologyError, match=says):
        builder.build()


@pytest.mark.parametrize("name", ["flat_map", "flat_map_values", "flat_map_values with key"])
def test_and_allowed_where_its_records_are_taken(name: str) -> None:
    builder = StreamsBuilder()
    STREAM_OPERATORS[name](builder.stream("in"), yields)
    builder.build()


def test_plain_functions_methods_classes_and_partials_are_fine() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.filter(functools.partial(max, "a")).map_values(str.upper).map_values(str).map_values({"a": 1}.get)
    builder.add_state_store(StoreSpec("s", key_serde=STRING, value_serde=STRING))
    builder.build()
