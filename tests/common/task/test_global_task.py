"""The global stores of an instance on real engines: positions with entries, restarts, readers beside the writer."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from milestones import StreamsBuilder, StreamsConfig, serdes
from milestones.common.errors import ProcessingError, StateCorruptError, StateError
from milestones.common.records import GLOBAL, Record, TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.global_stores import GlobalStores
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.task.global_task import GlobalTask
from milestones.common.task.profile import Part, Profile
from milestones.common.task.scope import RecordInWork
from milestones.common.task.task_context import TaskSettings
from milestones.common.testing.clock import StepClock
from milestones.common.topology import LogAndContinue, Processor, Topology, send_to_dead_letter_topic
from milestones.common.topology.handlers import Action, ErrorContext, Response

PARTITIONS = tuple(TopicPartition("rows", number) for number in range(3))
READER = TaskId(1, 0)


class Kafka:
    """The topic's partitions, as lists of (key, value)."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]] = {at: [] for at in PARTITIONS}

    def write(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        self.logs[PARTITIONS[partition]].append((key, value))

    def after(self, at: TopicPartition, offset: int) -> list[Message]:
        return [
            Message(
                topic=at.topic, partition=at.partition, offset=number, key=key, value=value,
                timestamp=(TIMESTAMP_CREATE_TIME, 1_000 + number),
            )
            for number, (key, value) in enumerate(self.logs[at])
            if number >= offset
        ]  # fmt: skip


class Instance:
    """One directory, and what runs on it after each start."""

    def __init__(self, folder: Path, topology: Topology, **settings: Any) -> None:
        self.folder, self.topology, self.kafka = folder, topology, Kafka()
        every = topology.resolve_global()
        assert every is not None
        self.every = every
        self.settings = replace(
            TaskSettings("app", StepClock(1_700_000_000_000), lambda _: 1, max_task_idle_ms=-1), **settings
        )
        self.start()

    def start(self) -> None:
        directory = StateDirectory(self.folder, "app")
        self.state = LocalStateManager(directory, open_engines("rocksdict"), "test")
        self.stores = GlobalStores()
        self.task = GlobalTask(self.every, PARTITIONS, self.settings, lambda: self.state.open_global(self.every.stores))
        self.task.open()
        known = self.task.positions()
        self.task.start({at: known.get(at, 0) for at in PARTITIONS})
        self.task.show(self.stores)

    def follow(self, at_most: int = 1_000) -> None:
        for at in PARTITIONS:
            self.task.input.add(at, self.kafka.after(at, self.task.reached[at])[:at_most])
        self.task.process(0)

    def stop(self) -> None:
        self.task.close()
        self.state.release()

    def restart(self) -> None:
        self.stop()
        self.start()

    def reader(self, store: str, task: TaskId = READER) -> Any:
        reader = self.stores.reader(store, task, RecordInWork())
        assert reader is not None
        reader.open()
        return reader

    def rows(self, store: str = "rows") -> dict[Any, Any]:
        return {key: getattr(value, "value", value) for key, value in self.reader(store).all()}


def table(*, in_memory: bool) -> Topology:
    builder = StreamsBuilder()
    builder.global_table("rows", "rows", key=serdes.STRING, value=serdes.STRING, in_memory=in_memory)
    builder.stream("in").to("out")
    return builder.build()


def processed(supplier: Callable[[], Processor], *, in_memory: bool) -> Topology:
    spec = StoreSpec("pairs", persistent=not in_memory, key_serde=serdes.STRING, value_serde=serdes.STRING)
    builder = StreamsBuilder().add_global_store(spec, "rows", supplier, key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").to("out")
    return builder.build()


@pytest.fixture(params=[False, True], ids=["on disk", "in memory"])
def in_memory(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    made: list[Instance] = []

    def start(topology: Topology, **settings: Any) -> Instance:
        made.append(Instance(tmp_path, topology, **settings))
        return made[-1]

    yield start
    for instance in made:
        instance.stop()


def model(kafka: Kafka) -> dict[str, str]:
    """The fold of the topic: the last value of each key, without those that can't be read."""
    rows: dict[str, str] = {}
    for log in kafka.logs.values():
        for key, value in log:
            if key is None or value == b"\xff":
                continue
            if value is None:
                rows.pop(key.decode(), None)
            else:
                rows[key.decode()] = value.decode()
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_a_global_table_is_the_fold_of_its_topic_whatever_the_batches_and_restarts(
    started: Callable[..., Instance], in_memory: bool, seed: int
) -> None:
    rng = random.Random(seed)
    instance = started(table(in_memory=in_memory), deserialization_handler=LogAndContinue())
    for _ in range(30):
        for _ in range(rng.randrange(12)):
            partition = rng.randrange(3)
            key = rng.choice([b"%d-%d" % (partition, rng.randrange(6)), b"%d-x" % partition, None])
            instance.kafka.write(partition, key, rng.choice([b"%d" % rng.randrange(99), None, b"\xff", b"v"]))
        match rng.randrange(4):
            case 0:
                instance.restart()
            case 1:
                instance.follow(at_most=rng.randrange(1, 4))
            case _:
                instance.follow()
    instance.follow()
    assert instance.rows() == model(instance.kafka)
    assert instance.task.reached == {at: len(log) for at, log in instance.kafka.logs.items()}


def test_a_restart_has_the_rows_and_the_positions_of_all_partitions(started: Callable[..., Instance]) -> None:
    instance = started(table(in_memory=False))
    for partition, count in enumerate((3, 0, 5)):
        for number in range(count):
            instance.kafka.write(partition, b"%d-%d" % (partition, number), b"v")
    instance.follow()
    before = instance.rows()
    instance.restart()
    assert instance.rows() == before
    assert [instance.task.reached[at] for at in PARTITIONS] == [3, 0, 5]


def test_control_records_at_the_end_of_a_partition_count_as_read(started: Callable[..., Instance]) -> None:
    instance = started(table(in_memory=False))
    instance.kafka.write(0, b"a", b"1")
    instance.task.input.add(PARTITIONS[0], instance.kafka.after(PARTITIONS[0], 0))
    instance.task.input.reached_end(PARTITIONS[0], 7, 0)
    instance.task.process(0)
    instance.restart()
    assert instance.task.reached[PARTITIONS[0]] == 7


class Pairs(Processor):
    """Two writes for each record; "bad" fails between them."""

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("pairs")
        store.put(record.key, record.value)
        if record.value == "bad":
            raise ValueError("half of it is written")
        store.put(record.key + "'", record.value)


def test_a_record_that_fails_stops_before_itself_with_those_before_it_in_the_store(
    started: Callable[..., Instance], in_memory: bool
) -> None:
    instance = started(processed(Pairs, in_memory=in_memory))
    for number, value in enumerate([b"1", b"2", b"bad", b"3"]):
        instance.kafka.write(0, b"k%d" % number, value)
    with pytest.raises(ProcessingError, match="task global, node KTABLE-SOURCE-0000000001, record rows-0@2"):
        instance.follow()
    assert sorted(instance.rows("pairs")) == ["k0", "k0'", "k1", "k1'"]
    assert instance.task.reached[PARTITIONS[0]] == 2
    instance.restart()
    if not in_memory:
        assert instance.task.reached[PARTITIONS[0]] == 2
    with pytest.raises(ProcessingError, match="record rows-0@2"):
        instance.follow()


def test_a_skipped_record_leaves_nothing_and_its_dead_letters_are_missed_aloud(
    started: Callable[..., Instance], in_memory: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: ErrorContext, error: Exception) -> Response:
        return Response(Action.CONTINUE, send_to_dead_letter_topic("letters")(context, error).dead_letters)

    instance = started(processed(Pairs, in_memory=in_memory), processing_handler=handler)
    for number, value in enumerate([b"1", b"bad", b"3"]):
        instance.kafka.write(0, b"k%d" % number, value)
    caplog.set_level(logging.WARNING)
    instance.follow()
    assert sorted(instance.rows("pairs")) == ["k0", "k0'", "k2", "k2'"]
    assert instance.task.dropped_records == 1
    assert "1 dead letters for letters aren't written, as records of global stores have no producer" in caplog.text


@pytest.mark.parametrize("readers", [1, 8])
def test_readers_beside_the_writer_never_see_half_of_a_record(
    started: Callable[..., Instance], in_memory: bool, readers: int
) -> None:
    """Each record writes a version to both keys of a pair. No range finds them apart; of a store on disk, neither do
    two reads one after the other, in the order of the writes."""
    instance = started(processed(Pairs, in_memory=in_memory))
    for key in range(20):
        instance.kafka.write(0, b"k%02d" % key, b"%06d" % 0)
    instance.follow()
    over, torn, looks = threading.Event(), list[object](), [0] * readers

    def read(number: int) -> None:
        store = instance.reader("pairs", TaskId(1, number))
        rng = random.Random(number)
        while not over.is_set() or not looks[number]:
            rows = dict(store.range("k05", "k15'"))
            for key in [key for key in rows if not key.endswith("'")]:
                if rows[key] != rows[f"{key}'"]:
                    torn.append((key, rows[key], rows[f"{key}'"]))
            backwards = list(store.reverse_all())
            if backwards != sorted(backwards, reverse=True) or len(backwards) != 40:
                torn.append(backwards)
            key = f"k{rng.randrange(20):02d}"
            first = store.get(key)
            if store.get(f"{key}'") < first and not in_memory:
                torn.append((key, first))
            looks[number] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for version in range(1, 200):
        for key in range(20):
            instance.kafka.write(0, b"k%02d" % key, b"%06d" % version)
        instance.follow()
    over.set()
    for thread in threads:
        thread.join()
    assert torn == []
    assert min(looks) > 0


def test_a_reader_s_iterator_is_as_of_its_call(started: Callable[..., Instance], in_memory: bool) -> None:
    instance = started(table(in_memory=in_memory))
    for number in range(50):
        instance.kafka.write(0, b"%02d" % number, b"old")
    instance.follow()
    rows = instance.reader("rows").all()
    first = next(rows)
    for number in range(100):
        instance.kafka.write(0, b"%02d" % number, b"new" if number % 2 else None)
    instance.follow()
    assert {row.value for _, row in [first, *rows]} == {"old"}


# ---- the directory


def test_the_directory_is_no_task_s_and_is_never_cleaned(started: Callable[..., Instance], tmp_path: Path) -> None:
    instance = started(table(in_memory=False))
    instance.kafka.write(0, b"a", b"1")
    instance.follow()
    assert instance.state.closed_offsets([GLOBAL]) == {}
    instance.restart()
    assert instance.state.directory.tasks() == []
    assert instance.state.clean(2**60, 0) is False
    assert (tmp_path / "app" / "global" / "rocksdb" / "rows").is_dir()
    (tmp_path / "app" / "process").unlink()
    instance.restart()  # it isn't foreign
    assert instance.rows() == {"a": "1"}


def test_an_emptied_store_has_no_positions(started: Callable[..., Instance]) -> None:
    instance = started(table(in_memory=False))
    instance.kafka.write(0, b"a", b"1")
    instance.follow()
    instance.task.clear("rows", None)
    assert instance.task.positions() == {}
    instance.restart()
    assert instance.task.positions() == {}
    instance.follow()
    assert instance.rows() == {"a": "1"}


def test_damaged_files_are_set_aside_and_the_store_begins_empty(
    started: Callable[..., Instance], tmp_path: Path
) -> None:
    instance = started(table(in_memory=False))
    instance.kafka.write(0, b"a", b"1")
    instance.follow()
    instance.stop()
    (tmp_path / "app" / "global" / "rocksdb" / "rows" / "CURRENT").write_text("nonsense")
    instance.start()
    assert instance.rows() == {}
    instance.follow()
    assert instance.rows() == {"a": "1"}
    assert (tmp_path / "app" / "global" / "corrupt" / "rows").is_dir()


def test_damage_that_a_reader_meets_is_the_instance_s_and_no_store_s_of_the_task(
    started: Callable[..., Instance],
) -> None:
    instance = started(table(in_memory=False))

    class Damaged:
        name = "rows"

        def get(self, _: bytes) -> bytes | None:
            raise StateCorruptError("bits have rotted")

        def scan(self, *_: object, **__: object) -> Iterator[tuple[bytes, bytes]]:
            yield b"a", bytes(8) + b"1"
            raise StateCorruptError("bits have rotted")

    shown: Sequence[Any] = [instance.stores._shown["rows"]._replace(namespace=Damaged())]
    instance.stores.show(shown)
    for read in (lambda store: store.get("a"), lambda store: list(store.all())):
        instance.stores.damage = None
        with pytest.raises(StateError, match="a global store is damaged, so this instance ends") as raised:
            read(instance.reader("rows"))
        assert not isinstance(raised.value, StateCorruptError)
        assert isinstance(instance.stores.damage, StateCorruptError)


def test_the_config_of_the_consumer_reads_committed_records_only() -> None:
    config = StreamsConfig(
        application_id="a", bootstrap_servers="b:1", variables={},
        global_consumer_fetch_min_bytes=5, consumer_fetch_max_bytes=9_000_000,
    )  # fmt: skip
    settings = config.global_consumer_settings("a-GlobalStreamThread")
    assert settings["isolation.level"] == "read_committed"
    assert settings["client.id"] == "a-GlobalStreamThread-global-consumer"
    assert (settings["fetch.min.bytes"], settings["fetch.max.bytes"]) == (5, 9_000_000)
    assert "fetch.min.bytes" not in config.restore_consumer_settings("a")


def test_a_profile_times_the_nodes_of_global_stores_through_restarts(
    started: Callable[..., Instance],
) -> None:
    class Keeping(Processor[str, str, Any, Any]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("pairs").put(record.key, record.value)

    profile = Profile()
    instance = started(processed(Keeping, in_memory=False), profile=profile)
    for _ in range(2):
        instance.kafka.write(0, b"k", b"v")
        instance.follow()
        instance.restart()
    puts = [spent.calls for (_, part), spent in profile.edges().items() if part == Part("store", "pairs", "put")]
    assert sum(puts) == 2
    assert instance.reader("pairs").get("k") == "v"
