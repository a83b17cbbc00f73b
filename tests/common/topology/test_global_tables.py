"""Global tables and stores, as a user's program has them: names, joins, reads, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import ProcessingError, TopologyError
from milestones.common.records import Record
from milestones.common.state.spec import StoreSpec
from milestones.common.testing.driver import TopologyTestDriver
from milestones.common.topology import (
    GlobalKTable,
    JoinWindows,
    LogAndContinue,
    Processor,
    ProcessorContext,
    StreamsBuilder,
    Topology,
)
from milestones.common.topology.handlers import Action, ErrorContext, Response
from milestones.common.topology.stream import KStream

TEXT = {"default_key_serde": serdes.STRING, "default_value_serde": serdes.STRING}
KEPT = StoreSpec("kept")


def pair(value: Any, other: Any) -> str:
    return f"{value}+{other}"


def by_value(_: Any, value: Any) -> Any:
    return value


class Keep(Processor):
    def process(self, record: Record) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)


class Tell(Processor):
    """Sends what the store has of a record's value."""

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("kept")
        self.context.forward(record.with_value(store.get(record.value)))


def join_with(make: Callable[[KStream, GlobalKTable], KStream]) -> StreamsBuilder:
    builder = StreamsBuilder()
    table = builder.global_table("rates", "rates")
    make(builder.stream("orders"), table).to("out")
    return builder


@pytest.fixture(params=[False, True], ids=["in memory", "on disk"])
def persistent(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_record_is_joined_with_the_row_that_its_function_names(persistent: bool) -> None:
    builder = join_with(lambda orders, rates: orders.join(rates, pair, on=by_value))
    with TopologyTestDriver(builder, persistent=persistent, **TEXT) as driver:
        orders, rates = driver.create_input_topic("orders"), driver.create_input_topic("rates")
        out = driver.create_output_topic("out")
        orders.pipe("1", "eur")
        rates.pipe("eur", "1.1")
        orders.pipe("2", "eur")
        rates.pipe("eur", None)
        orders.pipe("3", "eur")
        assert out.read_key_values() == [("2", "eur+1.1")]


def test_a_left_join_has_none_for_a_row_that_is_not_there_and_for_a_key_of_none() -> None:
    builder = join_with(lambda orders, rates: orders.left_join(rates, pair, on=lambda key, value: value or None))
    with TopologyTestDriver(builder, **TEXT) as driver:
        orders, out = driver.create_input_topic("orders"), driver.create_output_topic("out")
        for value in ("usd", "", None):
            orders.pipe(None, value)
        assert out.read_values() == ["usd+None", "+None"]


def test_a_joiner_may_take_the_record_s_own_key() -> None:
    builder = join_with(
        lambda orders, rates: orders.left_join(rates, lambda k, v, o: f"{k}{v}{o}", on=by_value, with_key=True)
    )
    with TopologyTestDriver(builder, **TEXT) as driver:
        driver.create_input_topic("orders").pipe("k", "v")
        assert driver.create_output_topic("out").read_values() == ["kvNone"]


def test_any_processor_reads_a_global_store_by_its_name_alone(persistent: bool) -> None:
    builder = StreamsBuilder().add_global_store(KEPT, "topic", Keep)
    for number in "12":
        builder.stream(f"in-{number}").process(Tell).to(f"out-{number}")
    with TopologyTestDriver(builder, persistent=persistent, **TEXT) as driver:
        driver.create_input_topic("topic").pipe("a", "of a")
        for number in "12":
            driver.create_input_topic(f"in-{number}").pipe("k", "a")
            assert driver.create_output_topic(f"out-{number}").read_values() == ["of a"]


def test_a_record_without_a_key_makes_no_row_of_a_global_table() -> None:
    builder = join_with(lambda orders, rates: orders.left_join(rates, pair, on=by_value))
    with TopologyTestDriver(builder, **TEXT) as driver:
        driver.create_input_topic("rates").pipe(None, "1.1")
        assert list(driver.store("rates").all()) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put("a", "b"),
        lambda store: store.put("a", None),
        lambda store: store.delete("never there"),
        lambda store: store.put_if_absent("new", "b"),
        lambda store: store.put_all([("a", "b")]),
    ],
)
def test_only_its_own_processor_writes_a_global_store(write: Callable[[Any], Any], persistent: bool) -> None:
    class Writes(Processor):
        def process(self, record: Record) -> None:
            write(self.context.get_state_store("kept"))

    refused: list[str] = []

    def handler(context: ErrorContext, error: Exception) -> Response:
        refused.append(f"{context.processor_node_id}: {error}")
        return Response(Action.CONTINUE)

    builder = StreamsBuilder().add_global_store(KEPT, "topic", Keep)
    builder.stream("in").process(Writes, name="writes")
    with TopologyTestDriver(builder, persistent=persistent, processing_exception_handler=handler, **TEXT) as driver:
        driver.create_input_topic("topic").pipe("a", "row")
        driver.create_input_topic("in").pipe("k", "v")
        assert list(driver.store("kept").all()) == [("a", "row")]
    assert re.match(r"writes: store kept is global, so task 1_0 can only read it", refused[0])


