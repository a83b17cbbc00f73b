"""A task's history through the topology, without Kafka and Spark: what upstream should have written, from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message

from milestones import Processor, Record, StreamsBuilder, StreamsConfig, TimeWindows, Topology, serdes
from milestones.common.partitioner import partition_of
from milestones.common.records import RecordMetadata, TaskId, TopicPartition
from milestones.common.state.stores.suppress_layout import VERSION_3, Buffered, Context, encoded
from milestones.common.windowed import START_AND_SEQUENCE
from milestones.instance.application import Application
from milestones.pipeline import scratch
from milestones.pipeline.audit import folding
from milestones.pipeline.audit.folding import Fold, fold
from milestones.pipeline.audit.plan import AuditedPartition, FoldJob, StoreRange
from milestones.pipeline.audit.rows import FOLDED, Problem, RowKind
from milestones.pipeline.hosting.payload import pack
from tests.common.task.harness import message

CONFIG = StreamsConfig(application_id="app", bootstrap_servers="localhost:1")
END = 1 << 62
NAMES = FOLDED.names
Entry = tuple[str, str, int]


def written(folder: Path, topic: str, partition: int, *records: Entry) -> AuditedPartition:
    """Key, value and timestamp of each record, as an upstream fold would leave them."""
    place = folder / f"topic={topic}" / f"partition={partition}"
    place.mkdir(parents=True)
    rows = [{"key": k.encode(), "value": v.encode(), "time": time, "headers": None} for k, v, time in records]
    schema = pa.schema([
        ("key", pa.binary()), ("value", pa.binary()), ("time", pa.int64()), ("headers", pa.binary()),
    ])  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema), place / "0.parquet")
    return AuditedPartition(TopicPartition(topic, partition), 0, END, END, computed=folder.as_uri())


def rows(topology: Topology, *sources: AuditedPartition, **partitions: int) -> list[dict[str, Any]]:
    job = FoldJob(TaskId(0, sources[0].partition.partition), sources, (), {"out": 3, **partitions}, {})
    with Fold(Application.of(topology, CONFIG), CONFIG, job) as one:
        return [dict(zip(NAMES, row, strict=True)) for row in one.rows()]


def outputs(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    wanted = ("source", "source_partition", "source_offset", "key", "value", "time", "partition")
    return [tuple(row[name] for name in wanted) for row in found if row["kind"] == RowKind.OUTPUT]


def counting() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key().count("counts").to_stream().to("out", value=serdes.LONG)
    return builder.build()


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_every_output_is_told_with_its_input_record_and_its_place(tmp_path: Path) -> None:
    source = written(tmp_path, "in", 1, ("a", "x", 5), ("b", "x", 6), ("a", "x", 4))
    found = rows(counting(), source)
    assert outputs(found) == [
        ("in", 1, 0, b"a", number(1), 5, partition_of(b"a", 3)),
        ("in", 1, 1, b"b", number(1), 6, partition_of(b"b", 3)),
        ("in", 1, 2, b"a", number(2), 5, partition_of(b"a", 3)),
    ]
    assert [row["seq"] for row in found if row["kind"] == RowKind.OUTPUT] == [1, 2, 3]
    assert [row["seq"] for row in found if row["kind"] == RowKind.INPUT] == [3]


def test_several_partitions_are_merged_by_time_and_each_output_names_its_own(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", key=serdes.STRING, value=serdes.STRING)
    left.merge(builder.stream("right", key=serdes.STRING, value=serdes.STRING)).to("out")
    one = written(tmp_path, "left", 0, ("a", "1", 10), ("a", "2", 30))
    other = written(tmp_path, "right", 0, ("a", "3", 20), ("a", "4", 40))
    found = rows(builder.build(), one, other)
    assert [(row[0], row[2], row[4]) for row in outputs(found)] == [
        ("left", 0, b"1"), ("right", 0, b"3"), ("left", 1, b"2"), ("right", 1, b"4"),
    ]  # fmt: skip


class Ticking(Processor):
    """Punctuates in the way that the test says."""

    kind: Any = "wall-clock-time"

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1_000, self.kind, lambda _: None)

    def process(self, record: Record) -> None:
        self.context.forward(record)


class TickingByStreamTime(Ticking):
    kind = "stream-time"


@pytest.mark.parametrize(("processor", "why"), [(Ticking, "wall clock"), (TickingByStreamTime, "stream time")])
def test_a_punctuation_is_a_doubt(tmp_path: Path, processor: Callable[[], Processor], why: str) -> None:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("ticking", processor, "source")
    topology.add_sink("sink", "out", "ticking", key=serdes.STRING, value=serdes.STRING)
    found = rows(topology, written(tmp_path, "in", 0, ("a", "x", 5)))
    (doubt,) = [row["what"] for row in found if row["kind"] == RowKind.DOUBT]
    assert why in doubt
    assert not [row for row in rows(counting(), written(tmp_path / "b", "in", 0)) if row["kind"] == RowKind.DOUBT]


def test_what_spark_calls_gives_batches_of_the_schema(tmp_path: Path) -> None:
    source = written(tmp_path, "in", 0, *((f"k{n}", "x", n) for n in range(30_000)))
    job = FoldJob(TaskId(0, 0), (source,), (), {"out": 3}, {})
    numbers = pa.RecordBatch.from_pydict({"id": pa.array([0], pa.int64())})
    found = list(fold(pack(counting(), CONFIG, near=True), [job], iter([numbers])))
    assert {batch.schema for batch in found} == {FOLDED}
    assert sum(batch.num_rows for batch in found) == 30_001


def test_stores_of_windows_are_compared_by_what_is_there_and_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key()
    grouped.windowed_by(TimeWindows(10, grace=0), emit="on_close").count("counts")
    application = Application.of(builder.build(), CONFIG)
    (spec,), day = application.subtopology(0).stores, 86_400_000

    def logged(offset: int, key: bytes, start: int) -> Message:
        return message(offset, key + START_AND_SEQUENCE.pack(start, 0), number(1), start + 5)

    log = [logged(0, b"gone", 0), logged(1, b"a", day), logged(2, b"b", day)]
    monkeypatch.setattr(scratch, "read", lambda *_: iter([log]))
    source = written(tmp_path, "in", 0, ("gone", "x", 5), ("a", "x", day + 5), ("lost", "x", day + 5))
    stores = [StoreRange(spec.bare, TopicPartition("log", 0), 0, 3)]
    job = FoldJob(TaskId(0, 0), [source], stores, {"out": 3}, {})
    with Fold(application, CONFIG, job) as one:
        found = [dict(zip(NAMES, row, strict=True)) for row in one.rows()]
    wrong = [(row["what"], row["key"]) for row in found if row["kind"] == RowKind.DIFFERENCE]
    key = START_AND_SEQUENCE.pack(day, 0)
    assert wrong == [(Problem.UNEXPECTED, b"b" + key), (Problem.LOST, b"lost" + key)]
    assert [row["seq"] for row in found if row["kind"] == RowKind.STORE] == [2]


def test_updates_that_are_kept_back_are_compared_as_they_should_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that may not be committed leaves its key out."""
    builder = StreamsBuilder()
    table = builder.table("in", key=serdes.STRING, value=serdes.STRING)
    table.suppress(after=100, name="held").to_stream().to("out", key=serdes.STRING, value=serdes.STRING)
    application = Application.of(builder.build(), CONFIG)
    spec = next(spec for spec in application.subtopology(0).stores if spec.kind == "suppress")

    def kept(offset: int, value: bytes, time: int) -> bytes:
        return encoded(Buffered(Context(time, None, RecordMetadata("in", 0, offset)), None, None, value, time))

    rows = [(b"a", kept(0, b"x", 5)), (b"b", kept(1, b"wrong", 6)), (b"d", kept(7, b"other", 9))]
    log = [Message(topic="log", partition=0, offset=n, key=k, value=v, headers=VERSION_3, timestamp=(1, 1))
           for n, (k, v) in enumerate(rows)]  # fmt: skip
    monkeypatch.setattr(scratch, "read", lambda *_: iter([log]))
    records = [message(n, key, value, n + 5) for n, (key, value) in enumerate(
        [(b"a", b"x"), (b"b", b"y"), (b"c", b"z"), (b"d", b"z")]
    )]  # fmt: skip
    monkeypatch.setattr(folding, "read", lambda _, __, first, end: iter([records[first:end]]))
    source = AuditedPartition(TopicPartition("in", 0), 0, 3, 4)
    job = FoldJob(TaskId(0, 0), [source], [StoreRange(spec.bare, TopicPartition("log", 0), 0, 3)], {"out": 3}, {})
    with Fold(application, CONFIG, job) as one:
        found = [dict(zip(NAMES, row, strict=True)) for row in one.rows()]
    wrong = [(row["what"], row["key"]) for row in found if row["kind"] == RowKind.DIFFERENCE]
    assert wrong == [(Problem.WRONG, b"b"), (Problem.LOST, b"c")], "d may be either"
