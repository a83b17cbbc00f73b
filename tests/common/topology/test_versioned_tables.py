"""Versioned tables: what a user may rely on beside Kafka Streams' own results (`python -m compat_tests.java`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.records import TopicPartition
from milestones.common.topology import KTable, StreamsBuilder, Topology
from milestones.common.topology.handlers import LogAndContinue
from milestones.common.topology.windows import TimeWindows
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness

TEXT, LONG = serdes.STRING, serdes.LONG
IN = TopicPartition("in", 0)
HISTORY_MS = 100

Rows = list[tuple[Any, Any, int]]


def driven(program: Callable[[KTable], Any], *records: tuple[str, str | None, int]) -> tuple[Rows, TopologyTestDriver]:
    """What a program on a versioned table writes to `out`."""
    builder = StreamsBuilder()
    program(builder.table("in", "rows", history=HISTORY_MS, key=TEXT, value=TEXT))
    driver = TopologyTestDriver(builder.build())
    for key, value, timestamp in records:
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe(key, value, timestamp=timestamp)
    out = driver.create_output_topic("out", key=TEXT, value=TEXT)
    return [(each.key, each.value, each.timestamp) for each in out.read_records()], driver


def to_out(table: KTable) -> None:
    table.to_stream().to("out", key=TEXT, value=TEXT)


UPDATES = (("k", "a", 10), ("k", "c", 30), ("k", "b", 20))


def test_the_table_s_store_knows_the_value_of_each_time() -> None:
    _, driver = driven(to_out, *UPDATES, ("k", None, 40))
    rows = driver.store("rows")
    assert rows.get("k") is None
    assert [rows.get("k", time) and rows.get("k", time).value for time in (9, 10, 20, 29, 30, 40)] == [
        None, "a", "b", "b", "c", None,
    ]  # fmt: skip
    assert [tuple(each) for each in rows.versions("k")] == [("a", 10, 20), ("b", 20, 30), ("c", 30, 40)]


def test_an_update_out_of_order_is_sent_but_one_older_than_the_history_is_dropped_and_counted() -> None:
    sent, driver = driven(to_out, *UPDATES, ("k", "z", 1_000), ("k", "y", 899), ("k", "x", 900))
    assert sent == [("k", "a", 10), ("k", "c", 30), ("k", "b", 20), ("k", "z", 1_000), ("k", "x", 900)]
    (task,) = driver._tasks
    assert task.dropped_records == 1


@pytest.mark.parametrize(
    "line",
    [lambda t: t, lambda t: t.filter(lambda k, v: True), lambda t: t.map_values(str).filter_not(lambda k, v: False)],
    ids=["itself", "filtered", "mapped and filtered"],
)
def test_a_grouping_takes_the_latest_updates_only_whatever_unkept_tables_lie_between(line: Any) -> None:
    def program(table: KTable) -> None:
        grouped = line(table).group_by(lambda k, v: ("all", v), key=TEXT, value=TEXT)
        to_out(grouped.reduce(lambda a, v: f"{a}+{v}", lambda a, v: f"{a}-{v}"))

    sent, _ = driven(program, *UPDATES)
    assert [value for _, value, _ in sent] == ["a", "a-a+c"]


def test_a_kept_table_that_is_not_versioned_sends_every_update_as_the_latest() -> None:
    def program(table: KTable) -> None:
        plain = table.map_values(str, "plain", value=TEXT)
        grouped = plain.group_by(lambda k, v: ("all", v), key=TEXT, value=TEXT)
        to_out(grouped.reduce(lambda a, v: f"{a}+{v}", lambda a, v: f"{a}-{v}"))

    sent, _ = driven(program, *UPDATES)
    assert [value for _, value, _ in sent] == ["a", "a-a+c", "a-a+c-c+b"]


def joined(builder: StreamsBuilder) -> None:
    left = builder.table("in", "rows", history=HISTORY_MS, key=TEXT, value=TEXT)
    to_out(left.join(builder.table("other", key=TEXT, value=TEXT), lambda one, two: f"{one}&{two}"))


def test_a_join_of_tables_drops_and_counts_what_is_not_the_latest_of_its_versioned_side() -> None:
    builder = StreamsBuilder()
    joined(builder)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("other", key=TEXT, value=TEXT).pipe("k", "x", timestamp=100)
        for key, value, timestamp in UPDATES:
            driver.create_input_topic("in", key=TEXT, value=TEXT).pipe(key, value, timestamp=timestamp)
        driver.create_input_topic("other", key=TEXT, value=TEXT).pipe("k", "older", timestamp=50)
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        assert [each.value for each in out.read_records()] == ["a&x", "c&x", "c&older"]
        assert sum(task.dropped_records for task in driver._tasks) == 1


def test_a_stream_is_joined_with_the_row_of_its_record_s_time() -> None:
    builder = StreamsBuilder()
    prices = builder.table("prices", "rows", history=HISTORY_MS, key=TEXT, value=TEXT)
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.join(prices.map_values(str.upper), lambda one, two: f"{one}&{two}").to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        for key, value, timestamp in UPDATES:
            driver.create_input_topic("prices", key=TEXT, value=TEXT).pipe(key, value, timestamp=timestamp)
        for timestamp in (9, 10, 25, 30, 99):
            driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("k", "o", timestamp=timestamp)
        out = driver.create_output_topic("out", key=TEXT, value=TEXT)
        assert [each.value for each in out.read_records()] == ["o&A", "o&B", "o&C", "o&C"]


# -- in a task's life


def kept() -> Topology:
    """A versioned table and its updates. The value "bad" fails behind the table."""
    builder = StreamsBuilder()
    table = builder.table("in", "rows", history=HISTORY_MS, segment=30, key=TEXT, value=TEXT)

    def checked(key: str, value: str | None) -> str:
        if value == "bad":
            raise ValueError("a bad value")
        return key

    table.to_stream(checked).to("out", key=TEXT, value=TEXT)
    return builder.build()


def records(seed: int, count: int = 60) -> list[tuple[str, str | None, int]]:
    chance, now, made = random.Random(seed), 100, []
    for _ in range(count):
        now += chance.choice([0, 1, 3, 12, 60])
        time = max(1, now - chance.choice([0, 0, 0, 9, 70, 150]))
        made.append((chance.choice("ab"), chance.choice(["v", "w", "hidden", None]), time))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_a_versioned_table_is_the_same_in_memory_and_on_disk(seed: int) -> None:
    found = []
    for persistent in (False, True):
        with TopologyTestDriver(kept(), persistent=persistent) as driver:
            topic = driver.create_input_topic("in", key=TEXT, value=TEXT)
            for key, value, timestamp in records(seed, 200):
                topic.pipe(key, value, timestamp=timestamp)
            rows = driver.store("rows")
            versions = [list(rows.versions(key)) for key in "ab"]
            at = [rows.get(key, time) for key in "ab" for time in range(0, 5_000, 7)]
            found.append((driver.produced(), versions, at, list(rows.all())))
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(8))
def test_a_roll_back_at_any_record_changes_no_result_and_no_version(seed: int) -> None:
    made = records(seed)
    whole = Harness(kept()).start()
    whole.pipe(*made)
    expected = whole.outputs()
    whole.commit()
    again = Harness(kept(), transactional_id="app").start()
    assert again.pipe_in_parts(made, random.Random(seed), Harness.outputs) == expected
    assert again.engine("rows") == whole.engine("rows")


def test_a_record_that_fails_leaves_no_version_and_no_time_behind() -> None:
    """What comes after a skipped record isn't too old for its sake."""
    harness = Harness(kept(), processing_handler=LogAndContinue()).start()
    harness.pipe(("a", "v", 100), ("a", "bad", 5_000), ("a", "w", 101), ("a", "u", 90))
    outputs = harness.outputs()
    assert [output[2:] for output in outputs if output[0] == "out"] == [(b"v", 100), (b"w", 101), (b"u", 90)]
    harness.commit()
    assert not [row for row in harness.engine("rows").values() if b"bad" in row]
    assert harness.task.dropped_records == 1, "the skipped one"