def test_a_store_that_was_given_out_ends_with_its_processor() -> None:
    given: list[Any] = []

    class Keeps(Processor):
        def init(self, context: ProcessorContext) -> None:
            given.append(context.get_state_store("kept"))

        def process(self, record: Record) -> None:
            given[-1].get(record.key)

    builder = StreamsBuilder().add_global_store(KEPT, "topic", Keep)
    builder.stream("in").process(Keeps)
    with TopologyTestDriver(builder, **TEXT) as driver:
        driver.create_input_topic("in").pipe("k", "v")
    with pytest.raises(Exception, match="store kept of task 1_0 isn't open"):
        given[0].get("k")


def test_a_record_that_can_t_be_read_is_the_handler_s() -> None:
    def driver(**settings: Any) -> TopologyTestDriver:
        builder = StreamsBuilder()
        builder.global_table("numbers", "numbers", value=serdes.LONG)
        builder.stream("in").to("out")
        return TopologyTestDriver(builder, **TEXT, **settings)

    told = r"record numbers-0@0.*will come back at the next start"
    with driver() as failing, pytest.raises(ProcessingError, match=told):
        failing.pipe("numbers", b"a", b"poison", 1)
    with driver(deserialization_exception_handler=LogAndContinue()) as going_on:
        going_on.pipe("numbers", b"a", b"poison", 1)
        going_on.pipe("numbers", b"b", bytes(8), 1)
        assert [key for key, _ in going_on.store("numbers").all()] == ["b"]


def test_a_failing_processor_of_a_global_store_leaves_none_of_its_writes() -> None:
    class Fails(Processor):
        def process(self, record: Record) -> None:
            store = self.context.get_state_store("kept")
            store.put(record.key, record.value)
            if record.value == "bad":
                raise ValueError("no")
            store.put(record.key + "'", record.value)

    builder = StreamsBuilder().add_global_store(KEPT, "topic", Fails)
    builder.stream("in").to("out")
    with TopologyTestDriver(builder, processing_exception_handler=LogAndContinue(), **TEXT) as driver:
        driver.create_input_topic("topic").pipe_all([("a", "good"), ("b", "bad"), ("c", "good")])
        assert [key for key, _ in driver.store("kept").all()] == ["a", "a'", "c", "c'"]


@pytest.mark.parametrize("call", ["schedule", "stream time"])
def test_a_global_store_s_processor_has_neither_punctuations_nor_stream_time(call: str) -> None:
    class Asks(Processor):
        def process(self, record: Record) -> None:
            if call == "schedule":
                self.context.schedule(1, "stream-time", lambda _: None)
            self.context.current_stream_time_ms()

    builder = StreamsBuilder().add_global_store(KEPT, "topic", Asks)
    builder.stream("in").to("out")
    told = "the processor of a global store"
    with TopologyTestDriver(builder, **TEXT) as driver, pytest.raises(ProcessingError, match=told):
        driver.create_input_topic("topic").pipe("a", "b")


# ---- the text, and sub-topologies


def test_a_global_store_takes_the_number_of_a_sub_topology_and_has_no_tasks() -> None:
    topology = join_with(lambda orders, rates: orders.join(rates, pair, on=by_value)).build()
    assert str(topology.describe()).startswith(
        "Topologies:\n   Sub-topology: 0 for global store (will not generate tasks)\n"
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [rates])\n      --> KTABLE-SOURCE-0000000001\n"
        "    Processor: KTABLE-SOURCE-0000000001 (stores: [rates])\n      --> none\n"
        "      <-- KSTREAM-SOURCE-0000000000\n  Sub-topology: 1\n"
    )
    assert [sub.id for sub in topology.resolve("app")] == [1]
    every = topology.resolve_global()
    assert every is not None
    assert (every.source_topics, every.changelogs) == (("rates",), {})
    assert 'subgraph sub0["Sub-topology 0 (global)"]' in topology.describe().mermaid()


