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
from milestones.common.topology import FixedKeyProcessor, JoinWindows, Processor, StreamsBuilder
from milestones.common.topology.operators.value_transformer import ValueTransformer
from milestones.common.topology.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

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

    with pytest.raises(TopologyError, match=r"<lambda>.*\(.*\) \(.*test_slips.py:\d+\) is called with .* arguments?: "):
        build()


WINDOWS = {
    "tumbling": TimeWindows(10, grace=0),
    "sliding": SlidingWindows(10, grace=0),
    "session": SessionWindows(10, grace=0),
    "unlimited": UnlimitedWindows(),
}


def so_far(*given: Any) -> Any:
    """An aggregator, an initializer, a joiner."""


POSITIONAL_STORES: dict[str, Callable[[Any], Any]] = {
    **{
        f"aggregate of {kind} windows": lambda builder, windows=windows: (
            builder.stream("in").group_by_key().windowed_by(windows).aggregate(int, so_far, "counts")
        )
        for kind, windows in WINDOWS.items()
    },
    **{
        f"cogroup of {kind} windows": lambda builder, windows=windows: (
            builder.stream("in").group_by_key().cogroup(so_far).windowed_by(windows).aggregate(int, "counts")
        )
        for kind, windows in WINDOWS.items()
    },
    "windowed aggregate, a node's name first": lambda builder: (
        builder.stream("in").group_by_key().windowed_by(WINDOWS["tumbling"]).aggregate(int, so_far, "counts", "store")
    ),
    "windowed aggregate, a StoreSpec": lambda builder: (
        builder.stream("in").group_by_key().windowed_by(WINDOWS["tumbling"]).aggregate(int, so_far, StoreSpec("counts"))
    ),
    "windowed reduce": lambda builder: (
        builder.stream("in").group_by_key().windowed_by(WINDOWS["tumbling"]).reduce("counts")
    ),
    "reduce": lambda builder: builder.stream("in").group_by_key().reduce("counts"),
    "aggregate": lambda builder: builder.stream("in").group_by_key().aggregate(int, "counts"),
    "cogroup": lambda builder: builder.stream("in").group_by_key().cogroup("counts"),
    "reduce of a table": lambda builder: builder.table("in").group_by(so_far).reduce(so_far, "counts"),
    "aggregate of a table": lambda builder: builder.table("in").group_by(so_far).aggregate(int, so_far, "counts"),
    "filter": lambda builder: builder.table("in").filter("counts"),
    "map_values": lambda builder: builder.table("in").map_values("counts"),
    "transform_values": lambda builder: builder.table("in").transform_values(ValueTransformer, "counts"),
    "transform_values of a versioned table": lambda builder: (
        builder.table("in", "rows", history=1_000).transform_values(ValueTransformer, "counts")
    ),
    "to_stream": lambda builder: builder.table("in").to_stream("counts"),
    "join of tables": lambda builder: builder.table("in").join(builder.table("other"), "counts"),
}


@pytest.mark.parametrize("use", POSITIONAL_STORES.values(), ids=POSITIONAL_STORES)
def test_a_stores_name_where_kafka_streams_takes_it_is_refused_by_a_text_that_names_the_keyword(
    use: Callable[[Any], Any],
) -> None:
    def build() -> None:
        builder = StreamsBuilder()
        use(builder)
        builder.build()

    with pytest.raises(TopologyError, match="store='counts'") as caught:
        build()
    assert "merge" not in str(caught.value)


def test_a_store_of_a_processor_is_still_to_be_added() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Processor, "counts")
    with pytest.raises(TopologyError, match=r"add_state_store first$"):
        builder.build()


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


# -- processors that would do nothing


class Yields(Processor):
    def process(self, record: Record) -> Any:
        yield record


class YieldsFixed(FixedKeyProcessor):
    def process(self, record: Any) -> Any:
        yield record


class Returns(Processor):
    def process(self, record: Record) -> Any:
        return record


class ReturnsFixed(FixedKeyProcessor):
    def process(self, record: Any) -> Any:
        return record.with_value("x")


class ReturnsSeveral(Processor):
    def process(self, record: Record) -> Any:
        return [record, record]


class ReturnsATruth(Processor):
    def process(self, record: Record) -> Any:
        self.context.forward(record)
        return True


