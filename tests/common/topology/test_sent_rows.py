"""A sink to which an operator's very rows go sends the bytes that the store has made: they are made once."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from contextlib import closing
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.partitioner import partition_of
from milestones.common.records import TopicPartition
from milestones.common.serdes import Serde
from milestones.common.topology import KStream, StreamsBuilder
from milestones.common.topology.handlers import LogAndContinue
from milestones.common.topology.operators import aggregates, tables
from milestones.common.topology.operators.aggregates import (
    StreamAggregate,
    StreamCount,
    StreamReduce,
    TableAggregate,
    TableReduce,
)
from milestones.common.topology.operators.tables import TableFilter, TableMapValues, TableSource
from milestones.common.topology.windows import TimeWindows
from milestones.common.windowed import Windowed, WindowedSerde
from tests.common.task.harness import Harness, named
from tests.common.task.several_tasks import SeveralTasks

Way = Callable[[KStream[Any, Any]], Any]
Aggregator = Callable[[str, Any, Any], Any]

FAIL, DROP = -1, -2
TEN = TimeWindows(10, grace=0)
STREAM: dict[str, Any] = {"key": serdes.STRING, "value": serdes.JSON}
LARGE = 10_000_000


class Counted:
    """JSON, and the number of values that were written."""

    def __init__(self) -> None:
        self.written = 0
        self.serde: Serde[Any] = Serde(self._write, orjson.loads, name="counted")

    def _write(self, value: Any) -> bytes:
        self.written += 1
        return orjson.dumps(value)


def add(_key: str, value: int, total: dict[str, int]) -> dict[str, int] | None:
    """The sum in a new object."""
    if value == FAIL:
        raise RuntimeError("user code")
    return None if value == DROP else {"sum": total["sum"] + value}


SHARED: dict[str, int] = {}


def add_in_place(key: str, value: int, total: dict[str, int]) -> dict[str, int] | None:
    """The sum in one object for all keys and records, which changes before the failure, too."""
    SHARED["sum"] = total["sum"] + value
    return None if add(key, value, total) is None else SHARED


def sums(way: Way, value: Serde[Any] = serdes.JSON, aggregator: Aggregator = add, cache: int = 0) -> Harness:
    """A task with a sum per key, whose updates go `way`."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.JSON).group_by_key()
    way(stream.aggregate(lambda: {"sum": 0}, aggregator, "store", value=value).to_stream())
    return Harness(builder.build(), cache_max_bytes=cache, processing_handler=LogAndContinue()).start()


def change(_key: str, value: dict[str, int]) -> None:
    value["sum"] = 7


def to_both(stream: KStream[Any, Any], first: Way) -> None:
    first(stream)
    stream.to("out")


WAYS: dict[str, tuple[Way, list[int], int]] = {
    "at once": (lambda stream: stream.to("out"), [1, 4], 2),
    "mapped": (lambda stream: stream.map_values(lambda value: {"sum": -value["sum"]}).to("out"), [-1, -4], 4),
    "changed": (lambda stream: stream.peek(change).to("out"), [7, 7], 4),
    "changed in another branch": (lambda stream: to_both(stream, lambda first: first.peek(change)), [1, 4], 4),
    "to a chosen topic": (lambda stream: stream.to(lambda key, value, context: "out"), [1, 4], 4),
}
"""The sums that are sent of 1 and 3, and how many values are written."""


@pytest.mark.parametrize("name", WAYS)
def test_a_row_is_written_once_unless_the_users_code_sees_it_on_its_way(name: str) -> None:
    way, sent, written = WAYS[name]
    counted = Counted()
    h = sums(way, counted.serde)
    h.pipe(("a", "1", 1), ("a", "3", 3))
    assert [orjson.loads(value) for topic, _, value, _ in h.outputs() if topic == "out"] == [{"sum": n} for n in sent]
    assert counted.written == written
    assert h.task.store("store").get("a").value == {"sum": 4}


RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 2, 1_000, FAIL, DROP])), max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    records=RECORDS, cache=st.sampled_from([0, 400, LARGE]), aggregator=st.sampled_from([add, add_in_place]),
    commit_each=st.integers(1, 12),
)  # fmt: skip
def test_the_outputs_are_those_of_a_sink_that_writes_each_row_itself(
    records: list[tuple[str, int]], cache: int, aggregator: Aggregator, commit_each: int
) -> None:
    def outputs(way: Way) -> list[tuple[Any, ...]]:
        h = sums(way, serdes.JSON, aggregator, cache)
        seen: list[tuple[Any, ...]] = []
        for number, (key, value) in enumerate(records, 1):
            h.pipe((key, str(value), number))
            seen += h.outputs()
            if number % commit_each == 0:
                seen += named(h.commit().all_outputs())
        return [*seen, *named(h.commit().all_outputs())]

    at_once, by_itself = (
        [output for output in outputs(way) if output[0] == "out"]
        for way in (lambda stream: stream.to("out"), lambda stream: stream.filter(lambda key, value: True).to("out"))
    )
    assert [output[:5] for output in at_once] == [output[:5] for output in by_itself]


