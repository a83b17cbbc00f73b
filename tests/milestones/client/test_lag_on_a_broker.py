"""Lags of a running application whose topics are written in transactions: their markers are nobody's records."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.clock import SystemClock
from tests.topics import made

pytestmark = pytest.mark.kafka

TIMEOUT_S = 40


def lags(streams: Streams) -> dict[tuple[str, str], float]:
    """`records-lag` by topic and partition."""
    entries = streams.metrics().get("consumer-fetch-manager-metrics", ())
    return {(e["tags"]["topic"], e["tags"]["partition"]): e["metrics"]["records-lag"] for e in entries}


def processed(streams: Streams) -> float:
    return sum(e["metrics"].get("process-total", 0) for e in streams.metrics().get("stream-task-metrics", ()))


@pytest.mark.parametrize("stage", ["baseline", "m3"])
def test_the_lag_of_topics_written_in_transactions_gets_back_to_0_once_all_is_processed(
    kafka: str, tmp_path: Path, stage: str
) -> None:
    name = f"lag-{uuid4().hex[:8]}"
    made(AdminClient({"bootstrap.servers": kafka}), NewTopic(f"{name}-in", 2))
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for word in ("a", "b", "c"):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(f"{name}-in", word.encode(), word.encode(), partition=partition)
        producer.commit_transaction(TIMEOUT_S)
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=serdes.STRING, value=serdes.STRING)
    words.group_by(lambda _, word: word, key=serdes.STRING).count("counts")
    streams = Streams(
        builder, application_id=name, bootstrap_servers=kafka, state_dir=str(tmp_path), milestones=stage,
        processing_guarantee="exactly_once_v2", auto_offset_reset="earliest",
    )  # fmt: skip
    clock = SystemClock()
    deadline = clock.monotonic_ms() + TIMEOUT_S * 1000
    with streams:
        # Six inputs, each of them twice: before and after the repartition topic.
        while processed(streams) < 12 or any(lags(streams).values()):
            assert clock.monotonic_ms() < deadline, f"{processed(streams)} processed, lags {lags(streams)}"
            clock.sleep_ms(50)
        topics = {topic for topic, _ in lags(streams)}
    assert topics == {f"{name}-in", f"{name}-counts-repartition"}
