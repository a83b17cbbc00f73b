"""Aggregations and tables: values, old values, timestamps, deletions."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.topology import KTable, Processor, StreamsBuilder
from milestones.common.topology.graph import ProcessorGraphNode

TEXT, LONG = serdes.STRING, serdes.LONG


class Tap(Processor):
    """Sees a table's updates as they are, and keeps them in `seen`."""

    seen: list[Any] = []  # noqa: RUF012  the test's own list, by subclass

    def process(self, record: Any) -> None:
        self.seen.append((record.key, record.value, record.timestamp))


def tap(table: KTable) -> list[Any]:
    """The updates (key, (new, old), timestamp) that `table` sends."""
    from milestones.common.topology.processor import ProcessorOperator

    seen: list[Any] = []
    operator = ProcessorOperator(type("Tapping", (Tap,), {"seen": seen}))
    table._graph.add(ProcessorGraphNode(f"tap-{table.name}", lambda: operator), table._node)
    return seen


def old_values_of(table: KTable) -> list[Any]:
    """The same, of a table that is made to send old values, as `group_by` makes it."""
    table._state.want_old_values(force=True)
    return tap(table)


@pytest.mark.parametrize("use", [
    lambda grouped: grouped.count(),
    lambda grouped: grouped.reduce(max),
    lambda grouped: grouped.aggregate(str, lambda k, v, a: a + v, value=TEXT),
])  # fmt: skip
def test_a_null_key_or_value_is_dropped_and_counted_by_stream_aggregations(run: Any, use: Any) -> None:
    builder = StreamsBuilder()
    table = use(builder.stream("in", key=TEXT, value=TEXT).group_by_key())
    task = run(builder).feed("in", (None, "x"), ("a", None))
    assert task.drops == [(table.name, "null key or value")] * 2
    assert task.stores[table._state.name].rows == {}


def test_reduce_starts_with_the_first_value(run: Any) -> None:
    builder = StreamsBuilder()
    seen = tap(builder.stream("in", key=TEXT, value=TEXT).group_by_key().reduce(lambda a, b: a + b, "joined"))
    run(builder).feed("in", ("a", "x", 5), ("a", "y", 2), ("a", "z", 7))
    assert seen == [("a", ("x", None), 5), ("a", ("xy", None), 5), ("a", ("xyz", None), 7)]


