"""What changes while an application runs, on a real broker: threads, pauses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from tests.topics import made

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60
PARTITIONS = 4


class App:
    """counts of `in`, copies of `other`; and what came out, by topic."""

    def __init__(self, kafka: str) -> None:
        self.kafka, self.id = kafka, f"live-{uuid4().hex[:8]}"
        self.names = ("in", "other", "out", "copies")
        admin = AdminClient({"bootstrap.servers": kafka})
        made(admin, *(NewTopic(self[name], PARTITIONS) for name in self.names))
        self._producer = Producer({"bootstrap.servers": kafka})
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{self.id}-reader", "isolation.level": "read_committed"}
        )
        outputs = [TopicPartition(self[name], p, 0) for name in self.names[2:] for p in range(PARTITIONS)]
        self._consumer.assign(outputs)
        self.sent = Counter[str]()
        self.got = Counter[str]()

    def __getitem__(self, name: str) -> str:
        return f"{self.id}-{name}"

    def topology(self) -> StreamsBuilder:
        builder = StreamsBuilder()
        records = builder.stream(self["in"], key=serdes.STRING, value=serdes.STRING)
        records.group_by_key().count("counts").to_stream().to(self["out"], value=serdes.LONG)
        builder.stream(self["other"], key=serdes.STRING, value=serdes.STRING).to(self["copies"])
        return builder

    def send(self, count: int = 200, *names: str) -> None:
        for name in names or ("in", "other"):
            for number in range(count):
                self._producer.produce(self[name], b"v", b"k%d" % (number % 20))
            self.sent[{"in": "out", "other": "copies"}[name]] += count
        assert self._producer.flush(TIMEOUT_S) == 0

    def read(self, wait_s: float = 0.1) -> Counter[str]:
        for message in self._consumer.consume(1_000, wait_s):
            assert message.error() is None, message.error()
            self.got[(message.topic() or "").rpartition("-")[2]] += 1
        return self.got

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def app(kafka: str) -> Iterator[App]:
    app = App(kafka)
    yield app
    app.close()


@pytest.fixture(params=["baseline", "m2"])
def stage(request: pytest.FixtureRequest) -> str:
    """Each case runs on the stage where user code is the stream thread's, and on the one where it isn't."""
    return str(request.param)


@contextmanager
def running(app: App, state: Path, stage: str, **settings: Any) -> Iterator[Streams]:
    streams = Streams(
        app.topology(), application_id=app.id, bootstrap_servers=app.kafka, state_dir=str(state), milestones=stage,
        processing_guarantee="exactly_once_v2", heartbeat_interval_ms=200, session_timeout_ms=10_000, **settings,
    )  # fmt: skip
    with streams:
        yield streams


def until(condition: Callable[[], bool], seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.01)


def runs(streams: Streams, threads: int) -> None:
    """All tasks are processed, by so many threads."""
    until(
        lambda: streams.state is StreamsState.RUNNING
        and len(streams.status().threads) == threads
        and len([task for task in streams.status().tasks.values() if task == "running"]) == (8 if threads else 0),
        streams.status,
    )


def all_out(app: App, streams: Streams) -> None:
    until(lambda: app.read() == app.sent, lambda: (app.got, app.sent, streams.status()))


@pytest.mark.parametrize("static", [None, "me"])
def test_threads_come_and_go_down_to_none_and_every_record_is_counted_once(
    app: App, tmp_path: Path, stage: str, static: str | None
) -> None:
    with running(app, tmp_path, stage, group_instance_id=static) as streams:
        app.send()
        runs(streams, 1)
        second, third = streams.add_stream_thread(), streams.add_stream_thread()
        app.send()
        runs(streams, 3)
        app.send()
        assert streams.remove_stream_thread() == third
        assert streams.remove_stream_thread() == second
        app.send()
        runs(streams, 1)
        last = streams.remove_stream_thread()
        runs(streams, 0)
        app.send()
        assert streams.add_stream_thread() == last
        runs(streams, 1)
        all_out(app, streams)
    assert streams.error is None


def test_a_paused_sub_topology_waits_while_the_other_goes_on_and_none_is_lost(
    app: App, tmp_path: Path, stage: str
) -> None:
    with running(app, tmp_path, stage, num_stream_threads=2) as streams:
        app.send()
        runs(streams, 2)
        all_out(app, streams)
        streams.pause("counts")
        streams.add_stream_thread()
        runs(streams, 3)
        before = app.got["out"]
        app.send(2_000)  # a pause holds for what comes after it: no thread has anything in work
        until(lambda: app.read()["copies"] == app.sent["copies"], lambda: (app.got, app.sent))
        assert app.read(1.0)["out"] == before
        streams.resume("counts")
        all_out(app, streams)


def test_user_code_may_remove_stream_threads_and_at_last_its_own(app: App, tmp_path: Path, stage: str) -> None:
    removed: dict[str, str] = {}

    def obey(value: str) -> str:
        if value not in removed:
            removed[value] = ""
            removed[value] = streams.remove_stream_thread()
        return value

    builder = StreamsBuilder()
    builder.stream(app["in"], key=serdes.STRING, value=serdes.STRING).map_values(obey).to(app["out"])
    streams = Streams(
        builder, application_id=app.id, bootstrap_servers=app.kafka, state_dir=str(tmp_path), num_stream_threads=2,
        processing_guarantee="exactly_once_v2", heartbeat_interval_ms=200, milestones=stage,
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": app.kafka})
    with streams:
        for left, value in ((1, "first"), (0, "second")):
            until(lambda: streams.state is StreamsState.RUNNING, streams.status)
            producer.produce(app["in"], value.encode())
            producer.flush()
            until(lambda left=left: len(streams.status().threads) == left, streams.status)  # type: ignore[misc]
        assert streams.state is StreamsState.RUNNING
    assert len(set(removed.values())) == 2
