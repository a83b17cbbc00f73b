"""A running application on a real broker: outputs that are refused, and its metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.common.clock import SystemClock
from milestones.common.errors import ConfigError, ProductionError
from milestones.common.metrics import summed
from tests.topics import made

pytestmark = pytest.mark.kafka

TIMEOUT_S = 40
TOO_LARGE = 1_100_000
"""Bytes: more than a client sends by default (producer_message_max_bytes)."""


class Topics:
    """in, out and letters of one test."""

    def __init__(self, kafka: str, **settings: str) -> None:
        self.kafka, self.prefix = kafka, f"app-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": kafka})
        any_time = {"message.timestamp.after.max.ms": str(2**62)}
        made(
            admin, NewTopic(self["in"], 2, config=any_time), NewTopic(self["out"], 1, config=settings),
            NewTopic(self["letters"], 1),
        )  # fmt: skip

    def __getitem__(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def write(self, *values: str, timestamp: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for value in values:
            producer.produce(self["in"], value.encode(), b"key", timestamp=timestamp)
        assert producer.flush(TIMEOUT_S) == 0

    def read(self, name: str, count: int) -> list[Message]:
        """The first `count` committed records."""
        consumer = Consumer({
            "bootstrap.servers": self.kafka, "group.id": f"{self.prefix}-reader", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "fetch.message.max.bytes": 4_000_000,
        })  # fmt: skip
        consumer.subscribe([self[name]])
        found: list[Message] = []
        deadline = SystemClock().monotonic_ms() + TIMEOUT_S * 1000
        while len(found) < count and SystemClock().monotonic_ms() < deadline:
            found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
        consumer.close()
        return found


def topology(topics: Topics) -> StreamsBuilder:
    """in -> a value of as many bytes as the record says -> out."""
    builder = StreamsBuilder()
    lines = builder.stream(topics["in"], key=serdes.STRING, value=serdes.STRING)
    lines.map_values(lambda size: "x" * int(size)).to(topics["out"], key=serdes.STRING, value=serdes.STRING)
    return builder


@contextmanager
def running(topics: Topics, state: Path, **settings: Any) -> Iterator[Streams]:
    streams = Streams(
        topology(topics), application_id=topics.prefix, bootstrap_servers=topics.kafka, state_dir=str(state),
        commit_interval_ms=100, auto_offset_reset="earliest", **settings,
    )  # fmt: skip
    streams.start()
    try:
        yield streams
    finally:
        streams.close()


def sizes(messages: list[Message]) -> list[int]:
    return [len(message.value() or b"") for message in messages]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_record_too_large_for_the_client_is_skipped_alone_with_a_dead_letter(
    kafka: str, tmp_path: Path, guarantee: str
) -> None:
    topics = Topics(kafka)
    topics.write("1", str(TOO_LARGE), "2")
    handler = {"production_exception_handler": "log_and_continue"}
    dead_letters = {"errors_dead_letter_queue_topic_name": topics["letters"]}
    with running(topics, tmp_path, processing_guarantee=guarantee, **handler, **dead_letters) as streams:
        assert sizes(topics.read("out", 2)) == [1, 2]
        (letter,) = topics.read("letters", 1)
        assert streams.state is StreamsState.RUNNING
    headers = dict(letter.headers() or [])
    assert (letter.key(), letter.value()) == (b"key", None)  # as large as the record, it would be refused as well
    assert b"Message size too large" in (headers["__streams.errors.message"] or b"")  # type: ignore[operator]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_record_too_large_for_the_client_ends_the_application_by_default(
    kafka: str, tmp_path: Path, guarantee: str
) -> None:
    topics = Topics(kafka)
    topics.write(str(TOO_LARGE))
    with running(topics, tmp_path, processing_guarantee=guarantee) as streams:
        assert streams.wait(TIMEOUT_S)
    assert streams.state is StreamsState.ERROR
    assert isinstance(streams.error, ProductionError)
    assert "set production_exception_handler" in str(streams.error)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_batch_too_large_for_the_broker_ends_the_application_with_what_to_do(
    kafka: str, tmp_path: Path, guarantee: str
) -> None:
    topics = Topics(kafka, **{"max.message.bytes": "1500"})
    topics.write("1", "5000", "2")
    skip = {"production_exception_handler": "log_and_continue", "processing_guarantee": guarantee}
    with running(topics, tmp_path, **skip) as streams:
        assert streams.wait(TIMEOUT_S)
    assert isinstance(streams.error, ProductionError)
    assert topics["out"] in str(streams.error)
    assert "set producer_message_max_bytes to 200 less" in str(streams.error)
    with running(topics, tmp_path, **skip, producer_message_max_bytes=1300) as streams:
        assert sizes(topics.read("out", 2)) == [1, 2]
        assert streams.state is StreamsState.RUNNING


def test_an_output_that_the_broker_refuses_is_skipped_under_at_least_once_with_a_dead_letter(
    kafka: str, tmp_path: Path
) -> None:
    topics = Topics(kafka, **{"message.timestamp.after.max.ms": "3600000"})
    late = 4_000_000_000_000  # ms; a day in 2096
    topics.write("7", timestamp=late)
    handler = {"production_exception_handler": "log_and_continue", "processing_guarantee": "at_least_once"}
    with running(topics, tmp_path, **handler, errors_dead_letter_queue_topic_name=topics["letters"]) as streams:
        (letter,) = topics.read("letters", 1)
        topics.write("2")
        assert sizes(topics.read("out", 1)) == [2]
        assert streams.state is StreamsState.RUNNING
    assert (letter.key(), letter.value()) == (b"key", b"x" * 7)
    assert 0 < letter.timestamp()[1] < late


@pytest.mark.parametrize("stage", ["baseline", "m2", "fencing_tolerance"])
def test_an_output_that_the_broker_refuses_takes_no_other_of_its_batch_with_it(
    kafka: str, tmp_path: Path, stage: str
) -> None:
    topics = Topics(kafka, **{"message.timestamp.after.max.ms": "3600000"})
    topics.write("1", "2")
    topics.write("7", timestamp=4_000_000_000_000)
    topics.write("3", "4")
    settings = {"production_exception_handler": "log_and_continue", "processing_guarantee": "at_least_once"}
    dead_letters = {"errors_dead_letter_queue_topic_name": topics["letters"]}
    with running(topics, tmp_path, **settings, **dead_letters, milestones=stage, producer_linger_ms=50) as streams:
        (letter,) = topics.read("letters", 1)
        assert sizes(topics.read("out", 4)) == [1, 2, 3, 4]
        topics.write("5")
        assert sizes(topics.read("out", 1)) == [5]
        assert streams.state is StreamsState.RUNNING
    assert letter.value() == b"x" * 7


def test_an_output_that_fails_its_transaction_is_skipped_with_a_dead_letter_with_fencing_tolerance(
    kafka: str, tmp_path: Path
) -> None:
    topics = Topics(kafka, **{"message.timestamp.after.max.ms": "3600000"})
    late = 4_000_000_000_000
    topics.write("7", timestamp=late)
    settings = {"production_exception_handler": "log_and_continue", "processing_guarantee": "exactly_once_v2"}
    dead_letters = {"errors_dead_letter_queue_topic_name": topics["letters"]}
    with running(topics, tmp_path, **settings, **dead_letters, milestones="fencing_tolerance") as streams:
        (letter,) = topics.read("letters", 1)
        topics.write("2")
        assert sizes(topics.read("out", 1)) == [2]
        assert streams.state is StreamsState.RUNNING
        deadline = SystemClock().monotonic_ms() + TIMEOUT_S * 1000
        while not summed(streams.metrics(), "stream-task-metrics", "dropped-records-total"):
            assert SystemClock().monotonic_ms() < deadline
            SystemClock().sleep_ms(50)
        assert summed(streams.metrics(), "stream-task-metrics", "dropped-records-total") == 1
    assert (letter.key(), letter.value()) == (b"key", b"x" * 7)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_an_application_shows_right_totals_in_code_and_to_prometheus(
    kafka: str, tmp_path: Path, guarantee: str
) -> None:
    topics = Topics(kafka)
    topics.write(*["10"] * 500, str(TOO_LARGE))
    settings = {"processing_guarantee": guarantee, "production_exception_handler": "log_and_continue"}
    with running(topics, tmp_path, **settings, metrics_port=0, metrics_recording_level="DEBUG") as streams:
        assert len(topics.read("out", 500)) == 500

        def total(group: str, name: str) -> float:
            return summed(streams.metrics(), group, name)

        deadline = SystemClock().monotonic_ms() + TIMEOUT_S * 1000
        while total("stream-task-metrics", "process-total") < 501 and SystemClock().monotonic_ms() < deadline:
            SystemClock().sleep_ms(50)
        while total("consumer-fetch-manager-metrics", "records-lag") and SystemClock().monotonic_ms() < deadline:
            SystemClock().sleep_ms(50)
        while not total("stream-thread-metrics", "commit-total") and SystemClock().monotonic_ms() < deadline:
            SystemClock().sleep_ms(50)
        assert total("stream-task-metrics", "process-total") == 501
        assert total("stream-thread-metrics", "process-total") == 501
        assert total("stream-task-metrics", "dropped-records-total") == 1
        assert total("stream-processor-node-metrics", "process-total") == 3 * 501
        assert total("stream-thread-metrics", "commit-total") >= 1
        assert total("stream-thread-metrics", "blocked-time-ns-total") > 0
        assert total("stream-thread-metrics", "failed-stream-threads") == 0
        assert total("consumer-coordinator-metrics", "assigned-partitions") == 2
        (client,) = streams.metrics()["stream-metrics"]
        assert (client["metrics"]["state"], client["metrics"]["alive-stream-threads"]) == ("RUNNING", 1)
        assert streams.metrics_address is not None
        host, port = streams.metrics_address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert 'kafka_stream_state_info{' in text
        assert 'value="RUNNING"' in text
        lines = [line for line in text.splitlines() if line.startswith("kafka_stream_task_process_total{")]
        assert sum(float(line.rsplit(" ", 1)[1]) for line in lines) == 501
    assert set(streams.metrics()) == {"stream-metrics"}
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10)


def test_a_metrics_port_that_is_taken_is_an_error_at_start_that_leaves_nothing_behind(
    kafka: str, tmp_path: Path
) -> None:
    topics = Topics(kafka)
    with running(topics, tmp_path / "first", metrics_port=0) as streams:
        assert streams.metrics_address is not None
        port = streams.metrics_address[1]
        second = Streams(
            topology(topics), application_id=topics.prefix, bootstrap_servers=kafka,
            state_dir=str(tmp_path / "second"), metrics_port=port,
        )  # fmt: skip
        with pytest.raises(ConfigError, match=rf"metrics_port={port}: can't listen on 127.0.0.1.*choose another"):
            second.start()
        second.close()
        Streams(
            topology(topics), application_id=topics.prefix, bootstrap_servers=kafka, state_dir=str(tmp_path / "second")
        ).close()
