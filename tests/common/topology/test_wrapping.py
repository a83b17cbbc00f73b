"""User code around every processor of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from compat_tests.java.cases import Case, cases
from compat_tests.java.comparing import difference
from compat_tests.java.ours import Ours
from compat_tests.java.registry import Entry
from compat_tests.java.topologies import ALL
from milestones import (
    ConfigError,
    FixedKeyProcessor,
    FixedKeyRecord,
    ProcessingError,
    Processor,
    ProcessorContext,
    ProcessorWrapper,
    Record,
    StreamsBuilder,
    Topology,
    TopologyError,
    serdes,
    stores,
)
from milestones.testing import TopologyTestDriver

Supplier = Callable[[], Any]


class Around(Processor):
    """Calls another processor, and nothing else."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def init(self, context: ProcessorContext) -> None:
        self._inner.init(context)
        self._inner.context = context

    def process(self, record: Any) -> None:
        self._inner.process(record)

    def close(self) -> None:
        self._inner.close()


class FixedAround(Around, FixedKeyProcessor):  # type: ignore[misc]
    """As `Around`, of processors that don't change keys."""


class Everything(ProcessorWrapper):
    """Puts a processor around each."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def wrap_processor_supplier(self, node: str, supplier: Supplier) -> Supplier:
        self.asked.append(node)
        return lambda: Around(supplier())

    def wrap_fixed_key_processor_supplier(self, node: str, supplier: Supplier) -> Supplier:
        self.asked.append(node)
        return lambda: FixedAround(supplier())


def of_text(driver: TopologyTestDriver, topic: str) -> list[tuple[Any, Any]]:
    return driver.create_output_topic(topic, key=str, value=str).read_key_values()


@pytest.mark.parametrize("entry", ALL.values(), ids=list(ALL))
def test_a_processor_around_each_that_only_calls_it_changes_no_record(entry: Entry) -> None:
    """Of every topology of the bench against Java: outputs, changelogs and errors."""
    plain, around = Ours(ALL), Ours(ALL, processor_wrapper=Everything)

    @hypothesis.settings(
        max_examples=2, phases=[Phase.generate], database=None, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @hypothesis.given(cases(entry.inputs))
    def same(case: Case) -> None:
        for cache in (0, 10 << 20):
            one, other = plain.run(entry.name, case, cache), around.run(entry.name, case, cache)
            assert difference(one, other, 0) is None

    same()


class Doubles(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(record.value * 2))


class Shouts(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord) -> None:
        self.context.forward(record.with_value(record.value.upper()))


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("in", key=str, value=str).filter(lambda _, word: word != "no")
    words.process(Doubles, name="doubles").process_values(Shouts, name="shouts").to("out", value=str)
    words.group_by_key().count("counts").to_stream().map_values(str).to("counted", value=str)
    return builder


def test_a_wrapper_is_asked_once_for_each_processor_by_its_name() -> None:
    wrapper, builder = Everything(), program()
    nodes = [
        node.name for sub in builder.build().describe().subtopologies for node in sub.nodes if node.kind == "Processor"
    ]
    with TopologyTestDriver(builder, processor_wrapper=wrapper):
        assert sorted(wrapper.asked) == sorted(nodes)
    assert {"doubles", "shouts", "KSTREAM-FILTER-0000000001"} <= set(nodes)


def test_a_wrapper_sees_records_leaves_some_out_and_adds_headers() -> None:
    seen: list[tuple[str, Any, Any]] = []

    class Watches(Around):
        def __init__(self, node: str, inner: Any) -> None:
            super().__init__(inner)
            self._node = node

        def process(self, record: Any) -> None:
            seen.append((self._node, record.key, record.value))
            if record.value != "secret":
                self._inner.process(record.with_headers([*record.headers, ("by", self._node.encode())]))

    class Watching(ProcessorWrapper):
        def wrap_processor_supplier(self, node: str, supplier: Supplier) -> Supplier:
            return lambda: Watches(node, supplier())

    with TopologyTestDriver(program(), processor_wrapper=Watching()) as driver:
        words = driver.create_input_topic("in", key=str, value=str)
        words.pipe("a", "x")
        words.pipe("b", "secret")
        words.pipe("c", "no")
        out = driver.create_output_topic("out", key=str, value=str).read_records()
        assert [(record.key, record.value) for record in out] == [("a", "XX")]
        assert out[0].headers == [("by", b"KSTREAM-FILTER-0000000001"), ("by", b"doubles")]
        assert of_text(driver, "counted") == [("a", "1")]
    assert ("doubles", "a", "x") in seen
    assert [value for node, _, value in seen if node.startswith("KTABLE-TOSTREAM")] == [(1, None)]


def test_the_stores_of_a_wrapped_supplier_are_connected_to_its_node() -> None:
    spec = stores.key_value("seen", str, int)

    class Counts(Around):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self._seen = context.get_state_store("seen")

        def process(self, record: Any) -> None:
            self._seen.put(record.key, (self._seen.get(record.key) or 0) + 1)
            super().process(record)

    class Counting(ProcessorWrapper):
        def wrap_processor_supplier(self, node: str, supplier: Supplier) -> Supplier:
            if node != "doubles":
                return supplier

            def counts() -> Counts:
                return Counts(supplier())

            counts.stores = spec  # type: ignore[attr-defined]
            return counts

    with TopologyTestDriver(program(), processor_wrapper=Counting) as driver:
        words = driver.create_input_topic("in", key=str, value=str)
        for key in "aba":
            words.pipe(key, "x")
        assert dict(driver.store("seen").all()) == {"a": 2, "b": 1}
        [changelog] = [topic for topic in driver.produced() if topic.endswith("-seen-changelog")]
        assert len(driver.produced()[changelog]) == 3


def test_a_global_store_s_processor_is_wrapped_and_takes_no_store() -> None:
    class Keeps(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("all").put(record.key, record.value)

    def build() -> Topology:
        builder = StreamsBuilder()
        builder.add_global_store(stores.key_value("all", str, str), "all", Keeps, key=str, value=str, name="keeps")
        return builder.build()

    class Brings(Everything):
        def wrap_processor_supplier(self, node: str, supplier: Supplier) -> Supplier:
            made = super().wrap_processor_supplier(node, supplier)
            made.stores = stores.key_value("more")  # type: ignore[attr-defined]
            return made

    wrapper = Everything()
    with TopologyTestDriver(build(), processor_wrapper=wrapper) as driver:
        driver.create_input_topic("all", key=str, value=str).pipe("a", "1")
        assert dict(driver.store("all").all()) == {"a": "1"}
    assert wrapper.asked == ["keeps"]
    with pytest.raises(TopologyError, match="keeps writes a global store, and has no other one"):
        TopologyTestDriver(build(), processor_wrapper=Brings)


def test_what_isn_t_a_wrapper_or_returns_no_supplier_says_so() -> None:
    class Nothing(ProcessorWrapper):
        def wrap_processor_supplier(self, node: str, supplier: Supplier) -> Any:
            """Forgets to return."""

    class Same(ProcessorWrapper):
        def wrap_processor_supplier(self, node: str, supplier: Supplier) -> Supplier:
            one = supplier()
            return lambda: one

    for wrapper, why in (
        (Nothing, "the processor wrapper returns no supplier for KSTREAM-FILTER-0000000001"),
        (Same, "the supplier of KSTREAM-FILTER-0000000001 returns the same object each time"),
    ):
        with pytest.raises(TopologyError, match=why):
            TopologyTestDriver(program(), processor_wrapper=wrapper)
    for value in (5, "nowhere:Wrapper", Around):
        with pytest.raises((ConfigError, TypeError), match=r"ProcessorWrapper|can't be imported|inner"):
            TopologyTestDriver(program(), processor_wrapper=value)


def test_an_error_of_a_wrapped_operator_names_its_node() -> None:
    def fails(_: str) -> str:
        raise ValueError("no")

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(fails, name="fails").to("out")
    with (
        TopologyTestDriver(builder, processor_wrapper=Everything) as driver,
        pytest.raises(ProcessingError, match="node fails"),
    ):
        driver.create_input_topic("in", key=serdes.STRING, value=serdes.STRING).pipe("a", "b")
