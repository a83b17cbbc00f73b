"""`KTable.transform_values`, and stores that suppliers bring: what a user may rely on, and a task's life with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones import (
    FixedKeyProcessor,
    ProcessingError,
    Processor,
    StoreSpec,
    StreamsBuilder,
    Topology,
    TopologyError,
    ValueTransformer,
    serdes,
)
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, message

TEXT = serdes.STRING


def seen() -> StoreSpec:
    return StoreSpec("seen", key_serde=TEXT, value_serde=TEXT)


class Following(ValueTransformer):
    """The value after all values that the key has had, which a store keeps."""

    def transform(self, key: str, value: str | None) -> str | None:
        store = self.context.get_state_store("seen")
        if value is not None:
            store.put(key, (store.get(key) or "") + value)
        if value == "fail":
            raise RuntimeError(value)
        return None if value is None else store.get(key)


def following(**options: Any) -> Topology:
    builder = StreamsBuilder().add_state_store(seen())
    table = builder.table("in", key=TEXT, value=TEXT).transform_values(Following, "seen", value=TEXT, **options)
    table.to_stream().to("out", value=TEXT)
    return builder.build()


def results(topology: Any, *records: tuple[str, str | None]) -> list[tuple[Any, Any]]:
    with TopologyTestDriver(topology) as driver:
        for key, value in records:
            driver.create_input_topic("in", key=TEXT, value=TEXT).pipe(key, value)
        return driver.create_output_topic("out", key=TEXT, value=TEXT).read_key_values()


def test_a_transformer_has_key_value_and_its_stores_and_sees_deletions() -> None:
    assert results(following(), ("a", "1"), ("a", "2"), ("b", "3"), ("a", None)) == [
        ("a", "1"), ("a", "12"), ("b", "3"), ("a", None),
    ]  # fmt: skip


def test_the_result_can_be_kept_in_a_store_that_has_a_name() -> None:
    topology = following(store="kept", name="follow", in_memory=True)
    (sub,) = topology.resolve("app")
    assert [spec.name for spec in sub.stores] == ["kept", "seen"]
    assert "Processor: follow (stores: [kept, seen])" in str(topology.describe())
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "1", timestamp=7)
        assert tuple(driver.store("kept").get("a")) == ("1", 7)


def test_a_transformer_knows_the_time_and_headers_of_the_row() -> None:
    class Timed(ValueTransformer):
        def transform(self, key: str, value: str | None) -> str:
            return f"{value} at {self.context.timestamp} with {self.context.headers}"

    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT).transform_values(Timed).to_stream().to("out", value=TEXT)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "1", timestamp=7, headers=[("h", b"x")])
        assert driver.create_output_topic("out", value=TEXT).read_value() == "1 at 7 with [('h', b'x')]"


def test_a_transformer_can_not_forward() -> None:
    class Forwarding(ValueTransformer):
        def transform(self, key: str, value: str | None) -> None:
            self.context.forward(value)

    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT).transform_values(Forwarding)
    with TopologyTestDriver(builder) as driver, pytest.raises(ProcessingError, match="return the value from transform"):
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "1")


def test_a_join_reads_transformed_rows_with_a_transformer_of_its_own() -> None:
    builder = StreamsBuilder()
    table = builder.add_state_store(seen()).table("table", key=TEXT, value=TEXT).transform_values(Following, "seen")
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.left_join(table, lambda one, other: f"{one}:{other}").to("out", value=TEXT)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("table", key=TEXT, value=TEXT).pipe("a", "x")
        for key in "aab":
            driver.create_input_topic("in", key=TEXT, value=TEXT).pipe(key, "1")
        assert driver.create_output_topic("out", value=TEXT).read_values() == ["1:xx", "1:xxx", "1:None"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: None, r"returns the same object each time"),
        (Processor, r"has no method transform: derive its class from milestones.ValueTransformer"),
        (3, r"can't be 3"),
    ],
)
def test_what_makes_no_transformers_is_refused_when_it_is_given(given: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        StreamsBuilder().table("in").transform_values(given)


def test_a_coroutine_is_refused_as_a_transform() -> None:
    class Slow(ValueTransformer):
        async def transform(self, key: Any, value: Any) -> Any:
            return value

    with pytest.raises(TopologyError, match=r"transform \(.*test_transform_values\.py:\d+\) is a coroutine function"):
        StreamsBuilder().table("in").transform_values(Slow)


# -- stores that suppliers bring (KIP-401)


class Counting(FixedKeyProcessor):
    stores: Any = (StoreSpec("counts", key_serde=TEXT, value_serde=serdes.LONG),)

    def process(self, record: Any) -> None:
        counts = self.context.get_state_store("counts")
        counts.put(record.key, (counts.get(record.key) or 0) + 1)
        self.context.forward(record.with_value(str(counts.get(record.key))))


def brought(supplier: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process_values(supplier).to("out", value=TEXT)
    return builder


def test_a_supplier_brings_its_stores_as_an_attribute_or_by_a_method() -> None:
    class ByMethod(Counting):
        @classmethod
        def stores(cls) -> Any:
            return Counting.stores

    def by_function() -> Counting:
        return Counting()

    by_function.stores = Counting.stores  # type: ignore[attr-defined]
    for supplier in (Counting, ByMethod, by_function):
        assert results(brought(supplier), ("a", "x"), ("a", "y")) == [("a", "1"), ("a", "2")]


def test_processors_that_bring_one_spec_share_the_store_and_with_it_a_sub_topology() -> None:
    builder = StreamsBuilder()
    for topic in ("one", "two"):
        builder.stream(topic, key=TEXT, value=TEXT).process_values(Counting)
    (sub,) = builder.build().resolve("app")
    assert [spec.name for spec in sub.stores] == ["counts"]


def test_a_processor_of_the_processor_api_and_a_transformer_bring_stores_too() -> None:
    class Brings(Following):
        stores = (seen(),)

    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT).transform_values(Brings).to_stream().to("out", value=TEXT)
    assert results(builder, ("a", "1"), ("a", "2")) == [("a", "1"), ("a", "12")]
    topology = Topology().add_source("in", "in").add_processor("counts", Counting, "in")
    assert [spec.name for spec in topology.resolve("app")[0].stores] == ["counts"]


def test_a_method_of_processors_that_is_called_stores_brings_none() -> None:
    class Own(FixedKeyProcessor):
        def stores(self) -> int:
            return 3

        def process(self, record: Any) -> None:
            self.context.forward(record.with_value(str(self.stores())))

    assert results(brought(Own), ("a", "x")) == [("a", "3")]


def test_what_is_no_spec_is_refused_as_a_store() -> None:
    class Wrong(Counting):
        stores = ("counts",)

    with pytest.raises(TopologyError, match=r"the stores that its supplier brings are StoreSpecs, not 'counts'"):
        brought(Wrong)


# -- in a task's life


def started(former: Harness | None = None, **options: Any) -> Harness:
    life = Harness(following(**options), processing_handler=LogAndContinue(), transactional_id="tx")
    if former is not None:
        life.state = former.state
    return life.start()


def restored(former: Harness, **options: Any) -> Harness:
    life = Harness(following(**options), processing_handler=LogAndContinue(), transactional_id="tx")
    life.task.open()
    for store, topic in life.task.subtopology.changelogs.items():
        sent = [row for row in former.sent if row.topic == topic]
        messages = [message(at, row.key, row.value, row.timestamp, topic) for at, row in enumerate(sent)]
        life.task.restore(store, messages, len(messages))
    life.task.start(dict.fromkeys(life.task.partitions, 0), {})
    return life


def sends(life: Harness, *records: tuple[str, str | None, int]) -> list[Any]:
    life.pipe(*records)
    return [value for topic, _, value, _ in life.outputs() if topic == "out"]


KEPT: list[dict[str, Any]] = [{}, {"store": "kept"}]


@pytest.mark.parametrize("options", KEPT, ids=["not kept", "kept"])
def test_a_record_that_fails_in_a_transformer_leaves_nothing_in_its_stores(options: dict[str, Any]) -> None:
    life = started(**options)
    assert sends(life, ("a", "1", 1), ("a", "fail", 2), ("a", "2", 3)) == [b"1", b"12"]


@pytest.mark.parametrize("options", KEPT, ids=["not kept", "kept"])
@pytest.mark.parametrize("again", [started, restored])
def test_a_roll_back_and_a_restart_find_the_committed_stores(
    options: dict[str, Any], again: Callable[..., Harness]
) -> None:
    life = started(**options)
    sends(life, ("a", "1", 1))
    life.commit()
    assert sends(life, ("a", "lost", 2)) == [b"1lost"]
    life.task.roll_back()
    life.go_on()
    assert sends(life, ("a", "2", 3)) == [b"12"]
    life.commit()
    life.task.close()
    assert sends(again(life, **options), ("a", "3", 4)) == [b"123"]