def test_another_process_knows_what_is_too_old() -> None:
    first = Harness(kept()).start()
    first.pipe(("a", "v", 10), ("b", "v", 1_000))
    first.outputs()
    first.commit()
    second = Harness(kept())
    second.task.open()
    second.state.apply({"rows": first.engine("rows")}, {"rows": 2})
    second.task.start({IN: 2}, {})
    second.ends["in"] = 2
    second.pipe(("a", "too old", 899), ("a", "old", 900))
    assert [output[2:] for output in second.outputs() if output[0] == "out"] == [(b"old", 900)]


# -- bad input


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda b: b.table("in", history=5), "give its store a name"),
        (lambda b: b.table("in", "s", segment=5), "segment= is only for versioned tables"),
        (lambda b: b.table("in", "s", history=-1), "a history must be at least 0 ms"),
        (lambda b: b.table("in", "s", history=5, segment=0), "a segment must be at least 1 ms"),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(TimeWindows(5, grace=0)).count("s", history=9),
            "a table of windows can't be versioned",
        ),
        (lambda b: b.table("in", "s", history=5).filter(bool).suppress(after=5), "is versioned, of which every update"),
    ],
)
def test_what_a_versioned_table_cannot_be_is_an_error_when_it_is_written(build: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        build(StreamsBuilder())
