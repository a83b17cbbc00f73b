"""Every operator of the DSL, through the runtime's own task and stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.records import Record
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology import FixedKeyProcessor, Processor, StreamsBuilder

TEXT, LONG, JSON = serdes.STRING, serdes.LONG, serdes.JSON
Entries = list[tuple[Any, Any]]


def run(use: Callable[[Any], Any], entries: Entries, value: Any = TEXT, out: Any = TEXT, **config: Any) -> Entries:
    """What comes out of `use(stream)` for `entries`."""
    builder = StreamsBuilder()
    use(builder.stream("in", key=TEXT, value=value)).to("out", key=TEXT, value=out)
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", key=TEXT, value=value, start_time_ms=0, advance_ms=1).pipe_all(entries)
        return driver.create_output_topic("out", key=TEXT, value=out).read_key_values()


def run_table(use: Callable[[Any], Any], entries: Entries, value: Any = TEXT, out: Any = TEXT) -> Entries:
    """The same for a table of the topic."""
    builder = StreamsBuilder()
    use(builder.table("in", "rows", key=TEXT, value=value)).to_stream().to("out", key=TEXT, value=out)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=TEXT, value=value, start_time_ms=0, advance_ms=1).pipe_all(entries)
        return driver.create_output_topic("out", key=TEXT, value=out).read_key_values()


AB = [("a", "1"), ("b", "2"), ("a", "3")]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda s: s.filter(lambda key, value: key == "a"), [("a", "1"), ("a", "3")]),
        (lambda s: s.filter_not(lambda key, value: key == "a"), [("b", "2")]),
        (lambda s: s.map(lambda key, value: (value, key)), [("1", "a"), ("2", "b"), ("3", "a")]),
        (lambda s: s.map_values(lambda value: value + "!"), [("a", "1!"), ("b", "2!"), ("a", "3!")]),
        (lambda s: s.map_values(lambda k, v: k + v, with_key=True), [("a", "a1"), ("b", "b2"), ("a", "a3")]),
        (lambda s: s.flat_map(lambda k, v: [(v, k)] * (v != "2")), [("1", "a"), ("3", "a")]),
        (lambda s: s.flat_map_values(lambda v: [v, v] if v == "2" else []), [("b", "2"), ("b", "2")]),
        (lambda s: s.select_key(lambda key, value: value), [("1", "1"), ("2", "2"), ("3", "3")]),
        (lambda s: s.peek(lambda key, value: None), AB),
        (lambda s: s.merge(s.filter(lambda key, value: key == "b")), [("a", "1"), ("b", "2"), ("b", "2"), ("a", "3")]),
        (lambda s: s.repartition(), AB),
        (lambda s: s.to_table(store="t").to_stream(), AB),
        (lambda s: s.split().branch(lambda k, v: k == "b", name="b").no_default_branch().popitem()[1], [("b", "2")]),
    ],
)
def test_operators_on_streams(use: Callable[[Any], Any], expected: Entries) -> None:
    assert run(use, AB) == expected


def test_for_each_is_the_end_of_a_stream() -> None:
    seen: Entries = []

    def use(stream: Any) -> Any:
        stream.for_each(lambda key, value: seen.append((key, value)))
        return stream

    assert run(use, AB) == seen == AB


def test_branches_take_the_first_that_fits() -> None:
    builder = StreamsBuilder()
    branches = (
        builder.stream("in", key=TEXT, value=TEXT)
        .split(name="to-")
        .branch(lambda key, value: value < "2", name="low")
        .branch(lambda key, value: value < "3", name="middle")
        .default_branch(name="high")
    )
    for name, stream in branches.items():
        stream.to(name)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe_all(AB)
        outs = {name: driver.create_output_topic(name, key=TEXT, value=TEXT).read_values() for name in branches}
    assert outs == {"to-low": ["1"], "to-middle": ["2"], "to-high": ["3"]}


def test_count_by_key_and_by_another_key() -> None:
    assert run(lambda s: s.group_by_key().count().to_stream(), AB, out=LONG) == [("a", 1), ("b", 1), ("a", 2)]
    by_value = run(lambda s: s.group_by(lambda k, v: "all", key=TEXT).count().to_stream(), AB, out=LONG)
    assert by_value == [("all", 1), ("all", 2), ("all", 3)]


def test_records_without_key_or_value_arent_counted() -> None:
    entries = [("a", "1"), (None, "1"), ("a", None), ("a", "1")]
    assert run(lambda s: s.group_by_key().count().to_stream(), entries, out=LONG) == [("a", 1), ("a", 2)]


def test_reduce_and_aggregate() -> None:
    assert run(lambda s: s.group_by_key().reduce(lambda old, new: old + new).to_stream(), AB) == [
        ("a", "1"), ("b", "2"), ("a", "13"),
    ]  # fmt: skip

    def use(stream: Any) -> Any:
        grouped = stream.group_by_key()
        return grouped.aggregate(list, lambda key, value, all_: [*all_, value], value=JSON).to_stream()

    assert run(use, AB, out=JSON) == [("a", ["1"]), ("b", ["2"]), ("a", ["1", "3"])]


def test_an_aggregator_may_change_its_aggregate_in_place() -> None:
    def append(key: Any, value: Any, all_: list[Any]) -> list[Any]:
        all_.append(value)
        return all_

    use = lambda stream: stream.group_by_key().aggregate(list, append, value=JSON).to_stream()  # noqa: E731
    assert run(use, AB, out=JSON) == [("a", ["1"]), ("b", ["2"]), ("a", ["1", "3"])]


def test_a_table_keeps_the_latest_row_and_deletes() -> None:
    entries = [("a", "1"), ("a", "2"), ("a", None), (None, "x")]
    assert run_table(lambda t: t, entries) == [("a", "1"), ("a", "2"), ("a", None)]


def test_operators_on_tables() -> None:
    entries = [("a", "1"), ("b", "2"), ("a", "3"), ("b", None)]
    assert run_table(lambda t: t.filter(lambda k, v: v > "1"), entries) == [("b", "2"), ("a", "3"), ("b", None)]
    assert run_table(lambda t: t.filter_not(lambda k, v: v > "1"), entries)[0] == ("a", "1")
    assert run_table(lambda t: t.map_values(lambda v: v + "!"), entries) == [
        ("a", "1!"), ("b", "2!"), ("a", "3!"), ("b", None),
    ]  # fmt: skip
    stored = run_table(lambda t: t.map_values(lambda v: v + "!", store="mapped"), entries)
    assert stored == [("a", "1!"), ("b", "2!"), ("a", "3!"), ("b", None)]


def test_a_grouped_table_counts_rows_where_they_are_now() -> None:
    entries = [("k1", "x"), ("k2", "x"), ("k1", "y"), ("k2", None)]
    counted = run_table(lambda t: t.group_by(lambda k, v: (v, v), key=TEXT, value=TEXT).count(), entries, out=LONG)
    assert dict(counted) == {"x": 0, "y": 1}
    assert counted[:3] == [("x", 1), ("x", 2), ("x", 1)]


def test_a_grouped_table_reduces_and_aggregates() -> None:
    entries = [("k1", 5), ("k2", 7), ("k1", 1)]

    def group(table: Any) -> Any:
        return table.group_by(lambda key, value: ("all", value), key=TEXT, value=LONG)

    reduced = run_table(lambda t: group(t).reduce(lambda a, b: a + b, lambda a, b: a - b), entries, LONG, LONG)
    summed = run_table(
        lambda t: group(t).aggregate(int, lambda k, v, a: a + v, lambda k, v, a: a - v, value=LONG),
        entries, LONG, LONG,
    )  # fmt: skip
    assert reduced[-1] == summed[-1] == ("all", 8)


def test_processors_of_both_kinds() -> None:
    class Doubling(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_key(record.value))
            self.context.forward(record)

    class Shouting(FixedKeyProcessor):
        def process(self, record: Any) -> None:
            self.context.forward(record.with_value(record.value + "!"))

    assert run(lambda s: s.process(Doubling), AB[:1]) == [("1", "1"), ("a", "1")]
    assert run(lambda s: s.process_values(Shouting), AB[:1]) == [("a", "1!")]


def test_a_number_of_aggregations_share_one_stream() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    grouped.count("counts").to_stream().to("counts")
    grouped.reduce(max, store="highest").to_stream().to("highest")
    with TopologyTestDriver(builder.build(), persistent=True) as driver:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe_all(AB)
        assert driver.create_output_topic("counts", key=TEXT, value=LONG).read_key_values_to_map() == {"a": 2, "b": 1}
        assert driver.store("highest").get("a").value == "3"
