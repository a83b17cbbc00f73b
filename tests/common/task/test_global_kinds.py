"""Global stores of every kind, written by a processor, on real engines: beside a model of each, through restarts and
records that can't be processed, and as tasks read them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from milestones import (
    AggregationWithHeaders,
    StreamsBuilder,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from milestones.common.errors import StateError, TopologyError
from milestones.common.records import Record, TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import LogAndContinue, Processor, Topology
from tests.common.task.global_kinds import CASES, FOREVER, MAX_ENTRIES, Case, Said
from tests.common.task.test_global_task import PARTITIONS, Instance, Kafka

BY_NIGHT = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 12)]


class Timed(Kafka):
    """One partition whose records have the times that they are written with."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []

    def say(self, key: str, value: bytes | None, timestamp: int) -> None:
        self.write(0, key.encode(), value)
        self.times.append(timestamp)

    def after(self, at: TopicPartition, offset: int) -> list[Message]:
        return [
            Message(topic=at.topic, partition=at.partition, offset=number, key=key, value=value,
                    timestamp=(TIMESTAMP_CREATE_TIME, self.times[number]))
            for number, (key, value) in enumerate(self.logs[at])
            if number >= offset
        ]  # fmt: skip


def written(case: Case, *, in_memory: bool) -> Topology:
    class Write(Processor):
        """Writes each record; a bad one fails when it has written."""

        def process(self, record: Record) -> None:
            case.write(self.context.get_state_store("s"), record)
            if record.value == "bad":
                raise ValueError("it is written")

    options = {**case.spec.__dict__, "persistent": not in_memory}
    builder = StreamsBuilder().add_global_store(StoreSpec(**options), "rows", Write, key=str, value=str)
    builder.stream("in").to("out")
    return builder.build()


