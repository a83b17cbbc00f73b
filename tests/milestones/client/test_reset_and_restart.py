"""What follows a reset, on a real broker: an instance that comes back with state from before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import Streams, StreamsBuilder, serdes
from milestones.cli.main import invoke
from milestones.common.clock import SystemClock
from tests.topics import made

TIMEOUT_S = 40


class Counts:
    """Counts per key: in -> out."""

    def __init__(self, kafka: str) -> None:
        self.kafka, self.id = kafka, f"counts-{uuid4().hex[:8]}"
        made(AdminClient({"bootstrap.servers": kafka}), NewTopic(f"{self.id}.in", 1), NewTopic(f"{self.id}.out", 1))
        self.reader = Consumer({
            "bootstrap.servers": kafka, "group.id": f"{self.id}.reader", "auto.offset.reset": "earliest",
        })  # fmt: skip
        self.reader.subscribe([f"{self.id}.out"])

    @contextmanager
    def running(self, state: Path) -> Iterator[None]:
        builder = StreamsBuilder()
        lines = builder.stream(f"{self.id}.in", key=serdes.STRING, value=serdes.STRING)
        lines.group_by_key().count().to_stream().to(f"{self.id}.out", key=serdes.STRING, value=serdes.LONG)
        streams = Streams(
            builder, application_id=self.id, bootstrap_servers=self.kafka, state_dir=str(state),
            statestore_cache_max_bytes=0, commit_interval_ms=100,
        )  # fmt: skip
        streams.start()
        try:
            yield
        finally:
            streams.close()

    def of(self, keys: str) -> dict[str, int]:
        """The latest count of each key once these are counted as well."""
        producer = Producer({"bootstrap.servers": self.kafka})
        for key in keys:
            producer.produce(f"{self.id}.in", b"x", key.encode())
        assert producer.flush(TIMEOUT_S) == 0
        counts, seen, deadline = dict[str, int](), 0, SystemClock().monotonic_ms() + TIMEOUT_S * 1000
        while seen < len(keys) and SystemClock().monotonic_ms() < deadline:
            for message in self.reader.consume(len(keys) - seen, 0.2):
                assert message.error() is None
                seen += 1
                counts[(message.key() or b"").decode()] = int.from_bytes(message.value() or b"", "big")
        return counts


@pytest.mark.kafka
def test_a_state_directory_from_before_a_reset_does_not_falsify_counts_however_long_the_new_changelog_is(
    kafka: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts, before, after = Counts(kafka), tmp_path / "before", tmp_path / "after"
    with counts.running(before):
        assert counts.of("a" + "b" * 10) == {"a": 1, "b": 10}
    reset = ["reset", "-a", counts.id, "-b", kafka, "-s", f"state_dir={after}", "--to", "latest", "--execute"]
    assert invoke(reset) == 0
    with counts.running(after):
        assert counts.of("aaa" + "b" * 30) == {"a": 3, "b": 30}
    with counts.running(before):
        assert counts.of("ab") == {"a": 4, "b": 31}
    assert "was deleted and made anew" in caplog.text
    counts.reader.close()
