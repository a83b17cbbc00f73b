"""An application whose function doesn't return when its process is to end: how long that takes, what is said of it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from milestones.common.clock import SystemClock
from tests.topics import made

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30

APP = """
import sys, time
from milestones import Streams, StreamsBuilder, serdes

def slow(value):
    if value == sys.argv[4]:
        print("in it", flush=True)
        time.sleep(600)
    return value

name, kafka, stage = sys.argv[1:4]
builder = StreamsBuilder()
lines = builder.stream(f"{name}-in", key=serdes.STRING, value=serdes.STRING)
counts = lines.map_values(slow).group_by_key().count("counts")
counts.to_stream().to(f"{name}-out", value=serdes.LONG)
streams = Streams(
    builder, application_id=name, bootstrap_servers=kafka, milestones=stage, state_dir=sys.argv[5],
    processing_guarantee="exactly_once_v2", close_timeout_ms=2_000, session_timeout_ms=6_000,
    auto_offset_reset="earliest",
)
sys.exit(streams.run())
"""


def outputs(kafka: str, name: str, count: int) -> list[Message]:
    """The first `count` committed ones."""
    settings = {"bootstrap.servers": kafka, "group.id": f"{name}-reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(f"{name}-out", 0, 0)])
    found: list[Message] = []
    deadline = SystemClock().monotonic_ms() + TIMEOUT_S * 1000
    while len(found) < count and SystemClock().monotonic_ms() < deadline:
        found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return found


@pytest.mark.parametrize("stage", ["baseline", "m3"])
def test_a_function_that_does_not_return_is_named_and_ends_the_process_with_1_and_nothing_is_lost(
    kafka: str, tmp_path: Path, stage: str
) -> None:
    name = f"hang-{uuid4().hex[:8]}"
    made(AdminClient({"bootstrap.servers": kafka}), NewTopic(f"{name}-in", 1), NewTopic(f"{name}-out", 1))
    producer = Producer({"bootstrap.servers": kafka})
    app = tmp_path / "app.py"
    app.write_text(APP)

    def start(wait_at: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(app), name, kafka, stage, wait_at, str(tmp_path / "state")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with start("wait") as process:
        producer.produce(f"{name}-in", b"a", b"key", partition=0)
        producer.flush()
        outputs(kafka, name, 1)
        producer.produce(f"{name}-in", b"wait", b"key", partition=0)
        producer.flush()
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018
        assert process.stdout.readline() == "in it\n", process.stderr.read()
        began_ms = SystemClock().monotonic_ms()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
        took_ms = SystemClock().monotonic_ms() - began_ms
    assert process.returncode == 1, log
    assert took_ms < 10_000
    line = APP.splitlines().index("        time.sleep(600)") + 1
    place = re.escape(f"{app}:{line}")
    assert re.search(rf"close_timeout_ms \(2000\): .*StreamThread-1 is in slow, {place}\.", log), log
    with start("nothing") as process:
        found = outputs(kafka, name, 2)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, log
    assert [int.from_bytes(message.value() or b"") for message in found] == [1, 2]