def test_a_topology_without_global_stores_has_none() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    assert builder.build().resolve_global() is None


# ---- refusals


def global_and(build: Callable[[StreamsBuilder, GlobalKTable], Any]) -> Callable[[], Topology]:
    def built() -> Topology:
        builder = StreamsBuilder()
        build(builder, builder.global_table("rates", "rates"))
        return builder.build()

    return built


REFUSED: list[tuple[Callable[[StreamsBuilder, GlobalKTable], Any], str]] = [
    (lambda b, _: b.stream("rates"), "topic rates is read by two sources.*makes the global store rates"),
    (lambda b, _: b.stream(re.compile("ra.*")), r"topic rates is read by two sources.*\(pattern ra\.\*\).*global"),
    (lambda b, _: b.table("rates"), "topic rates is read by two sources"),
    (lambda b, _: b.global_table("rates"), "topic rates is read by two sources"),
    (lambda b, _: b.global_table("other", "rates"), "there are two stores named rates, one of them global"),
    (lambda b, _: b.table("other", "rates"), "there are two stores named rates"),
    (lambda b, _: b.global_table(re.compile("a.*")), "a topic must be named by a str"),  # type: ignore[arg-type]
    (lambda b, _: b.global_table(["a", "b"]), "a topic must be named by a str"),  # type: ignore[arg-type]
    (lambda b, _: b.add_global_store(KEPT, "", Keep), "a topic can't be named ''"),
    (lambda b, _: b.add_global_store(KEPT, "topic", Keep()), "the supplier of KTABLE-SOURCE-.* can't be"),  # type: ignore[arg-type]
    (
        lambda b, _: b.add_global_store(StoreSpec("w", kind="suppress"), "topic", Keep),
        "the global store w can't be of kind 'suppress': the kinds of global stores are 'key-value', ",
    ),
    (lambda b, t: b.stream("in").process(Tell, "rates"), "connected to the global store rates, which every"),
    (lambda b, t: b.stream("in").join(t, pair), "is joined with the global table .*: pass on="),
    (lambda b, t: b.stream("in").outer_join(t, pair), "no outer join with a global table"),  # type: ignore[arg-type]
    (lambda b, t: b.stream("in").join(t, pair, on="key"), "an operator needs a function, not 'key'"),  # type: ignore[arg-type]
    (lambda b, t: b.stream("in").join(t, pair, on=lambda key: key), "is called with 2 arguments"),  # type: ignore[misc,arg-type]
    (lambda b, t: b.stream("in").join(t, pair, on=by_value, key=serdes.LONG), "belong to other joins"),
    (lambda b, t: b.stream("in").join(t, pair, on=by_value, store="s"), "belong to other joins"),
    (lambda b, t: b.stream("in").join(t, pair, on=by_value, within=JoinWindows(5, grace=0)), "belong to other joins"),
    (lambda b, t: b.stream("in").join(b.table("other"), pair, on=by_value), "`on` belongs to joins with a global"),
    (lambda b, t: StreamsBuilder().stream("in").join(t, pair, on=by_value), "belong to two StreamsBuilders"),
]


@pytest.mark.parametrize(("build", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_what_can_t_be_says_what_to_do(build: Callable[[StreamsBuilder, GlobalKTable], Any], why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        global_and(build)()


def test_nothing_comes_after_the_processor_of_a_global_store() -> None:
    topology = Topology().add_global_store(KEPT, "source", "topic", "keep", Keep)
    with pytest.raises(TopologyError, match="writes the global store kept and sends no records on"):
        topology.add_processor("more", Tell, "keep")
    with pytest.raises(TopologyError, match="writes the global store kept and sends no records on"):
        topology.add_sink("out", "out", "source")


def test_an_unknown_store_is_still_one_that_a_processor_has_no_access_to() -> None:
    class Asks(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.get_state_store("nowhere")

    builder = StreamsBuilder().add_global_store(KEPT, "topic", Keep)
    builder.stream("in").process(Asks, name="asks")
    with pytest.raises(ProcessingError, match="processor asks has no access to the store nowhere"):
        TopologyTestDriver(builder)