GENERATORS: dict[str, Callable[[Any], Any]] = {
    "class": lambda stream: stream.process(Yields),
    "function": lambda stream: stream.process(lambda: Yields()),
    "process_values": lambda stream: stream.process_values(YieldsFixed),
}


@pytest.mark.parametrize("use", GENERATORS.values(), ids=GENERATORS)
def test_a_processor_whose_process_is_a_generator_function_is_refused(use: Callable[[Any], Any]) -> None:
    builder = StreamsBuilder()
    use(builder.stream("in"))
    says = r"Yields\w*\.process \(.*test_slips\.py:\d+\) is a generator function, .*send a record by self\.context\."
    with pytest.raises(TopologyError, match=says):
        TopologyTestDriver(builder)


RETURNING: dict[str, Callable[[Any], Any]] = {
    "a record": lambda stream: stream.process(Returns),
    "a record of a fixed key": lambda stream: stream.process_values(ReturnsFixed),
    "several": lambda stream: stream.process(ReturnsSeveral),
}


@pytest.mark.parametrize("use", RETURNING.values(), ids=RETURNING)
def test_a_processor_that_returns_its_record_is_refused_at_its_first(use: Callable[[Any], Any]) -> None:
    builder = StreamsBuilder()
    use(builder.stream("in"))
    says = r"process \(.*test_slips\.py:\d+\) has returned a record, which goes nowhere: send it by self\.context\."
    with TopologyTestDriver(builder) as driver, pytest.raises(ProcessingError, match=says):
        driver.pipe("in", b"k", b"v", 1)


def test_a_processor_may_return_what_is_no_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(ReturnsATruth).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("in", b"k", b"v", 1)
        assert len(driver.unread("out")) == 1


@pytest.mark.parametrize("method", ["process", "process_values"])
def test_a_function_of_records_is_no_supplier_of_processors(method: str) -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=r"test_slips\.py:\d+\) can't be called without .* needs a Processor class"):
        getattr(stream, method)(lambda record: record)


# -- what an operator was given


def aggregations(windowed: bool, builder: StreamsBuilder | None = None) -> Any:
    grouped = (builder or StreamsBuilder()).stream("in").group_by_key()
    return grouped.windowed_by(TimeWindows(10, grace=0)) if windowed else grouped


def built(use: Callable[[Any], Any], windowed: bool) -> None:
    builder = StreamsBuilder()
    use(aggregations(windowed, builder))
    builder.build()


@pytest.mark.parametrize("windowed", [False, True])
def test_what_must_be_a_function_is_refused_when_the_topology_is_built(windowed: bool) -> None:
    def add(key: Any, value: Any, total: int) -> int:
        return total + 1

    wrong: tuple[Callable[[Any], Any], ...] = (
        lambda given: given.aggregate(0, add),
        lambda given: given.aggregate(lambda: 0, 1),
        lambda given: given.reduce("sum"),
    )
    for use in wrong:
        with pytest.raises(TopologyError, match=r"function, not (0|1|'sum')"):
            built(use, windowed)


def test_a_retention_is_of_windows() -> None:
    with pytest.raises(TopologyError, match=r"retention= is only for tables of windows"):
        aggregations(windowed=False).count("counts", retention=5)
    aggregations(windowed=True).count("counts", retention=20)


def test_an_unknown_keyword_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"no keyword argument 'retentoin'; did you mean retention\?"):
        aggregations(windowed=True).count("counts", retentoin=5)
    with pytest.raises(TypeError, match=r"no keyword argument 'x'; there are .*caching"):
        aggregations(windowed=False).count("counts", x=5)
    builder = StreamsBuilder()
    with pytest.raises(TypeError, match=r"no keyword argument 'storre'; did you mean store\?"):
        builder.stream("a").join(builder.stream("b"), lambda a, b: a, within=JoinWindows(1, grace=0), storre="s")


def test_one_topic_is_not_read_with_two_serdes() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("one")
    builder.stream("in", value=int).to("two")
    with pytest.raises(TopologyError, match=r"in is read by two streams with different serdes of its value, STRING"):
        builder.build()
    same = StreamsBuilder()
    same.stream("in", key=str, value=str).to("one")
    same.stream("in", value=str).to("two")
    same.build()


def test_a_window_store_without_a_retention_says_what_it_needs() -> None:
    with pytest.raises(TopologyError, match=r"a window store needs retention_ms=, .* at least window_ms"):
        StoreSpec("s", kind="window")
