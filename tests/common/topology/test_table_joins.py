"""Joins with tables against Kafka Streams itself (reference/TableJoins.java), and what a user may rely on besides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.assignment.plan import plan_tasks
from milestones.common.errors import TopologyError
from milestones.common.topology import FixedKeyProcessor, FixedKeyRecord, JoinWindows, StreamsBuilder
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness
from tests.common.topology.replaying import replayed
from tests.common.topology.table_join_programs import TEXT, always, table_join_semantics

LONG, LARGE = serdes.LONG, 10_000_000

EXPECTED = Path(__file__).with_name("expected")
OUTPUTS = (
    "inner", "kept-inner", "inner-rows", "left", "outer", "left-rows", "outer-rows", "far", "chained", "self",
    "stream-inner", "stream-left", "stream-far", "rekeyed-inner", "rekeyed-left", "twice",
)  # fmt: skip


def pair(value: Any, other: Any) -> str:
    return f"{value}+{other}"


@pytest.mark.parametrize(("file", "cache"), [("table-joins.tsv", 0), ("table-joins-cached.tsv", 10 << 20)])
def test_every_record_leads_to_the_results_that_kafka_streams_sends(file: str, cache: int) -> None:
    expected = (EXPECTED / file).read_text().splitlines()
    settings = {"default_key_serde": TEXT, "default_value_serde": TEXT, "statestore_cache_max_bytes": cache}
    with TopologyTestDriver(table_join_semantics(), **settings) as driver:
        inputs = {name: driver.create_input_topic(name, key=TEXT, value=TEXT) for name in "abcdes"}
        outs = {name: driver.create_output_topic(name, key=TEXT, value=TEXT) for name in OUTPUTS}
        assert replayed(expected, inputs, outs) == expected


def test_a_join_gives_what_a_processor_that_looks_the_table_up_gives() -> None:
    builder = StreamsBuilder()
    products = builder.table("products", "products", key=TEXT, value=TEXT)
    orders = builder.stream("orders", key=TEXT, value=TEXT)
    orders.left_join(products, lambda order, product: product or "unknown").to("joined", value=TEXT)
    orders.process_values(Lookup, "products").to("looked-up", value=TEXT)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("products", key=TEXT, value=TEXT).pipe("p1", "pump")
        for key in ("p1", "p2"):
            driver.create_input_topic("orders", key=TEXT, value=TEXT).pipe(key, "one of them")
        for topic in ("joined", "looked-up"):
            out = driver.create_output_topic(topic, key=TEXT, value=TEXT)
            assert out.read_key_values() == [("p1", "pump"), ("p2", "unknown")]


class Lookup(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord) -> None:
        found: Any = self.context.get_state_store("products").get(record.key)
        self.context.forward(record.with_value("unknown" if found is None else found.value))


# ---- what is kept


def test_the_tables_that_a_join_reads_are_kept_under_the_names_of_kafka_streams() -> None:
    builder = StreamsBuilder()
    users, cities = builder.table("users", key=TEXT, value=TEXT), builder.table("cities", key=TEXT, value=TEXT)
    joined = users.filter(always).join(cities.map_values(str), pair, key=TEXT, value=TEXT)
    (sub,) = builder.build().resolve("app")
    assert [store.name for store in sub.stores] == [
        "users-STATE-STORE-0000000000", "cities-STATE-STORE-0000000003", "KTABLE-MERGE-STATE-STORE-0000000008",
    ]  # fmt: skip
    assert joined.queryable_store_name == "KTABLE-MERGE-STATE-STORE-0000000008"
    assert (users.queryable_store_name, users.join(cities, pair).queryable_store_name) == (None, None)


def test_a_join_reads_the_store_of_a_derived_table_that_has_one() -> None:
    builder = StreamsBuilder()
    upper = builder.table("users", key=TEXT, value=TEXT).map_values(str.upper, "upper", value=TEXT)
    builder.stream("in", key=TEXT, value=TEXT).join(upper, pair).to("out")
    (sub,) = builder.build().resolve("app")
    assert [store.name for store in sub.stores] == ["upper"]


def test_options_of_a_join_reach_its_store() -> None:
    builder = StreamsBuilder()
    builder.table("a").outer_join(builder.table("b"), pair, "both", key=TEXT, value=LONG, logging=False, in_memory=True)
    (store,) = (spec for spec in builder.build().resolve("app")[0].stores if spec.name == "both")
    assert (store.kind, store.key_serde, store.value_serde) == ("timestamped-key-value", TEXT, LONG)
    assert (store.logged, store.persistent, store.cached) == (False, False, True)


@pytest.mark.parametrize("cache", [0, LARGE])
def test_a_deletion_of_a_joined_row_is_logged_at_the_time_of_the_update(cache: int) -> None:
    task = tables("join", cache)
    task.pipe(("k", "a1", 5), topic="a")
    task.pipe(("k", "b1", 9), topic="b")
    task.commit()
    task.pipe(("k", None, 7), topic="a")
    task.commit()
    log = [output for output in task.sent if output.topic == "app-rows-changelog"]
    assert [(output.value, output.timestamp) for output in log][-1] == (None, 9)
    assert [(output.value, output.timestamp) for output in task.sent if output.topic == "out"][-1] == (None, 9)


# ---- serdes


def test_the_serdes_of_a_join_are_those_of_its_repartition_topic() -> None:
    builder = StreamsBuilder()
    table = builder.table("users", key=LONG, value=TEXT)
    stream = builder.stream("in", key=TEXT, value=TEXT).map(lambda k, v: (int(v), len(k)))
    stream.join(table, pair, key=LONG, value=LONG, name="by-user").to("out", value=TEXT)
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("users", key=LONG, value=TEXT).pipe(7, "ann")
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("xyz", "7")
        (written,) = driver.produced()["topology-test-driver-by-user-repartition"]
        assert (written.key, written.value) == (LONG.serialize("", 7), LONG.serialize("", 3))
        assert driver.create_output_topic("out", key=LONG, value=TEXT).read_key_values() == [(7, "3+ann")]


# ---- records without a key


def test_a_record_without_a_key_is_dropped_and_counted_or_joined_with_none_on_the_left(run: Any) -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("in", key=TEXT, value=TEXT), builder.table("t", key=TEXT, value=TEXT)
    inner, left = stream.join(table, pair), stream.left_join(table, pair)
    inner.to("inner", value=TEXT)
    left.to("left", value=TEXT)
    task = run(builder).feed("in", (None, "x"), ("a", None), (None, None))
    assert task.drops == [
        (inner.name, "null key or value"),
        *[(each.name, "null key or value") for each in (inner, left)] * 2,
    ]
    assert (task.rows("inner"), task.rows("left")) == ([], [(None, "x+None", 1)])


def test_a_repartition_topic_has_records_without_a_key_only_where_a_left_join_follows(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("t", key=TEXT, value=TEXT)
    stream = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda k, v: None)
    stream.join(table, pair, name="inner").to("inner-out", value=TEXT)
    stream.left_join(table, pair, name="left").to("left-out", value=TEXT)
    stream.group_by_key(name="grouped").count()
    task = run(builder).feed("in", ("a", "x"))
    assert task.drops == []
    assert (task.rows("inner-out"), task.rows("left-out")) == ([], [(None, "x+None", 1)])


def test_a_table_joined_to_a_stream_on_the_left_keeps_no_null_keys_in_its_own_repartition_topic(run: Any) -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda k, v: None).to_table("t")
    builder.stream("s", key=TEXT, value=TEXT).left_join(table, pair).to("out", value=TEXT)
    assert run(builder).feed("in", ("a", "x")).drops == []


# ---- together or not at all


def tables(join: str, cache: int = 0, joiner: Any = None, **settings: Any) -> Harness:
    """A started task that joins the tables "a" and "b", kept in "rows"; a value "fail" raises."""
    builder = StreamsBuilder()
    a, b = (builder.table(topic, topic, key=TEXT, value=TEXT) for topic in "ab")
    getattr(a, join)(b, joiner or failing, "rows", key=TEXT, value=TEXT).to_stream().to("out")
    return Harness(builder.build(), cache_max_bytes=cache, max_task_idle_ms=-1, **settings).start()


def failing(value: Any, other: Any) -> str:
    if "fail" in (value, other):
        raise RuntimeError("user code")
    return f"{value}+{other}"


def test_a_record_whose_join_fails_changes_neither_table() -> None:
    task = tables("outer_join", processing_handler=LogAndContinue())
    task.pipe(("k", "a1", 1), topic="a")
    task.pipe(("k", "fail", 2), topic="b")
    task.pipe(("k", "a2", 3), topic="a")
    task.commit()
    outputs = [(output.value, output.timestamp) for output in task.sent if output.topic == "out"]
    assert outputs == [(b"a1+None", 1), (b"a2+None", 3)]
    assert task.engine("b") == {}
    assert [row[8:] for row in task.engine("rows").values()] == [b"a2+None"]


def test_a_stream_s_record_whose_join_fails_leaves_nothing_behind() -> None:
    builder = StreamsBuilder()
    table = builder.table("a", "a", key=TEXT, value=TEXT)
    stream = builder.stream("s", key=TEXT, value=TEXT)
    stream.group_by_key().count("counts")
    stream.join(table, failing).to("out", value=TEXT)
    task = Harness(builder.build(), max_task_idle_ms=-1, processing_handler=LogAndContinue()).start()
    task.pipe(("k", "a1", 1), topic="a")
    task.pipe(("k", "x", 2), ("k", "fail", 3), ("k", "y", 4), topic="s")
    task.commit()
    assert [output.value for output in task.sent if output.topic == "out"] == [b"x+a1", b"y+a1"]
    assert [row[8:] for row in task.engine("counts").values()] == [LONG.serialize("", 2)]


@pytest.mark.parametrize("cache", [0, LARGE])
@pytest.mark.parametrize("join", ["join", "left_join", "outer_join"])
def test_a_join_that_was_rolled_back_gives_the_same_results_again(join: str, cache: int) -> None:
    steps = [("a", ("k", "a1", 3)), ("b", ("k", "b1", 7)), ("a", ("k", None, 5)), ("b", ("k", "b2", 2))]
    plain, again = (tables(join, cache, transactional_id="app-0") for _ in range(2))
    for task in (plain, again):
        task.pipe(("k", "b0", 1), topic="b")
        task.pipe(("k", "a0", 1), topic="a")
        task.commit()
    for topic, record in steps:
        again.pipe(record, topic=topic)
    again.task.roll_back()
    for task in (plain, again):
        task.ends = {"a": 1, "b": 1}
        for topic, record in steps:
            task.pipe(record, topic=topic)
        task.commit()
    assert again.sent == plain.sent
    for store in ("a", "b", "rows"):
        assert again.engine(store) == plain.engine(store)


def test_a_cached_join_sends_the_last_result_of_each_key_at_the_commit() -> None:
    task = tables("left_join", LARGE)
    task.pipe(("k", "a1", 1), ("k", "a2", 4), topic="a")
    task.pipe(("k", "b1", 2), topic="b")
    assert task.outputs() == []
    task.commit()
    assert [output.value for output in task.sent if output.topic == "out"] == [b"a2+b1"]


# ---- co-partitioning


def counts(builder: StreamsBuilder, **partitions: int) -> Any:
    """The plan of the tasks for topics of these sizes."""
    return plan_tasks(builder.build().resolve("app"), partitions)


def test_joined_topics_of_unequal_sizes_are_an_error_that_names_both() -> None:
    builder = StreamsBuilder()
    builder.stream("orders").filter(always).join(builder.table("users").map_values(str), pair)
    assert counts(builder, orders=3, users=3).error is None
    assert "orders (3), users (4); repartition" in counts(builder, orders=3, users=4).error
    tables = StreamsBuilder()
    tables.table("users").outer_join(tables.table("cities"), pair)
    assert "cities (1), users (4); repartition" in counts(tables, users=4, cities=1).error


def test_topics_of_a_pattern_are_held_to_the_size_of_the_topic_they_are_joined_with() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders.*")).join(builder.table("users"), pair)
    assert counts(builder, orders1=3, orders2=3, users=3).error is None
    assert "orders1 (3), orders2 (2), users (3)" in counts(builder, orders1=3, orders2=2, users=3).error


def test_a_stream_read_twice_is_held_to_the_sizes_of_all_that_it_is_joined_with() -> None:
    builder = StreamsBuilder()
    builder.stream("orders").join(builder.table("users"), pair)
    builder.stream("orders").join(builder.table("cities"), pair)
    assert "cities (2), orders (3), users (3)" in counts(builder, orders=3, users=3, cities=2).error


def test_the_repartition_topic_of_a_rekeyed_stream_takes_the_size_of_the_table_s_topic() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("orders").select_key(lambda k, v: v)
    rekeyed.join(builder.table("users"), pair, name="by-user").left_join(builder.table("cities"), pair)
    plan = counts(builder, orders=3, users=4, cities=4)
    assert (plan.error, plan.repartition_counts) == (None, {"app-by-user-repartition": 4})
    assert "cities (5), users (4)" in counts(builder, orders=3, users=4, cities=5).error


# ---- slips


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s, t, other: t.join(s, pair), r"a KTable is joined with another KTable, not with <.*KStream.*to_table"),
        (lambda s, t, other: t.left_join("users", pair), "joined with another KTable, not with 'users'$"),
        (lambda s, t, other: s.join(s, pair), r"a join of two streams needs within=JoinWindows"),
        (lambda s, t, other: s.left_join(None, pair), "KTable, a GlobalKTable or another KStream, not with None"),
        (lambda s, t, other: s.join(t, pair, within=JoinWindows(5, grace=0)), "whose present rows are looked up"),
        (lambda s, t, other: s.join(t, pair, store="rows"), "whose present rows are looked up"),
        (lambda s, t, other: s.outer_join(t, pair), "has no outer join with a table"),
        (lambda s, t, other: s.join(t.group_by(lambda k, v: (k, v)), pair), "not with <.*KGroupedTable"),
        (lambda s, t, other: t.outer_join(other, pair), "belong to two StreamsBuilders"),
        (lambda s, t, other: s.join(other, pair), r"KSTREAM-SOURCE-\d+ and KTABLE-SOURCE-\d+ belong to two Streams"),
        (lambda s, t, other: s.join(t, "joiner"), "needs a function, not 'joiner'"),
        (lambda s, t, other: t.join(t, None), "needs a function, not None"),
        (lambda s, t, other: s.join(t, lambda v: v), "is called with 2 arguments"),
        (lambda s, t, other: s.join(t, pair, with_key=True), "is called with 3 arguments"),
        (lambda s, t, other: t.join(t, lambda k, v, w: v), "is called with 2 arguments"),
        (lambda s, t, other: t.join(t, a_coroutine), "a_coroutine"),
        (lambda s, t, other: s.join(t, pair, key="text"), "key must be a Serde"),
        (lambda s, t, other: t.join(t, pair, "not a name!"), "a store can't be named"),
    ],
)
def test_a_slip_is_an_error_that_says_what_to_do(use: Any, message: str) -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("s"), builder.table("t")
    other = StreamsBuilder().table("other")

    def build() -> None:
        use(stream, table, other)
        builder.build()

    with pytest.raises(TopologyError, match=message):
        build()


async def a_coroutine(value: Any, other: Any) -> Any:
    return value


def test_a_table_of_a_shared_repartition_topic_is_joined_wherever_it_was_written() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by(lambda k, v: v, name="by-value")
    table = grouped.count("first")
    builder.stream("s", key=TEXT, value=TEXT).join(table, pair).to("out", value=TEXT)
    grouped.count("second")
    assert [sub.source_topics for sub in builder.build().resolve("app")] == [
        ("in",), ("app-by-value-repartition", "s"),
    ]  # fmt: skip
