"""Global stores of a process that runs Spark tasks, without Spark. On a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milestones import StreamsBuilder, StreamsConfig, serdes
from milestones.common.clock import SystemClock
from milestones.common.errors import SourceTopicError
from milestones.common.records import TaskId
from milestones.common.state.spark_folders import spark_directories
from milestones.instance.application import Application
from milestones.pipeline.hosting.worker_globals import WorkerGlobals, close_worker_globals, worker_globals
from milestones.testing import KafkaProbe
from tests.topics import named

pytestmark = pytest.mark.kafka


class Workers:
    """Processes that run tasks of an application with a global table, as far as that goes in one."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.id, self.probe = named("workers"), KafkaProbe(kafka)
        self.topic = f"{self.id}-rates"
        builder = StreamsBuilder()
        rates = builder.global_table(self.topic, "rates", key=serdes.STRING, value=serdes.STRING)
        builder.stream("in").join(rates, lambda one, other: other, on=lambda _, value: value).to("out")
        self.config = StreamsConfig(
            application_id=self.id, bootstrap_servers=kafka, state_dir=str(folder), variables={}
        )
        self.application = Application.of(builder.build(), self.config)
        self.checked = 0

    def worker(self) -> WorkerGlobals:
        return WorkerGlobals(self.application, self.config, SystemClock())

    def check(self) -> None:
        self.checked += 1

    def rows(self, worker: WorkerGlobals) -> dict[str, str]:
        """What a task finds that begins now."""
        worker.catch_up(self.check)
        reader = worker.stores.reader("rates", TaskId(1, 0), None)  # type: ignore[arg-type]
        assert reader is not None
        reader.open()
        return {key: value for key, (value, _) in reader.all()}  # type: ignore[attr-defined]


@pytest.fixture
def workers(kafka: str, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(kafka, tmp_path)
    made.probe.create({made.topic: 3})
    yield made
    close_worker_globals()


def test_each_task_finds_what_was_there_when_it_began(workers: Workers) -> None:
    worker = workers.worker()
    assert workers.rows(worker) == {}
    workers.probe.write(workers.topic, "1", key="a")
    workers.probe.write(workers.topic, "2", key="b")
    assert workers.rows(worker) == {"a": "1", "b": "2"}
    assert workers.checked > 0
    workers.probe.write(workers.topic, "3", key="a")
    assert workers.rows(worker) == {"a": "3", "b": "2"}
    worker.close()


def test_processes_side_by_side_have_stores_of_their_own_and_the_next_one_continues(workers: Workers) -> None:
    workers.probe.write(workers.topic, "1", key="a")
    one, two = workers.worker(), workers.worker()
    assert workers.rows(one) == workers.rows(two) == {"a": "1"}
    folders = [path.parent.name for path in spark_directories(workers.config.state_dir, workers.id)]
    assert sorted(folders) == ["global-0", "global-1"]
    one.close()
    three = workers.worker()
    assert workers.rows(three) == {"a": "1"}
    assert workers.checked == 2  # it has begun where the first one was
    for worker in (two, three):
        worker.close()


def test_a_process_keeps_the_stores_of_one_application(workers: Workers) -> None:
    clock = SystemClock()
    first = worker_globals(b"made of this", workers.application, workers.config, clock)
    assert worker_globals(b"made of this", workers.application, workers.config, clock) is first
    other = worker_globals(b"made of that", workers.application, workers.config, clock)
    assert other is not None
    assert other is not first
    assert workers.rows(other) == {}


def test_a_topology_without_global_stores_opens_none(workers: Workers) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    application = Application.of(builder.build(), workers.config)
    assert worker_globals(b"", application, workers.config, SystemClock()) is None


def test_a_missing_topic_is_named(kafka: str, tmp_path: Path) -> None:
    worker = Workers(kafka, tmp_path).worker()
    with pytest.raises(SourceTopicError, match=r"global topics don't exist: workers.*-rates"):
        worker.catch_up(lambda: None)
    worker.close()
