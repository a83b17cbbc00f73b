"""What a task hands out is read back from Kafka as it was: nothing is changed silently on the way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.config import StreamsConfig
from milestones.common.errors import ProductionError
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import Emitted, Headers, Output, TaskId, TopicPartition, emitted_of
from milestones.common.state.cells import Cells
from milestones.common.state.changelog import TimestampedLayout, changelog
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import TimestampedKeyValueStore, ValueAndTimestamp
from milestones.common.state.stores.rows import StoreParts
from milestones.common.task.scope import RecordInWork
from milestones.common.writable import writable
from tests.topics import new_topic

pytestmark = pytest.mark.kafka

TASK = TaskId(0, 0)
TIMEOUT_MS = 20_000
PAST_MS = 1_700_000_000_000
"""A broker takes no timestamp that is far ahead of its own clock."""

content = st.none() | st.binary(max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
headers = st.lists(st.tuples(names, content), max_size=4)
records = st.lists(
    st.tuples(content, content, st.integers(-1, PAST_MS), st.none() | headers), min_size=1, max_size=10
)

Row = tuple[bytes | None, bytes | None, int, Headers]


class Wire:
    """A producer and a consumer of one topic with one partition."""

    def __init__(self, kafka: str, **topic_settings: str) -> None:
        self.config = StreamsConfig(application_id="app", bootstrap_servers=kafka, variables={})
        self.topic = new_topic(kafka, **topic_settings)
        self.producer = OutputProducer(self.config.producer_settings("test"))
        self.consumer = AssignedConsumer(self.config.consumer_settings("test"))
        self.consumer.assign({TopicPartition(self.topic, 0): OFFSET_BEGINNING})

    def output(self, key: Any, value: Any, timestamp: Any, headers: Any, partition: Any = 0) -> Output:
        return Output(self.topic, partition, key, value, timestamp, headers, "sink")

    def through(self, *outputs: Output) -> list[Row]:
        return [
            (message.key(), message.value(), message.timestamp()[1], message.headers() or [])
            for message in self.messages([*map(emitted_of, outputs)])
        ]

    def messages(self, outputs: Sequence[Emitted]) -> list[Any]:
        self.producer.send(TASK, outputs)
        self.producer.flush(TIMEOUT_MS)
        assert self.producer.refused == []
        messages: list[Any] = []
        for _ in range(TIMEOUT_MS // 100):
            messages += itertools.chain(*self.consumer.fetch(1_000, 100).records.values())
            if len(messages) >= len(outputs):
                break
        return messages

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


@pytest.fixture
def wire(kafka: str) -> Any:
    made = Wire(kafka)
    yield made
    made.close()


def test_whatever_a_task_hands_out_is_read_back_as_it_was(wire: Wire) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(records)
    def check(rows: list[Any]) -> None:
        sent = [writable(wire.output(*row)) for row in rows]
        expected = [(key, value, timestamp or 1, headers or []) for key, value, timestamp, headers in rows]
        assert wire.through(*sent) == expected

    check()


def test_the_rows_that_are_restored_from_a_changelog_are_those_of_the_store(wire: Wire) -> None:
    keys, times = st.sampled_from(["a", "b", "c"]), st.integers(0, 3) | st.integers(0, PAST_MS)

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.tuples(keys, st.none() | st.text(max_size=3), times), min_size=1, max_size=8))
    def check(rows: list[Any]) -> None:
        engine, touched, outputs = MemoryEngines().open(Path(), "s"), list[Any](), list[Emitted]()
        cache, work = ReadCache(ReadCaches()), RecordInWork()
        layers = StoreLayers(engine.open("s"), touched, cache)
        log = changelog(wire.topic, 0, "s", outputs.append)
        store = TimestampedKeyValueStore(
            StoreParts(
                TASK, layers, cache, serdes.STRING, serdes.STRING, wire.topic, log, work, StoreSpec("s"), Cells([])
            )
        )
        store.open()
        for key, value, timestamp in rows:
            work.timestamp = timestamp
            store.put(key, ValueAndTimestamp(value, timestamp))
        read = {key: store.get(key) for key, _, _ in rows}
        layers.merge()
        layers.freeze()
        assert TimestampedLayout().restored(wire.messages(outputs)) == layers.frozen()
        assert read == {key: store.get(key) for key, _, _ in rows}

    check()


@pytest.mark.parametrize("size", [0, 1, 100_000, 900_000])
def test_values_of_all_sizes_come_back(wire: Wire, size: int) -> None:
    value = bytes(i % 251 for i in range(size))
    assert wire.through(wire.output(b"", value, 5, None)) == [(b"", value, 5, [])]


def test_a_topic_with_log_append_time_gives_its_own_time_and_keeps_all_else(kafka: str) -> None:
    wire = Wire(kafka, **{"message.timestamp.type": "LogAppendTime"})
    ((key, value, timestamp, headers),) = wire.through(wire.output(b"k", None, 5, [("a", None), ("a", b"")]))
    assert (key, value, headers) == (b"k", None, [("a", None), ("a", b"")])
    assert timestamp > PAST_MS
    wire.close()


@pytest.mark.parametrize(
    "change",
    [{"timestamp": 1.5}, {"timestamp": 1 << 63}, {"key": 5}, {"value": object}, {"headers": [("a", 5)]},
     {"headers": (("a", b""),)}, {"partition": 1 << 31}, {"topic": "a\0"}, {"topic": "\ud800"}],
    ids=str,
)  # fmt: skip
def test_what_the_client_cannot_take_at_all_names_task_and_topic(wire: Wire, change: dict[str, Any]) -> None:
    wrong = wire.output(b"k", b"v", 5, None)._replace(**change)
    with pytest.raises(ProductionError, match=r"task 0_0: Kafka's client can't take a record for .*sink"):
        wire.producer.send(TASK, [emitted_of(wrong)])
