"""Global stores of every kind, written by a processor, on real engines: beside a model of each, through restarts and
records that can't be processed, and as tasks read them."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from milestones import StreamsBuilder, ValueAndTimestamp, Windowed, stores
from milestones.common.errors import StateError, TopologyError
from milestones.common.records import Record, TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import LogAndContinue, Processor, Topology
from tests.common.task.test_global_task import PARTITIONS, Instance, Kafka

SIZE, RETENTION, MAX_ENTRIES = 10, 100_000, 4
FOREVER = 1 << 62


class Said(NamedTuple):
    """A record of the topic that was processed."""

    key: str
    value: str | None
    timestamp: int


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


Write = Callable[[Any, Record], None]
Rows = dict[Any, Any]


@dataclass(frozen=True)
class Case:
    """One kind. `write`: what the processor does with a record; `model`: what it leads to; `read`: all that a task
    sees of it."""

    spec: StoreSpec
    write: Write
    model: Callable[[Sequence[Said]], Rows]
    read: Callable[[Any], Rows]

    @property
    def kind(self) -> str:
        return self.spec.kind


def start_of(timestamp: int) -> int:
    return timestamp // SIZE * SIZE


def bounded(row: Callable[[Said], tuple[int, Any, Any]]) -> Callable[[Sequence[Said]], Rows]:
    """The model of rows that are gone after `RETENTION`; `row`: their time, key and value."""

    def model(said: Sequence[Said]) -> Rows:
        rows: Rows = {}
        for each in said:
            time, key, value = row(each)
            rows[key] = (time, value)
        observed = max((row(each)[0] for each in said), default=-1)
        return {
            key: value for key, (time, value) in rows.items() if value is not None and time > observed - RETENTION
        }

    return model


# -- windows and sessions


def put_window(store: Any, record: Record) -> None:
    store.put(record.key, record.value, start_of(record.timestamp))


def window_row(said: Said) -> tuple[int, Any, Any]:
    start = start_of(said.timestamp)
    return start, Windowed(said.key, start, start + SIZE), said.value


def put_timed_window(store: Any, record: Record) -> None:
    start = start_of(record.timestamp)
    store.put(record.key, record.value and ValueAndTimestamp(record.value, record.timestamp), start)


def timed_window_row(said: Said) -> tuple[int, Any, Any]:
    start, window, value = window_row(said)
    return start, window, value and ValueAndTimestamp(value, said.timestamp)


def read_windows(store: Any) -> Rows:
    rows = dict(store.all())
    assert dict(store.backward_all()) == rows
    for key in {windowed.key for windowed in rows}:
        of_key = {windowed.start: value for windowed, value in rows.items() if windowed.key == key}
        assert dict(store.fetch(key, 0, FOREVER)) == of_key
        assert {start: store.fetch(key, start) for start in of_key} == of_key
    return rows


def session_of(key: str, timestamp: int) -> Windowed[str]:
    return Windowed(key, timestamp - timestamp % 7, timestamp)


def put_session(store: Any, record: Record) -> None:
    store.put(session_of(record.key, record.timestamp), record.value)


def session_row(said: Said) -> tuple[int, Any, Any]:
    return said.timestamp, session_of(said.key, said.timestamp), said.value


def read_sessions(store: Any) -> Rows:
    rows = dict(store.fetch_range(None, None))
    for key in {windowed.key for windowed in rows}:
        of_key = {windowed: value for windowed, value in rows.items() if windowed.key == key}
        assert dict(store.find_sessions(key, 0, FOREVER)) == of_key
        assert {session: store.fetch_session(*session) for session in of_key} == of_key
    return rows


# -- versions


def put_version(store: Any, record: Record) -> None:
    store.put(record.key, record.value, record.timestamp)


def versions(said: Sequence[Said]) -> Rows:
    """What each key was at each time at which any key changed, within the history."""
    observed, taken = -1, dict[str, dict[int, str | None]]()
    for key, value, timestamp in said:
        if timestamp >= observed - RETENTION:
            taken.setdefault(key, {})[timestamp] = value
            observed = max(observed, timestamp)
    rows: Rows = {}
    for key, values in taken.items():
        latest = max(values)
        if values[latest] is not None:
            rows[key] = ValueAndTimestamp(values[latest], latest)
        for at in sorted(values):
            if at >= observed - RETENTION and values[at] is not None:
                rows[key, at] = values[at]
    return rows


def read_versions(store: Any) -> Rows:
    rows: Rows = dict(store.all())
    for key in "abcde":
        first = max(0, store._observed.value - RETENTION)
        for version in store.versions(key, first):
            if version.timestamp >= first:
                rows[key, version.timestamp] = version.value
                at = store.get(key, as_of=version.timestamp)
                assert (at.value, at.timestamp) == version[:2]
    return rows


# -- entries that make room, or are over


def put(store: Any, record: Record) -> None:
    store.put(record.key, record.value)


def use_and_put(store: Any, record: Record) -> None:
    store.get("a")
    store.put(record.key, record.value)


def last_used(said: Sequence[Said]) -> Rows:
    rows: OrderedDict[str, str] = OrderedDict()
    for key, value, _ in said:
        if "a" in rows:
            rows.move_to_end("a")
        if value is None:
            rows.pop(key, None)
            continue
        if key not in rows and len(rows) == MAX_ENTRIES:
            rows.popitem(last=False)
        rows[key] = value
        rows.move_to_end(key)
    return dict(rows)


def read_entries(store: Any) -> Rows:
    rows = dict(store.all())
    assert {key: store.get(key) for key in rows} == rows
    return rows


def living(said: Sequence[Said]) -> Rows:
    rows = {each.key: each for each in said}
    highest = max((each.timestamp for each in said), default=0)
    return {
        key: each.value for key, each in rows.items()
        if each.value is not None and each.timestamp >= highest - RETENTION
    }  # fmt: skip


def read_timestamped(store: Any) -> Rows:
    return {key: tuple(row) for key, row in store.all()}


def put_timestamped(store: Any, record: Record) -> None:
    store.put(record.key, record.value and ValueAndTimestamp(record.value, record.timestamp))


CASES = [
    Case(stores.key_value("s", str, str), put, lambda said: living_for_ever(said), read_entries),
    Case(
        stores.timestamped_key_value("s", str, str), put_timestamped,
        lambda said: {key: (value, last_time(said, key)) for key, value in living_for_ever(said).items()},
        read_timestamped,
    ),
    Case(
        stores.window("s", str, str, size=SIZE, retention=RETENTION), put_window, bounded(window_row), read_windows
    ),
    Case(
        stores.timestamped_window("s", str, str, size=SIZE, retention=RETENTION), put_timed_window,
        bounded(timed_window_row), read_windows,
    ),
    Case(stores.session("s", str, str, retention=RETENTION), put_session, bounded(session_row), read_sessions),
    Case(stores.versioned("s", str, str, history=RETENTION), put_version, versions, read_versions),
    Case(
        stores.lru("s", str, str, max_entries=MAX_ENTRIES, in_memory=False), use_and_put, last_used, read_entries
    ),
    Case(stores.key_value("s", str, str, ttl=RETENTION), put, living, read_entries),
]  # fmt: skip


def living_for_ever(said: Sequence[Said]) -> Rows:
    rows = {each.key: each.value for each in said}
    return {key: value for key, value in rows.items() if value is not None}


def last_time(said: Sequence[Said], key: str) -> int:
    return next(each.timestamp for each in reversed(said) if each.key == key)


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


@pytest.mark.parametrize("seed", range(6))
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
                if case.kind in ("window", "timestamped-window"):
                    rows = [*store.fetch_all(0, FOREVER), *store.fetch("a", 0, FOREVER), store.fetch("a", 310_000)]
                elif case.kind == "session":
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