@pytest.fixture(params=[False, True], ids=["on disk", "in memory"])
def in_memory(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=CASES, ids=[case.kind for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    kind: Case = request.param
    return kind


@pytest.fixture
def instance(tmp_path: Path, case: Case, in_memory: bool) -> Iterator[Instance]:
    made = Instance(
        tmp_path, written(case, in_memory=in_memory),
        deserialization_handler=LogAndContinue(), processing_handler=LogAndContinue(),
    )  # fmt: skip
    made.kafka = Timed()
    yield made
    made.stop()


def say(instance: Instance, rng: random.Random, said: list[Said], now: int) -> int:
    """A record, perhaps a bad one, at about `now`; returns the time after it. No two have the same time."""
    assert isinstance(instance.kafka, Timed)
    now += rng.choice([1, 3, 11, 400, 30_000, 61_000])
    timestamp = max(7, now - rng.choice([0, 0, 0, 2, 450, 40_000, 150_000]))
    while timestamp in instance.kafka.times:
        timestamp += 1
    key, value = rng.choice("abcde"), rng.choice([b"1", b"2", b"3", None, b"bad", b"\xff"])
    if value == b"bad" and rng.random() < 0.5:
        timestamp += FOREVER >> 20  # what fails mustn't end the retention of all
    instance.kafka.say(key, value, timestamp)
    if value not in (b"bad", b"\xff"):
        said.append(Said(key, None if value is None else value.decode(), timestamp))
    return now


@pytest.mark.parametrize("seed", [*range(3), *BY_NIGHT])
def test_a_store_is_what_its_processor_made_of_the_topic_whatever_the_batches_and_restarts(
    instance: Instance, case: Case, seed: int
) -> None:
    rng, now, said = random.Random(seed), 200_000, list[Said]()
    for _ in range(25):
        for _ in range(rng.randrange(8)):
            now = say(instance, rng, said, now)
        match rng.randrange(4):
            case 0:
                instance.restart()
            case 1:
                instance.follow(at_most=rng.randrange(1, 4))
            case _:
                instance.follow()
        instance.follow()
        # One more, later than all: a store that was just opened knows its highest time by segments only.
        now = max(now, *(each.timestamp for each in said), 0) + 1 if said else now + 1
        assert isinstance(instance.kafka, Timed)
        while now in instance.kafka.times:
            now += 1
        instance.kafka.say("e", b"last", now)
        said.append(Said("e", "last", now))
        instance.follow()
        assert case.read(instance.reader("s")) == case.model(said)


def test_a_restart_has_what_was_there_and_nothing_is_read_again(
    instance: Instance, case: Case, in_memory: bool
) -> None:
    assert isinstance(instance.kafka, Timed)
    for number in range(20):
        instance.kafka.say("abcde"[number % 5], b"%d" % number, 300_000 + 17 * number)
    instance.follow()
    before = case.read(instance.reader("s"))
    assert before
    instance.restart()
    assert instance.task.reached[PARTITIONS[0]] == (0 if in_memory else 20)
    instance.follow()
    assert case.read(instance.reader("s")) == before


def test_a_store_that_a_task_has_long_had_follows_the_writer(instance: Instance, case: Case) -> None:
    """Rows of segments that began later, and what is gone by the time of later records."""
    assert isinstance(instance.kafka, Timed)
    reader, said = instance.reader("s"), list[Said]()
    for number in range(40):
        said.append(Said("abcde"[number % 5], f"{number}", 300_000 + 13_007 * number))
        instance.kafka.say(said[-1].key, str(number).encode(), said[-1].timestamp)
        instance.follow()
        assert case.read(reader) == case.model(said)


OF_KEYS: list[Callable[[Any], Any]] = [
    lambda store: store.put("a", "1"), lambda store: store.put("z", None), lambda store: store.delete("a"),
    lambda store: store.put_if_absent("z", "1"),
]  # fmt: skip
WRITES: dict[str, list[Callable[[Any], Any]]] = {
    "timestamped-key-value": [
        lambda store: store.put("a", ValueAndTimestamp("1", 5)), lambda store: store.delete("a")
    ],
    "window": [lambda store: store.put("a", "1", 0), lambda store: store.put("a", None, FOREVER)],
    "timestamped-window": [
        lambda store: store.put("a", ValueAndTimestamp("1", 5), 0), lambda store: store.put("a", None, FOREVER)
    ],
    "session": [
        lambda store: store.put(Windowed("a", 0, 0), "1"), lambda store: store.remove(Windowed("a", 0, FOREVER))
    ],
    "timestamped-key-value-with-headers": [
        lambda store: store.put("a", ValueTimestampHeaders("1", 5, [])), lambda store: store.delete("a")
    ],
    "timestamped-window-with-headers": [
        lambda store: store.put("a", ValueTimestampHeaders("1", 5, []), 0),
        lambda store: store.put("a", None, FOREVER),
    ],
    "session-with-headers": [
        lambda store: store.put(Windowed("a", 0, 0), AggregationWithHeaders("1", [])),
        lambda store: store.remove(Windowed("a", 0, FOREVER)),
    ],
    "versioned": [lambda store: store.put("a", "1", FOREVER), lambda store: store.delete("a", 300_000)],
}  # fmt: skip


def test_a_task_s_write_is_refused_and_does_nothing(instance: Instance, case: Case) -> None:
    assert isinstance(instance.kafka, Timed)
    said = [Said(key, "1", 300_000 + number) for number, key in enumerate("abcd")]
    for each in said:
        instance.kafka.say(each.key, b"1", each.timestamp)
    instance.follow()
    reader = instance.reader("s")
    for write in WRITES.get(case.kind, OF_KEYS):
        with pytest.raises(TopologyError, match="store s is global, so task 1_0 can only read it"):
            write(reader)
        assert case.read(reader) == case.model(said)


def test_many_tasks_read_beside_the_writer(instance: Instance, case: Case) -> None:
    assert isinstance(instance.kafka, Timed)
    over, wrong = threading.Event(), list[object]()

    def read(number: int) -> None:
        store = instance.reader("s", TaskId(1, number))
        try:
            while not over.is_set():
                if "window" in case.kind:
                    rows = [*store.fetch_all(0, FOREVER), *store.fetch("a", 0, FOREVER), store.fetch("a", 310_000)]
                elif "session" in case.kind:
                    rows = [*store.fetch_range(None, None), *store.find_sessions("a", 0, FOREVER)]
                else:
                    rows = [*store.all(), store.get("a")]
                if any(row is not None and "bad" in str(row) for row in rows):
                    wrong.append(rows)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(300):
        value = b"bad" if number % 7 == 0 else b"%d" % number
        instance.kafka.say("abcde"[number % 5], value, 300_000 + 1_009 * number)
        instance.follow()
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_closed_reader_reads_nothing(instance: Instance, case: Case) -> None:
    reader = instance.reader("s")
    reader.close()
    with pytest.raises(StateError, match="isn't open"):
        case.read(reader)


def test_a_task_s_read_is_no_use_of_an_entry(tmp_path: Path) -> None:
    [lru] = [case for case in CASES if case.kind == "lru"]
    instance = Instance(tmp_path, written(lru, in_memory=False))
    instance.kafka = kafka = Timed()
    for number, key in enumerate("bcde"):
        kafka.say(key, b"1", 1_000 + number)
    instance.follow()
    reader = instance.reader("s")
    assert reader.get("b") == "1"
    kafka.say("f", b"1", 2_000)
    instance.follow()
    assert reader.get("b") is None
    assert reader.approximate_num_entries() == MAX_ENTRIES
    instance.stop()
