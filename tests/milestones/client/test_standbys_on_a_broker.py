"""Standbys on a real broker: two instances that keep each other's state warm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.clock import SystemClock
from milestones.common.records import TaskId
from milestones.common.state.state_manager import LocalStateManager
from tests.topics import made

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60
RECORDS = 2_000


def until(condition: Callable[[], bool], what: str) -> None:
    clock = SystemClock()
    deadline = clock.monotonic_ms() + TIMEOUT_S * 1000
    while not condition():
        assert clock.monotonic_ms() < deadline, f"not within {TIMEOUT_S} s: {what}"
        clock.sleep_ms(50)


class Application:
    """in -> counts, by instances that each have a state directory."""

    def __init__(self, kafka: str, path: Path) -> None:
        self.kafka, self.path, self.name = kafka, path, f"standbys-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": kafka})
        made(admin, NewTopic(f"{self.name}-in", 2), NewTopic(f"{self.name}-out", 1))

    def topology(self) -> StreamsBuilder:
        builder = StreamsBuilder()
        lines = builder.stream(f"{self.name}-in", key=serdes.STRING, value=serdes.STRING)
        lines.group_by_key().count("counts").to_stream().to(f"{self.name}-out", value=serdes.LONG)
        return builder

    @contextmanager
    def instance(self, name: str) -> Iterator[Streams]:
        streams = Streams(
            self.topology(), application_id=self.name, bootstrap_servers=self.kafka, client_id=name,
            state_dir=str(self.path / name), processing_guarantee="exactly_once_v2", commit_interval_ms=100,
            auto_offset_reset="earliest", num_standby_replicas=1,
        )  # fmt: skip
        streams.start()
        try:
            yield streams
        finally:
            streams.close()

    def write(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for number in range(RECORDS):
            producer.produce(f"{self.name}-in", b"x", f"k{number % 100}".encode(), partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0


def roles(streams: Streams) -> dict[str, int]:
    return dict(Counter(streams.status().tasks.values()))


def metrics(streams: Streams, name: str) -> dict[str, Any]:
    """One metric of the tasks that have it."""
    entries = streams.metrics().get("stream-task-metrics", [])
    return {entry["tags"]["task-id"]: entry["metrics"][name] for entry in entries if name in entry["metrics"]}


def updated(streams: Streams) -> int:
    """How many records its only standby has got."""
    (records,) = metrics(streams, "update-total").values() or (0,)
    return int(records)


def caught_up(streams: Streams) -> bool:
    return [*metrics(streams, "standby-records-lag").values()] == [0]


def test_a_task_goes_to_active_and_back_with_its_store_open_and_without_restoring_a_record(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(kafka, tmp_path)
    opened: Counter[tuple[str, TaskId]] = Counter()
    open_stores = LocalStateManager.open

    def counted(self: LocalStateManager, task: TaskId, *rest: Any) -> Any:
        opened[self.directory.path.parent.name, task] += 1
        return open_stores(self, task, *rest)

    monkeypatch.setattr(LocalStateManager, "open", counted)
    both = {"running": 1, "standby": 1}
    with application.instance("a") as a:
        with application.instance("b") as b:
            until(lambda: roles(a) == roles(b) == both, "one task and one standby each")
            application.write()
            # Both: which of its tasks b gets when it comes back isn't known.
            until(lambda: all(updated(one) == RECORDS / 2 for one in (a, b)), "each standby has all")
            until(lambda: caught_up(a) and caught_up(b), "both know that they have all")
            (taken_over,) = metrics(a, "update-total")
        until(lambda: roles(a) == {"running": 2}, "the one that stays has all tasks")
        application.write()
        until(lambda: metrics(a, "process-total").get(taken_over, 0) >= RECORDS / 2, "the task has processed")
        assert metrics(a, "restore-total")[taken_over] == 0
        with application.instance("b") as b:
            until(lambda: roles(a) == roles(b) == both, "one task and one standby each")
            until(lambda: caught_up(a) and caught_up(b), "the standbys have all")
            assert metrics(a, "update-total") == dict.fromkeys(metrics(a, "update-total"), 0)
            (restored,) = metrics(b, "restore-total").values()
            assert restored <= RECORDS / 2, "a restarted instance goes on from where it was"
    assert {task: count for (name, task), count in opened.items() if name == "a"} == {TaskId(0, 0): 1, TaskId(0, 1): 1}
