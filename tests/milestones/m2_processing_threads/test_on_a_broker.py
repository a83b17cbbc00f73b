"""What only threads and a real Kafka show: user code that doesn't return, caches, threads that die."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.common.errors import ProcessingError
from milestones.instance.context import Exceptions
from tests.topics import made

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60
PARTITIONS = 4
GUARANTEES = ["at_least_once", "exactly_once_v2"]


class App:
    """Counts of `in` by key, through user code that waits for `gate` at a value of "wait", and raises at "poison"."""

    def __init__(self, kafka: str, state: Path) -> None:
        self.kafka, self.id, self._state = kafka, f"threads-{uuid4().hex[:8]}", state
        self.input, self.output = f"{self.id}-in", f"{self.id}-out"
        admin = AdminClient({"bootstrap.servers": kafka})
        made(admin, *(NewTopic(name, PARTITIONS) for name in (self.input, self.output)))
        self._producer = Producer({"bootstrap.servers": kafka})
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{self.id}-reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(self.output, p, 0) for p in range(PARTITIONS)])
        self.gate, self.waiting, self.poison = threading.Event(), threading.Event(), True
        self.counts: dict[str, int] = {}
        self.outputs = 0
        self.running: list[Streams] = []

    def _user_code(self, value: str) -> str:
        if value == "wait":
            gate = self.gate
            self.waiting.set()
            gate.wait()
        if value == "poison" and self.poison:
            raise ValueError("user code")
        return value

    def start(self, name: str = "one", *, deaths: int = 0, **settings: Any) -> Streams:
        """Threads are replaced; after so many `deaths` nothing is poisonous any more. 0: the first one is the end."""
        builder = StreamsBuilder()
        records = builder.stream(self.input, key=serdes.STRING, value=serdes.STRING).map_values(self._user_code)
        records.group_by_key().count("counts").to_stream().to(self.output, value=serdes.LONG)
        defaults = {
            "processing_guarantee": "exactly_once_v2", "heartbeat_interval_ms": 200, "session_timeout_ms": 10_000,
            "num_processing_threads": 2, "milestones": "m2", "commit_interval_ms": 200,
        }  # fmt: skip
        streams = Streams(
            builder, application_id=self.id, bootstrap_servers=self.kafka, state_dir=str(self._state / name),
            **{**defaults, **settings},
        )  # fmt: skip
        if deaths:
            streams.set_uncaught_exception_handler(self._replace)
            self.deaths_left = deaths
        self.running.append(streams)
        streams.start()
        return streams

    def _replace(self, _: BaseException) -> Exceptions:
        self.deaths_left -= 1
        self.poison = self.deaths_left > 0
        return Exceptions.REPLACE_THREAD

    def send(self, partition: int, *values: str, key: str = "k") -> None:
        for value in values:
            self._producer.produce(self.input, value.encode(), f"{key}{partition}".encode(), partition)
        assert self._producer.flush(TIMEOUT_S) == 0

    def until(self, condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.read()
            assert time.monotonic() < deadline, (self.counts, [streams.status() for streams in self.running])

    def read(self) -> dict[str, int]:
        for message in self._consumer.consume(1_000, 0.05):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            self.counts[key.decode()] = serdes.LONG.deserialize("", value)
            self.outputs += 1
        return self.counts

    def has(self, key: str, count: int) -> bool:
        return self.counts.get(key) == count

    def runs(self, streams: Streams, tasks: int = PARTITIONS) -> None:
        self.until(
            lambda: streams.state is StreamsState.RUNNING
            and Counter(streams.status().tasks.values()) == {"running": tasks}
        )

    def close(self) -> None:
        self.gate.set()
        for streams in self.running:
            streams.close()
        self._consumer.close()


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    app = App(kafka, tmp_path)
    yield app
    app.close()


def metric(streams: Streams, group: str, name: str) -> float:
    return sum(entry["metrics"].get(name, 0) for entry in streams.metrics().get(group, ()))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_user_code_that_doesnt_return_keeps_nobody_but_its_own_task_and_commits_go_on(
    app: App, guarantee: str
) -> None:
    streams = app.start(max_poll_interval_ms=6_000, processing_guarantee=guarantee)
    app.runs(streams)
    generation = streams.status().generation
    app.send(0, "a", "wait", "b")
    assert app.waiting.wait(TIMEOUT_S)
    began = time.monotonic()
    while time.monotonic() - began < 9:
        expected = app.counts.get("k1", 0) + 1
        app.send(1, "a")
        app.until(partial(app.has, "k1", expected))
    assert app.counts["k0"] == 1  # its prefix is committed
    assert streams.status().generation == generation
    app.gate.set()
    app.until(lambda: app.counts.get("k0") == 3)
    assert streams.close()
    assert streams.error is None


def test_a_task_whose_call_doesnt_return_is_given_away_at_once_and_the_calls_result_is_void(app: App) -> None:
    one = app.start("one")
    app.runs(one)
    app.send(0, "a", "wait", "b")
    assert app.waiting.wait(TIMEOUT_S)
    stuck, app.gate = app.gate, threading.Event()
    app.gate.set()
    two = app.start("two")
    app.until(lambda: len(two.status().tasks) == 2)
    assert not one.close(timeout_s=1)
    app.runs(two)
    app.until(lambda: app.counts.get("k0") == 3)
    assert one.state is StreamsState.PENDING_SHUTDOWN
    stuck.set()
    assert one.wait(TIMEOUT_S)
    app.send(0, "c")
    app.until(lambda: app.counts.get("k0") == 4)
    assert (one.error, two.error) == (None, None)


def test_closing_doesnt_wait_for_user_code_longer_than_it_was_told(app: App) -> None:
    streams = app.start()
    app.runs(streams)
    app.send(0, "a", "wait")
    app.until(lambda: app.counts.get("k0") == 1)
    assert app.waiting.wait(TIMEOUT_S)
    began = time.monotonic()
    assert not streams.close(timeout_s=3)
    assert time.monotonic() - began < TIMEOUT_S / 2
    app.gate.set()
    assert streams.wait(TIMEOUT_S)
    again = app.start()
    app.until(lambda: app.counts.get("k0") == 2)
    assert again.error is None


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_caches_are_flushed_before_each_commit_and_before_a_clean_end_so_nothing_is_processed_twice(
    app: App, guarantee: str
) -> None:
    settings = {"statestore_cache_max_bytes": 10_000_000, "processing_guarantee": guarantee}
    for life in range(1, 4):
        streams = app.start(commit_interval_ms=5_000 if life == 2 else 200, **settings)
        app.runs(streams)
        for partition in range(PARTITIONS):
            app.send(partition, *["a"] * 500)
        records = 500 * PARTITIONS
        app.until(lambda: streams.status().records >= records)  # noqa: B023
        assert streams.close()
        assert streams.error is None
        app.until(lambda: app.counts == {f"k{p}": 500 * life for p in range(PARTITIONS)})  # noqa: B023
    assert app.outputs < 3 * 500 * PARTITIONS  # caches did their work


def test_a_task_that_fails_is_tried_again_and_ends_its_thread_when_it_has_failed_for_too_long(app: App) -> None:
    streams = app.start(task_timeout_ms=60_000)
    app.runs(streams)
    app.send(0, "a", "poison", "b")
    app.send(1, "a", "b")
    app.until(lambda: app.counts == {"k0": 1, "k1": 2})
    app.until(lambda: metric(streams, "stream-scheduler-metrics", "quarantined-tasks") == 1)
    app.poison = False
    app.until(lambda: app.counts == {"k0": 3, "k1": 2})
    assert streams.close()
    streams = app.start(task_timeout_ms=3_000)
    app.poison = True
    app.send(0, "poison")
    app.until(lambda: streams.state is StreamsState.ERROR)
    assert isinstance(streams.error, ProcessingError)


def test_a_stream_thread_that_dies_takes_its_processing_threads_along_and_is_replaced(app: App) -> None:
    streams = app.start(task_timeout_ms=1_000, deaths=2)
    app.runs(streams)
    app.send(0, "a", "poison", "b")
    app.until(lambda: app.counts.get("k0") == 3)
    app.runs(streams)
    ours = [t.name for t in threading.enumerate() if app.id in t.name and "ProcessingThread" in t.name]
    assert len(ours) == 2, ours
    assert streams.close()
