"""`suppress` behind an operator whose very rows it keeps back: it keeps, logs and sends what it does for any table."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import SuppressBufferFullError
from milestones.common.partitioner import partition_of
from milestones.common.records import TopicPartition
from milestones.common.serdes import Serde
from milestones.common.state.stores.suppress_buffer import FirstRow, SuppressBuffer
from milestones.common.topology import StreamsBuilder
from milestones.common.topology.operators.suppression import Suppress
from milestones.common.topology.tracebacks import failing_node
from milestones.common.topology.windows import SessionWindows, TimeWindows, UnlimitedWindows
from milestones.testing import TopologyTestDriver
from tests.common.task.several_tasks import SeveralTasks
from tests.common.topology.test_sent_rows import DROP, TABLES, commit_or_roll_back, grouped

Table = Callable[[StreamsBuilder, Serde[Any]], Any]


def windows(kind: Any, way: Callable[[Any], Any], until: dict[str, Any]) -> Table:
    return lambda builder, value: way((grouped(builder).windowed_by(kind), value)).suppress(**until)


def counted(of: Any) -> Any:
    return of[0].count(value=of[1])


def listed(of: Any) -> Any:
    """The aggregator changes the list that it is given. It makes some rows go."""

    def add(_key: str, value: int, values: list[int]) -> list[int] | None:
        values.append(value)
        return None if value == DROP else values

    return of[0].aggregate(list, add, value=of[1])


OTHER: Serde[int] = Serde(lambda count: b"%d." % count, lambda data: int(data[:-1]))
CLOSED: dict[str, Any] = {"until": "window_closes"}
TUMBLING, HOPPING = TimeWindows(10, grace=5), TimeWindows(20, grace=0, advance=5)
WAYS: dict[str, Table] = {
    "tumbling counts": windows(TUMBLING, counted, CLOSED),
    "hopping counts": windows(HOPPING, counted, CLOSED),
    "tumbling lists": windows(TUMBLING, listed, CLOSED),
    "windows for a time": windows(TUMBLING, counted, {"after": 7}),
    "few windows": windows(HOPPING, listed, {"after": 1_000, "max_records": 3}),
    "few bytes": windows(HOPPING, counted, {"after": 1_000, "max_bytes": 400}),
    "no end": windows(UnlimitedWindows(), counted, {"after": 7}),
} | {
    f"{operator.__name__} for a time": lambda builder, value, table=table: table(builder, value).suppress(after=7)
    for operator, table in TABLES.items()
}  # fmt: skip


def by_text(table: Any) -> None:
    table.to_stream(lambda key, _: str(key)).to("out", key=serdes.STRING, value=serdes.JSON)


def as_it_is(table: Any) -> None:
    table.to_stream().to("out")


def lived(way: Table, seed: int, send: Callable[[Any], None] = by_text) -> dict[TopicPartition, list[Any]]:
    """All that random records leave in each topic, over commits and roll-backs."""
    builder = StreamsBuilder()
    send(way(builder, serdes.JSON))
    rng, now = random.Random(seed), 100
    with closing(SeveralTasks(builder.build(), {"in": 1, "out": 3})) as tasks:
        for number in range(1, 120):
            now += rng.choice([0, 0, 1, 3, 30])
            record = rng.choice([1, 2, 1_000, DROP, None])
            headers = rng.choice([None, [("h", b"%d" % number)]])
            tasks.pipe("in", rng.choice([b"a", b"b", b"c"]), None if record is None else b"%d" % record,
                       max(0, now - rng.choice([0, 0, 4, 40])), headers)  # fmt: skip
            commit_or_roll_back(tasks, number)
        tasks.settle()
        return {
            partition: [(one.key(), one.value(), one.timestamp(), one.headers()) for one in messages]
            for partition, messages in tasks.logs.items()
            if partition.topic != "in"
        }


def test_a_row_whose_window_ends_after_all_times_fails_in_its_record(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    windows(TUMBLING, counted, CLOSED)(builder, serdes.JSON).to_stream(lambda key, _: str(key)).to("out")
    last = (1 << 63) - 3
    with closing(SeveralTasks(builder.build(), {"in": 1, "out": 1})) as tasks:
        tasks.pipe("in", b"a", b"1", 1)
        tasks.pipe("in", b"b", b"1", last)
        tasks.pipe("in", b"c", b"1", 2)
        tasks.settle()
        (log,) = (log for partition, log in tasks.logs.items() if "SUPPRESS" in partition.topic)
    assert {(one.key() or b"")[:1] for one in log} == {b"a", b"c"}
    assert "skipped a record" in caplog.text


def test_an_error_behind_suppress_names_its_node() -> None:
    builder = StreamsBuilder()
    full = {"after": 1_000, "max_records": 1, "when_full": "stop", "name": "held"}
    windows(TUMBLING, counted, full)(builder, serdes.JSON)
    with TopologyTestDriver(builder) as driver:
        driver.pipe("in", b"a", b"1", 1)
        with pytest.raises(SuppressBufferFullError) as raised:
            driver.pipe("in", b"b", b"1", 1)
    assert failing_node(raised.value) == "held"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_kept_back_by_its_bytes_is_what_any_table_keeps_back(
    way: Table, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bytes] = []
    keep, put = SuppressBuffer.keep, SuppressBuffer.put

    def counting(buffer: Any, time: int, key: bytes, *rest: Any) -> None:
        calls.append(key)
        keep(buffer, time, key, *rest)

    def not_counted(buffer: Any, *arguments: Any) -> None:
        put(buffer, *arguments)
        calls.pop()

    with monkeypatch.context() as patch:
        patch.setattr(SuppressBuffer, "keep", counting)
        patch.setattr(SuppressBuffer, "put", not_counted)
        by_bytes = lived(way, seed)
    assert calls, "rows are kept back by their bytes"
    monkeypatch.setattr(Suppress, "row_keeper", lambda *_: None)
    by_objects = lived(way, seed)
    assert by_bytes == by_objects
    assert any(by_bytes.values())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_sent_by_its_bytes_is_what_a_sink_writes_itself(
    way: Table, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[FirstRow] = []
    first_row = SuppressBuffer.first_row

    def counting(buffer: Any) -> FirstRow:
        sent.append(first_row(buffer))
        return sent[-1]

    with monkeypatch.context() as patch:
        patch.setattr(SuppressBuffer, "first_row", counting)
        by_bytes = lived(way, seed, as_it_is)
    assert sent, "rows are sent by their bytes"
    monkeypatch.setattr(SuppressBuffer, "is_written_by", lambda *_: False)
    by_objects = lived(way, seed, as_it_is)
    assert by_bytes == by_objects
    assert [partition for partition in by_bytes if partition.topic == "out"]


def sessions(builder: StreamsBuilder) -> Any:
    return grouped(builder).windowed_by(SessionWindows(5, grace=0)).count(value=serdes.JSON)


def test_sessions_that_are_kept_back_are_sent_by_their_bytes_to_the_partition_of_their_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def way(builder: StreamsBuilder, _: Any) -> Any:
        return sessions(builder).suppress(**CLOSED)

    by_bytes = lived(way, 1, as_it_is)
    monkeypatch.setattr(SuppressBuffer, "is_written_by", lambda *_: False)
    assert by_bytes == lived(way, 1, as_it_is)
    for partition, log in by_bytes.items():
        if partition.topic == "out":
            assert {partition_of(key[:1], 3) for key, *_ in log} == {partition.partition}


@pytest.mark.parametrize(
    "to",
    [
        lambda stream: stream.to("out", value=OTHER),
        lambda stream: stream.map_values(lambda count: count).to("out", value=serdes.JSON),
        lambda stream: stream.to("out", key=Serde(lambda windowed: b"key", lambda _: None)),
    ],
    ids=["another value", "user code", "another key"],
)
def test_a_sink_that_writes_other_bytes_writes_them_itself(to: Callable[[Any], None], monkeypatch: Any) -> None:
    monkeypatch.setattr(SuppressBuffer, "first_row", None)
    log = lived(WAYS["tumbling counts"], 1, lambda table: to(table.to_stream()))
    assert [partition for partition in log if partition.topic == "out"]
