"""What the elected leader answers, by a cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.assignment.model import Subscription
from milestones.common.errors import KafkaUnreachableError, MilestonesError, SourceTopicError
from milestones.common.kafka.leader import TopologyLeader
from milestones.common.kafka.topics import InternalTopic
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.records import TaskId
from tests.milestones.fakes import World, counting


class FakeCluster:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {"in": 3}
        self.created: dict[str, InternalTopic] = {}
        self.error: Exception | None = None

    def partition_counts(self) -> dict[str, int]:
        if self.error is not None:
            raise self.error
        return self.counts

    def create(self, topics: Any, replication_factor: int) -> None:
        self.created.update({topic.name: topic for topic in topics})


class Leading:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.world, self.cluster = World(counting(), settings), FakeCluster()
        monkeypatch.setattr("milestones.common.kafka.leader.Cluster", lambda _: self.cluster)
        self.leader = TopologyLeader(self.world.config, self.world.context.application.subtopologies, "leader")

    def member(self, **fields: Any) -> Subscription:
        application = self.world.context.application
        return Subscription(
            process_id="p", stage="baseline", capacity=1, topics=application.source_topics,
            fingerprint=application.fingerprint, **fields,
        )  # fmt: skip

    def assign(self, **members: Subscription) -> Any:
        return self.leader.assign(members or {"one": self.member()})


@pytest.fixture
def leading(monkeypatch: pytest.MonkeyPatch) -> Leading:
    return Leading(monkeypatch)


def test_all_tasks_are_assigned_once(leading: Leading) -> None:
    given = leading.assign(one=leading.member(), two=leading.member())
    assert sorted(task for assignment in given.values() for task in assignment.active) == [
        TaskId(0, partition) for partition in range(3)
    ]


def test_changelogs_are_created_as_kafka_streams_makes_them(leading: Leading) -> None:
    leading.assign()
    (topic,) = leading.cluster.created.values()
    assert (topic.name, topic.partitions, topic.settings["cleanup.policy"]) == ("app-counts-changelog", 3, "compact")


def test_topic_settings_of_the_config_go_to_internal_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading(monkeypatch, topic_segment_bytes=1_000_000)
    leading.assign()
    assert str(leading.cluster.created["app-counts-changelog"].settings["segment.bytes"]) == "1000000"


def test_a_missing_source_topic_is_told_to_every_member_by_its_name(leading: Leading) -> None:
    leading.cluster.counts = {}
    given = leading.assign(one=leading.member(), two=leading.member())
    assert all("in" in str(assignment.error) and not assignment.active for assignment in given.values())
    assert not any(assignment.shutdown for assignment in given.values())
    assert leading.cluster.created == {}


def test_one_members_wish_shuts_all_members_down_without_a_look_at_the_cluster(leading: Leading) -> None:
    leading.cluster.error = KafkaUnreachableError("no broker")
    given = leading.assign(one=leading.member(), two=leading.member(shutdown="thread 7 died"))
    assert {(a.error, a.shutdown) for a in given.values()} == {("thread 7 died", True)}


@pytest.mark.parametrize(
    "error", [KafkaUnreachableError("no broker"), KafkaException(KafkaError(KafkaError._TRANSPORT))]
)
def test_a_cluster_that_does_not_answer_now_makes_the_member_join_again(leading: Leading, error: Exception) -> None:
    leading.cluster.error = error
    with pytest.raises(ConnectionLostError):
        leading.assign()


def test_a_cluster_that_refuses_is_an_error_with_its_reason_not_a_bug(leading: Leading) -> None:
    leading.cluster.error = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(MilestonesError, match="CLUSTER_AUTHORIZATION_FAILED") as raised:
        leading.assign()
    assert not isinstance(raised.value, ConnectionLostError)


def test_an_internal_topic_of_another_shape_is_the_errors_own(leading: Leading) -> None:
    leading.cluster.error = SourceTopicError("internal topic has 2 partitions")
    with pytest.raises(SourceTopicError):
        leading.assign()
