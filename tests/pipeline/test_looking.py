"""What is done with topics on Spark begins with questions to Kafka. A topic that goes between two of them is named, as
one that never was; one that a broker doesn't know yet is waited for. On a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from milestones import StreamsBuilder, StreamsConfig, Topology, serdes
from milestones.common.clock import SystemClock
from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topics import Cluster
from milestones.instance.application import Application
from milestones.pipeline import looking
from milestones.pipeline.audit.planning import plan_audit
from milestones.pipeline.backfill import backfill
from milestones.pipeline.backfill.archive import Archive
from milestones.pipeline.backfill.archiving import planned
from milestones.pipeline.looking import looked_at
from milestones.pipeline.snapshots.jobs import snapshot_jobs
from milestones.testing import KafkaProbe, until
from tests.topics import commit, named

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Looked:
    """An application `in -> counts -> out` that has committed its only record."""

    probe: KafkaProbe
    config: StreamsConfig
    topology: Topology
    folder: Path

    def topic(self, name: str) -> str:
        return f"{self.config.application_id}-{name}"

    def delete(self, name: str) -> None:
        for future in self.probe.admin.delete_topics([self.topic(name)]).values():
            future.result(20)
        until(lambda: self.topic(name) not in self.probe.topics(), "the broker has forgotten the topic")

    @property
    def application(self) -> Application:
        return Application.of(self.topology, self.config)


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Looked:
    id, probe, builder = named("looked"), KafkaProbe(kafka), StreamsBuilder()
    records = builder.stream(f"{id}-in", key=serdes.STRING, value=serdes.STRING)
    records.group_by_key().count("counts").to_stream().to(f"{id}-out", value=serdes.LONG)
    probe.create({f"{id}-in": 1, f"{id}-out": 1, f"{id}-counts-changelog": 1})
    probe.write(f"{id}-in", "v", key="k")
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": id})
    commit(consumer, [TopicPartition(f"{id}-in", 0, 1)])
    consumer.close()
    config = StreamsConfig(application_id=id, bootstrap_servers=kafka, state_dir=str(tmp_path / "state"))
    return Looked(probe, config, builder.build(), tmp_path)


def plan_snapshots(app: Looked) -> object:
    return snapshot_jobs(app.application, app.config, app.folder.as_uri(), SystemClock())


def plan_archive(app: Looked) -> object:
    cluster = Cluster(app.config.admin_settings("test"))
    return planned(app.application, Archive(app.folder.as_uri()), cluster, app.config)


def plan_of_audit(app: Looked) -> object:
    return plan_audit(app.application, app.config, app.folder.as_uri())


def begin_backfill(app: Looked) -> object:
    """It ends before Spark has a part in it."""
    return backfill(app.topology, cast("SparkSession", None), config=app.config)


LOOKS: dict[str, tuple[Callable[[Looked], object], str, str]] = {
    "snapshots": (plan_snapshots, "bounds", "counts-changelog"),
    "ids of a snapshot": (plan_snapshots, "topic_ids", "counts-changelog"),
    "settings of a snapshot": (plan_snapshots, "topic_settings", "counts-changelog"),
    "archive": (plan_archive, "bounds", "in"),
    "ids of an archive": (plan_archive, "topic_ids", "in"),
    "audit": (plan_of_audit, "ends", "counts-changelog"),
    "settings of an audit": (plan_of_audit, "topic_settings", "in"),
    "backfill": (begin_backfill, "bounds", "in"),
}
"""What is looked at, the question before which the topic goes, the topic."""


@pytest.mark.parametrize("name", LOOKS)
def test_a_topic_that_is_deleted_between_two_questions_is_named(
    app: Looked, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, question, topic = LOOKS[name]
    ask, waiting = getattr(Cluster, question), [topic]

    def asked(self: Cluster, *args: Any, **options: Any) -> Any:
        while waiting:
            app.delete(waiting.pop())
        return ask(self, *args, **options)

    monkeypatch.setattr(Cluster, question, asked)
    with pytest.raises(SourceTopicError, match=app.topic(topic)) as raised:
        look(app)
    assert (waiting, raised.value.exit_code) == ([], 2)


def refused(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_a_topic_that_a_broker_does_not_know_yet_is_waited_for() -> None:
    unknown = iter([refused(KafkaError.UNKNOWN_TOPIC_OR_PART)] * 2)

    def look() -> str:
        for error in unknown:
            raise error
        return "all of it"

    assert looked_at("something", look) == "all of it"


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_what_can_not_be_looked_at_is_said_with_kafka_s_reason(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "SETTLES_MS", 100)

    def look() -> None:
        raise refused(code)

    with pytest.raises(MilestonesError, match=r"^the inputs of x can't be looked at: .+"):
        looked_at("the inputs of x", look)