def test_an_aggregate_of_none_deletes_the_row_and_starts_again(run: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    seen = old_values_of(grouped.aggregate(str, lambda k, v, a: None if v == "!" else a + v, "joined", value=TEXT))
    task = run(builder).feed("in", ("a", "x", 5), ("a", "!", 2), ("a", "z", 3))
    assert seen == [("a", ("x", ""), 5), ("a", (None, "x"), 5), ("a", ("z", ""), 3)]
    assert task.stores["joined"].rows == {"a": ("z", 3)}


def test_old_values_are_sent_only_when_something_needs_them(run: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    plain, counted = tap(grouped.count()), old_values_of(grouped.count())
    reduced = old_values_of(grouped.reduce(max))
    run(builder).feed("in", ("a", "x"), ("a", "y"))
    assert plain == [("a", (1, None), 1), ("a", (2, None), 1)]
    assert counted == [("a", (1, 0), 1), ("a", (2, 1), 1)]  # Kafka Streams sends the initializer's 0, too
    assert reduced == [("a", ("x", None), 1), ("a", ("y", "x"), 1)]


def test_a_table_source_without_a_name_keeps_nothing(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=TEXT)
    seen = tap(table)
    task = run(builder)
    assert task.stores == {}
    for key, value, timestamp in [("a", "x", 5), ("a", None, 2), (None, "y", 3)]:
        task.pipe("in", key, value, timestamp)
    assert seen == [("a", ("x", None), 5), ("a", (None, None), 2)]
    assert task.drops == [(table.name, "null key")]
    assert table.queryable_store_name is None


def test_a_named_table_keeps_the_last_value_even_if_it_is_older(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", "rows", key=TEXT, value=TEXT)
    seen = old_values_of(table)
    task = run(builder).feed("in", ("a", "x", 5), ("a", "y", 2), ("a", None, 9), ("a", "z", 1))
    assert seen == [("a", ("x", None), 5), ("a", ("y", "x"), 2), ("a", (None, "y"), 9), ("a", ("z", None), 1)]
    assert task.stores["rows"].rows == {"a": ("z", 1)}
    assert table.queryable_store_name == "rows"


def test_a_table_filter_deletes_downstream_what_no_longer_passes(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=LONG)
    big, small = tap(table.filter(lambda k, v: v > 10)), tap(table.filter_not(lambda k, v: v > 10))
    run(builder).feed("in", ("a", 5), ("a", 20), ("a", None))
    assert big == [("a", (None, None), 1), ("a", (20, None), 1), ("a", (None, None), 1)]
    assert small == [("a", (5, None), 1), ("a", (None, None), 1), ("a", (None, None), 1)]


@pytest.mark.parametrize("store", [None, "filtered"])
def test_a_filter_on_a_kept_table_sends_no_tombstone_for_rows_that_never_passed(run: Any, store: str | None) -> None:
    builder = StreamsBuilder()
    seen = tap(builder.table("in", "rows", key=TEXT, value=LONG).filter(lambda k, v: v > 10, store))
    task = run(builder).feed("in", ("a", 5), ("a", 6), ("a", 20), ("a", 30), ("a", 7), ("a", None))
    assert seen == [("a", (20, None), 1), ("a", (30, 20), 1), ("a", (None, 30), 1)]
    assert task.stores["rows"].rows == {}


def test_table_map_values_maps_new_and_old_values_and_passes_deletions(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", "rows", key=TEXT, value=LONG)
    plain = tap(table.map_values(lambda v: v * 2))
    old = old_values_of(table.map_values(lambda k, v: f"{k}{v}", with_key=True))
    kept = old_values_of(table.map_values(lambda v: -v, "negative", value=LONG))
    run(builder).feed("in", ("a", 1), ("a", 2), ("a", None))
    assert plain == [("a", (2, None), 1), ("a", (4, None), 1), ("a", (None, None), 1)]
    assert old == [("a", ("a1", None), 1), ("a", ("a2", "a1"), 1), ("a", (None, "a2"), 1)]
    assert kept == [("a", (-1, None), 1), ("a", (-2, -1), 1), ("a", (None, -2), 1)]


def test_a_table_that_is_grouped_gets_a_store_for_its_old_values(run: Any) -> None:
    builder = StreamsBuilder()
    builder.table("users", key=TEXT, value=TEXT).map_values(str.upper).group_by(
        lambda user, city: (city, user), key=TEXT, value=TEXT
    ).count("per-city").to_stream().to("out")
    task = run(builder).feed("users", ("ann", "rome"), ("bob", "rome"), ("ann", "oslo"), ("bob", None), (None, "rome"))
    assert task.stores["per-city"].rows == {"OSLO": (1, 1), "ROME": (0, 1)}
    assert task.rows("out") == [("ROME", 1, 1), ("ROME", 2, 1), ("ROME", 1, 1), ("OSLO", 1, 1), ("ROME", 0, 1)]
    assert "users-STATE-STORE-0000000000" in task.stores


def test_a_table_aggregation_subtracts_before_it_adds(run: Any) -> None:
    builder, calls = StreamsBuilder(), []

    def add(key: Any, value: Any, total: int) -> int:
        calls.append(("add", key, value, total))
        return total + value

    def subtract(key: Any, value: Any, total: int) -> int:
        calls.append(("subtract", key, value, total))
        return total - value

    table = builder.table("in", key=TEXT, value=LONG)
    grouped = table.group_by(lambda k, v: ("odd" if v % 2 else "even", v), key=TEXT, value=LONG)
    seen = old_values_of(grouped.aggregate(lambda: 100, add, subtract, value=LONG))
    run(builder).feed("in", ("a", 1, 5), ("a", 3, 2), ("a", 4, 9))
    assert calls == [
        ("add", "odd", 1, 100),
        ("subtract", "odd", 1, 101),  # the same group: one update with both values
        ("add", "odd", 3, 100),
        ("subtract", "odd", 3, 103),  # another group: the old one first
        ("add", "even", 4, 100),
    ]
    assert seen == [
        ("odd", (101, None), 5),
        ("odd", (103, 101), 5),
        ("odd", (100, 103), 9),
        ("even", (104, None), 9),
    ]


def test_a_table_reduction_reduces_old_and_new_values(run: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in", key=TEXT, value=LONG).group_by(lambda k, v: ("all", v), key=TEXT, value=LONG)
    seen = old_values_of(grouped.reduce(lambda total, v: total + v, lambda total, v: total - v or None, "sum"))
    task = run(builder).feed("in", ("a", 1, 5), ("b", 2, 3), ("a", 10, 4), ("a", None, 6), ("b", None, 7))
    assert seen == [
        ("all", (1, None), 5),
        ("all", (3, 1), 5),
        ("all", (12, 3), 5),
        ("all", (2, 12), 6),
        ("all", (None, 2), 7),
    ]
    assert task.stores["sum"].rows == {}


@pytest.mark.parametrize("pair", [(None, "v"), ("k", None)])
def test_pairs_with_a_none_are_left_out_of_a_table_s_group_by(run: Any, pair: Any) -> None:
    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT).group_by(lambda k, v: pair, key=TEXT, value=TEXT).count("n")
    task = run(builder).feed("in", ("a", "x"))
    assert task.stores["n"].rows == {}
    assert task.drops == []


def test_to_table_keeps_the_latest_value_and_to_stream_forgets_the_old(run: Any) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    table = stream.to_table("rows")
    table.group_by(lambda k, v: (v, k), key=TEXT, value=TEXT).count()
    table.to_stream(lambda key, value: f"{key}/{value}").to("out", key=TEXT)
    task = run(builder).feed("in", ("a", "x"), ("a", "y"), ("a", None))
    assert task.rows("out") == [("a/x", "x", 1), ("a/y", "y", 1), ("a/None", None, 1)]
    assert task.stores["rows"].rows == {}


def test_a_cached_table_sends_its_updates_at_the_flush(run: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    grouped.count("counts").to_stream().to("out")
    grouped.count("eager", caching=False).to_stream().to("eager-out")
    old = old_values_of(grouped.count("old"))
    task = run(builder, cached=True)
    for _ in range(3):
        task.pipe("in", "a", "x", 4)
    assert (task.rows("out"), len(task.rows("eager-out")), old) == ([], 3, [])
    task.flush("counts")
    task.flush("old")
    assert task.rows("out") == [("a", 3, 4)]
    assert old == [("a", (3, None), 4)]


def test_two_aggregations_of_a_named_group_share_its_repartition_topic(run: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by(lambda k, v: v, name="by-value", key=TEXT, value=TEXT)
    grouped.count("counts")
    grouped.reduce(max, "highest")
    task = run(builder).feed("in", ("a", "x"))
    assert [sub.source_topics for sub in task.subs] == [("in",), ("app-by-value-repartition",)]
    assert task.stores["counts"].rows == {"x": (1, 1)}
    assert task.stores["highest"].rows == {"x": ("x", 1)}


def test_store_options_reach_the_store_s_spec() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key(key=TEXT)
    grouped.count("n", logging=False, caching=False, in_memory=True)
    grouped.count("m", changelog_config={"retention.ms": "1"}, value=serdes.JSON)
    first, second = builder.build().resolve("app")[0].stores
    assert (first.kind, first.logged, first.cached, first.persistent) == ("timestamped-key-value", False, False, False)
    assert (first.key_serde, first.value_serde) == (TEXT, LONG)
    assert (second.logged, second.cached, second.persistent) == (True, True, True)
    assert (dict(second.changelog_config), second.value_serde) == ({"retention.ms": "1"}, serdes.JSON)


def test_an_unknown_store_option_is_an_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="cachng"):
        StreamsBuilder().stream("in").group_by_key().count("n", cachng=False)  # type: ignore[call-arg]


def test_a_row_for_which_the_selector_of_group_by_gives_none_is_in_no_group(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", "rows", key=TEXT, value=TEXT)
    grouped = table.group_by(lambda key, value: None if value == "-" else (value, key), key=TEXT, value=TEXT)
    grouped.count("counts").to_stream().to("out", key=TEXT, value=LONG)
    task = run(builder).feed("in", ("a", "-"), ("a", "x"), ("b", "x"), ("a", "-"), ("b", None), ("b", "-"))
    assert [(key, count) for key, count, _ in task.rows("out")] == [("x", 1), ("x", 2), ("x", 1), ("x", 0)]


def test_updates_out_of_order_are_applied_and_logged_with_where_they_are(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    builder.table("in", "rows", key=TEXT, value=TEXT).to_stream().to("out", key=TEXT, value=TEXT)
    task = run(builder).feed("in", ("a", "new", 100))
    for number in range(20):
        task.pipe("in", "a", f"old {number}", 99 - number)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.rpartition("; ")[2] for text in warnings] == [f"{n} so far" for n in (1, 2, 4, 8, 16)]
    assert warnings[0].startswith("table rows: the update at in-0 offset 5 is out of order, its timestamp is 99 and")
    assert task.stores["rows"].rows == {"a": ("old 19", 80)}