class KeptWindows(WindowedSerde):
    """A serde of a user's that has one function for all topics."""

    __slots__ = ("_write",)

    def __init__(self) -> None:
        super().__init__(serdes.STRING, 10)
        self._write = super().serializer("")

    def serializer(self, topic: str) -> Callable[[Any], bytes]:
        return self._write


@pytest.mark.parametrize("way", [lambda stream: stream.count(), lambda stream: stream.windowed_by(TEN).count()],
                         ids=["table", "windows"])  # fmt: skip
def test_a_sink_with_another_serde_than_the_store_writes_its_own_bytes(way: Way) -> None:
    builder = StreamsBuilder()
    counts = way(builder.stream("in", **STREAM).group_by_key())
    doubled: Serde[int] = Serde(lambda count: b"%d" % (2 * count), lambda data: int(data) // 2)
    counts.to_stream().to("out", value=doubled)
    with closing(SeveralTasks(builder.build(), {"in": 1, "out": 1})) as tasks:
        tasks.pipe("in", b"a", b"1", 1)
        tasks.settle()
        assert [one.value() for one in tasks.logs[TopicPartition("out", 0)]] == [b"2"]


def test_rows_of_windows_go_to_the_partition_of_their_key_without_its_window() -> None:
    builder, key = StreamsBuilder(), KeptWindows()
    builder.table("in", "store", key=key, value=serdes.STRING).to_stream().to("out")
    h = Harness(builder.build()).start()
    for start in range(0, 60, 10):
        h.pipe((key.serialize("in", Windowed("key", start, start + 10)), "v", start + 1))
    chosen = {output.partition for output in named(h.task.take_outputs()) if output.topic == "out"}
    assert chosen == {partition_of(b"key", 3)}


class Seen(dict[str, int]):
    """A value that can be looked for."""


@pytest.mark.parametrize(("way", "cache"), [("at once", 0), ("at once", LARGE), ("mapped", 0)])
def test_no_value_is_kept_alive_by_its_store(way: str, cache: int) -> None:
    values: list[weakref.ref[Seen]] = []

    def add_seen(_key: str, value: int, total: dict[str, int]) -> Seen:
        found = Seen(sum=total["sum"] + value)
        values.append(weakref.ref(found))
        return found

    h = sums(WAYS[way][0], aggregator=add_seen, cache=cache)
    h.pipe(("a", "1", 1), ("b", "3", 2))
    h.commit()
    assert [value() for value in values] == [None, None]


def test_a_record_after_a_failed_one_sends_its_own_row() -> None:
    h = sums(lambda stream: stream.to("out"), aggregator=add_in_place)
    h.pipe(("a", "1", 1), ("a", str(FAIL), 2), ("a", str(DROP), 3), ("a", "1", 4))
    assert [(key, value) for topic, key, value, _ in h.outputs() if topic == "out"] == [
        (b"a", b'{"sum":1}'), (b"a", None), (b"a", b'{"sum":1}'),
    ]  # fmt: skip


def test_a_row_is_sent_with_the_headers_of_its_record_also_when_it_is_deleted() -> None:
    h = sums(lambda stream: stream.to("out"))
    h.pipe(("a", "1", 1), ("a", str(DROP), 2), headers=[("h", b"v")])
    h.outputs()
    assert [output.headers for output in h.sent if output.topic == "out"] == [[("h", b"v")]] * 2


@pytest.mark.parametrize("way", [lambda stream: stream.to("out"), lambda stream: stream.peek(print).to("out")])
def test_a_deletion_is_logged_at_its_record_s_time_and_sent_at_that_of_the_later_row(way: Way) -> None:
    h = sums(way, aggregator=lambda *of: None if of[1] == DROP else {"sum": of[1]})
    h.pipe(("a", "1", 9), ("a", "1", 9), ("a", str(1), 9))
    h.outputs()
    h.pipe(("a", str(DROP), 5))
    assert [(topic, value, time) for topic, _, value, time in h.outputs()] == [
        ("app-store-changelog", None, 5), ("out", None, 9),
    ]  # fmt: skip


def test_a_group_that_goes_is_logged_at_its_record_s_time_and_sent_at_that_of_the_later_row() -> None:
    builder = StreamsBuilder()
    rows = builder.table("in", **STREAM).group_by(lambda key, value: ("all", value), **STREAM)
    added = rows.aggregate(
        lambda: 0, lambda _, value, total: total + value, lambda _, value, total: total - value or None, "store",
        value=serdes.JSON,
    )  # fmt: skip
    added.to_stream().to("out")
    with closing(SeveralTasks(builder.build(), {"in": 1, "out": 1})) as tasks:
        tasks.pipe("in", b"a", b"1", 9)
        tasks.settle()
        tasks.pipe("in", b"a", None, 5)
        tasks.settle()
        found = {topic: tasks.logs[TopicPartition(topic, 0)][-1] for topic in ("app-store-changelog", "out")}
    assert {topic: (one.value(), one.timestamp()[1]) for topic, one in found.items()} == {
        "app-store-changelog": (None, 5), "out": (None, 9),
    }  # fmt: skip


Table = Callable[[StreamsBuilder, Serde[Any]], Any]


def grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in", **STREAM).group_by_key()


def grouped_table(builder: StreamsBuilder) -> Any:
    return builder.table("in", **STREAM).group_by(lambda key, value: ("all", value), **STREAM)


TABLES: dict[type[Any], Table] = {
    StreamCount: lambda builder, value: grouped(builder).count(value=value),
    StreamAggregate: lambda builder, value: grouped(builder).aggregate(lambda: {"sum": 0}, add, value=value),
    StreamReduce: lambda builder, value: grouped(builder).reduce(
        lambda old, new: None if new == DROP else old + new, value=value
    ),
    TableAggregate: lambda builder, value: grouped_table(builder).aggregate(
        lambda: 0, lambda key, value, total: total + value, lambda key, value, total: total - value, value=value
    ),
    TableReduce: lambda builder, value: grouped_table(builder).reduce(
        lambda total, value: total + value, lambda total, value: total - value, value=value
    ),
    TableSource: lambda builder, value: builder.table("in", "store", key=serdes.STRING, value=value),
    TableFilter: lambda builder, value: builder.table("in", **STREAM).filter(
        lambda key, number: number > 0, "store", value=value
    ),
    TableMapValues: lambda builder, value: builder.table("in", **STREAM).map_values(
        lambda number: [number], "store", value=value
    ),
}
"""A table of each operator that sends its rows."""


def test_there_is_a_table_of_each_operator_that_sends_its_rows() -> None:
    found = {one for module in (aggregates, tables) for one in vars(module).values() if hasattr(one, "sends_its_row")}
    assert found == TABLES.keys()


def commit_or_roll_back(tasks: SeveralTasks, number: int) -> None:
    """What happens after the record of this number: a commit, a roll-back, a few records are processed, or nothing."""
    if number % 20 == 0:
        tasks.settle()
    elif number % 5 == 0:
        for id in tasks.tasks:
            tasks.process(id)
            if number % 3 == 0:
                tasks.roll_back(id)


def sent_over_a_roll_back(table: Table, way: Way) -> tuple[list[tuple[Any, ...]], int]:
    """The outputs of some records, of which the last ones are processed again after a roll-back, and how many values
    were written until then."""
    counted, builder = Counted(), StreamsBuilder()
    way(table(builder, counted.serde).to_stream())
    rng = random.Random(5)
    with closing(SeveralTasks(builder.build(), {"in": 1, "out": 1})) as tasks:
        for number in range(1, 80):
            value = rng.choice([1, 2, 1_000, DROP, None])
            tasks.pipe("in", rng.choice([b"a", b"b"]), None if value is None else b"%d" % value, number)
            commit_or_roll_back(tasks, number)
        tasks.settle()
        messages = tasks.logs[TopicPartition("out", 0)]
        return [(one.key(), one.value(), one.timestamp()) for one in messages], counted.written


@pytest.mark.parametrize("operator", TABLES, ids=lambda operator: operator.__name__)
def test_each_operators_rows_are_sent_as_a_sink_of_their_own_writes_them_over_roll_backs(operator: type[Any]) -> None:
    table = TABLES[operator]
    outputs, written = sent_over_a_roll_back(table, lambda stream: stream.to("out"))
    by_itself, written_by_itself = sent_over_a_roll_back(
        table, lambda stream: stream.filter(lambda key, value: True).to("out")
    )
    assert len(outputs) > 10
    assert outputs == by_itself
    assert written < written_by_itself
