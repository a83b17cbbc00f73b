"""Internal topics: made step by step, asked for again, checked for what they must be."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import KafkaUnreachableError, MilestonesError, SourceTopicError
from milestones.common.kafka.creation import (
    LONGEST_PAUSE_MS,
    MOST_PARTITIONS,
    TopicCreation,
    create_topics,
)
from milestones.common.kafka.fitness import misfit, too_tight
from milestones.common.kafka.internal_topics import ANY_TIME, REPARTITION_SETTINGS, InternalTopic
from milestones.common.kafka.topics import Cluster
from milestones.common.state.stores.kinds import CHANGELOG_SETTINGS
from milestones.common.testing import StepClock
from milestones.testing import NotYet, until
from tests.common.kafka.fake_cluster import FakeCluster, answered
from tests.topics import named, new_topic


class Creating:
    def __init__(self, cluster: FakeCluster, *topics: InternalTopic) -> None:
        self.clock = StepClock()
        self.began_ms = self.clock.monotonic_ms()
        self.creation = TopicCreation(cluster.admin, topics, 1, 60_000, self.clock)
        self._steps = self.creation.steps()

    def step(self) -> None:
        next(self._steps)

    def finish(self) -> frozenset[str]:
        for _ in self._steps:
            pass
        return self.creation.made

    @property
    def took_ms(self) -> int:
        return self.clock.monotonic_ms() - self.began_ms


def of(partitions: int, name: str = "a") -> InternalTopic:
    return InternalTopic(name, partitions, CHANGELOG_SETTINGS)


def test_so_many_partitions_are_made_by_several_requests() -> None:
    """A controller refuses more than 10,000 partitions at once, as a whole."""
    cluster = FakeCluster()
    topics = [of(1_000, f"log-{number}") for number in range(11)]
    assert len(Creating(cluster, *topics).finish()) == 11
    assert max(map(len, cluster.requests)) * 1_000 <= MOST_PARTITIONS
    assert [name for request in cluster.requests for name in request] == [topic.name for topic in topics]


def test_a_request_that_has_no_answer_yet_holds_up_no_step() -> None:
    cluster = FakeCluster()
    cluster.holds = True
    creating = Creating(cluster, of(1))
    for _ in range(5):
        creating.step()
    assert len(cluster.requests) == 1
    cluster.open[0].set_result(None)
    assert creating.finish() == {"a"}


def test_pauses_between_requests_that_fail_get_longer_up_to_a_limit() -> None:
    cluster = FakeCluster(*[KafkaError.NOT_CONTROLLER] * 8)
    creating = Creating(cluster, of(1))
    creating.finish()
    assert len(cluster.requests) == 9
    assert 15_000 < creating.took_ms < 8 * LONGEST_PAUSE_MS


def test_what_had_no_answer_is_asked_on_another_connection() -> None:
    """An answer that comes late holds up all that follow on its own."""
    cluster = FakeCluster(KafkaError._TIMED_OUT)
    cluster.looks = [{}, KafkaException(KafkaError(KafkaError._TIMED_OUT))]
    assert Creating(cluster, of(1)).finish() == {"a"}
    assert cluster.renewed == 2, "after the request, and after the look"


def test_a_topic_whose_making_failed_may_have_been_made() -> None:
    cluster = FakeCluster(KafkaError._TIMED_OUT, *[KafkaError.TOPIC_ALREADY_EXISTS] * 100)
    creating = Creating(cluster, of(3))
    while not cluster.requests:
        creating.step()
    cluster.counts = {"a": 3}
    assert creating.finish() == frozenset(), "it isn't new: it may hold something"


def test_a_topic_that_was_about_to_be_deleted_when_it_was_asked_for_is_made_once_it_is_gone() -> None:
    cluster = FakeCluster(KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_ALREADY_EXISTS)
    assert Creating(cluster, of(3)).finish() == {"a"}


def test_a_topic_that_is_said_to_exist_and_is_never_seen_is_an_error_when_patience_is_over() -> None:
    cluster = FakeCluster(*[KafkaError.TOPIC_ALREADY_EXISTS] * 100)
    creating = Creating(cluster, of(3))
    with pytest.raises(KafkaUnreachableError, match="doesn't know a, which is said to exist"):
        creating.finish()
    assert 60_000 < creating.took_ms < 70_000


def test_a_topic_that_kafka_refuses_is_an_error_at_once() -> None:
    with pytest.raises(MilestonesError, match=r"can't create internal topic a \(1 partitions\).*replication_factor"):
        Creating(FakeCluster(KafkaError.INVALID_REPLICATION_FACTOR), of(1)).finish()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (CHANGELOG_SETTINGS, {"cleanup.policy": "compact"}),
        (CHANGELOG_SETTINGS, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}),
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "delete", "retention.ms": "1000"}),
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "delete, compact"}),
        (REPARTITION_SETTINGS, {"cleanup.policy": "delete", "retention.ms": "604800000"}),
        (CHANGELOG_SETTINGS, {}),
    ],
)
def test_a_topic_that_loses_nothing_fits(wanted: dict[str, str], found: dict[str, str]) -> None:
    assert misfit(InternalTopic("a", 1, wanted), found) is None


@pytest.mark.parametrize(
    ("wanted", "found", "harm"),
    [
        (CHANGELOG_SETTINGS, {"cleanup.policy": "delete", "retention.ms": "604800000"}, "state that is older"),
        (CHANGELOG_SETTINGS, {"cleanup.policy": "compact,delete", "retention.bytes": "1000"}, "state that is older"),
        (REPARTITION_SETTINGS, {"cleanup.policy": "compact"}, "replace each other"),
    ],
)
def test_a_topic_that_would_lose_records_is_refused_with_the_command_that_mends_it(
    wanted: dict[str, str], found: dict[str, str], harm: str
) -> None:
    reason = misfit(InternalTopic("a", 1, wanted), found)
    assert reason is not None
    assert harm in reason
    assert f"--entity-name a --add-config cleanup.policy=[{wanted['cleanup.policy']}]" in reason


WINDOWS = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1", **ANY_TIME}
VERSIONS = {"min.compaction.lag.ms": str(2**63 - 1)}
HOUR_AHEAD = {"message.timestamp.after.max.ms": "3600000"}


@pytest.mark.parametrize(
    ("wanted", "found", "raised"),
    [
        (WINDOWS, {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}, {"retention.ms": "-1"}),
        (WINDOWS, {"cleanup.policy": "delete", "retention.bytes": "9"}, {"retention.bytes": "-1"}),
        (REPARTITION_SETTINGS, {"cleanup.policy": "delete", "retention.ms": "9"}, {"retention.ms": "-1"}),
        ({**WINDOWS, "retention.ms": "9"}, {"cleanup.policy": "delete", "retention.ms": "8"}, {"retention.ms": "9"}),
        ({**WINDOWS, "retention.ms": "9"}, {"cleanup.policy": "delete", "retention.ms": "10"}, {}),
        ({**WINDOWS, "retention.ms": "9"}, {"cleanup.policy": "delete", "retention.ms": "-1"}, {}),
        (WINDOWS, {"cleanup.policy": "compact", "retention.ms": "9"}, {}),
        (
            {**CHANGELOG_SETTINGS, **ANY_TIME},
            {"cleanup.policy": "compact", "retention.ms": "604800000", **HOUR_AHEAD},
            {"message.timestamp.after.max.ms": str(2**63 - 1)},
        ),
        (WINDOWS, {}, {}),
        (VERSIONS, {"cleanup.policy": "compact", "min.compaction.lag.ms": "90000000"}, VERSIONS),
        ({**VERSIONS, "min.compaction.lag.ms": "9"}, {**VERSIONS, "cleanup.policy": "compact"}, {}),
    ],
)
def test_limits_of_a_topic_that_are_lower_than_the_application_s_are_raised_and_none_is_lowered(
    wanted: dict[str, str], found: dict[str, str], raised: dict[str, str]
) -> None:
    assert too_tight(InternalTopic("a", 1, wanted), found) == raised


def existing(found: dict[str, str]) -> FakeCluster:
    cluster = FakeCluster()
    cluster.created["a"] = InternalTopic("a", 1, found)
    return cluster


def test_a_topic_that_deletes_by_age_is_mended_before_it_is_written_to() -> None:
    """Such as one that Kafka Streams has made, or a former version."""
    cluster = existing({"cleanup.policy": "compact,delete", "retention.ms": "5", "segment.bytes": "7"})
    Creating(cluster, InternalTopic("a", 1, WINDOWS)).finish()
    assert cluster.changed == {"a": {"retention.ms": "-1"}}


def test_a_principal_that_may_not_mend_a_topic_is_told_its_name_and_the_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = existing({"cleanup.policy": "compact,delete", "retention.ms": "5"})
    cluster.change_refusal = KafkaError.TOPIC_AUTHORIZATION_FAILED
    Creating(cluster, InternalTopic("a", 1, WINDOWS)).finish()
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "internal topic a needs retention.ms=-1, but can't be changed" in said
    assert "ALTER_CONFIGS" in said
    assert "--entity-name a --add-config retention.ms=-1" in said


def test_a_principal_that_may_not_look_at_settings_is_told_which_topics_may_lose_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = existing({"cleanup.policy": "compact,delete", "retention.ms": "5"})
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    cluster.start_reading_settings = lambda topics: dict.fromkeys(topics, answered(refused))  # type: ignore[method-assign]
    Creating(cluster, InternalTopic("a", 1, WINDOWS)).finish()
    assert "a must have retention.ms=-1" in caplog.text


def test_a_broker_that_does_not_know_the_limits_of_times_makes_the_topic_without_them() -> None:
    cluster = FakeCluster(KafkaError.INVALID_CONFIG)
    cluster.reason = "Unknown topic config name: message.timestamp.after.max.ms"
    assert Creating(cluster, InternalTopic("a", 1, WINDOWS)).finish() == {"a"}
    assert cluster.created["a"].settings.keys() == WINDOWS.keys() - ANY_TIME.keys()


def test_another_setting_that_a_broker_does_not_know_is_an_error() -> None:
    cluster = FakeCluster(KafkaError.INVALID_CONFIG)
    cluster.reason = "Unknown topic config name: x"
    with pytest.raises(MilestonesError, match="can't create internal topic a"):
        Creating(cluster, InternalTopic("a", 1, WINDOWS)).finish()


# -- on a real broker


@pytest.mark.kafka
def test_a_changelog_that_kafka_streams_has_made_keeps_and_takes_records_of_all_times_from_then_on(kafka: str) -> None:
    theirs = {"cleanup.policy": "compact,delete", "retention.ms": "86400005", "segment.bytes": "2000000"}
    name, cluster = new_topic(kafka, **theirs), Cluster({"bootstrap.servers": kafka})
    create_topics(cluster, [InternalTopic(name, 1, WINDOWS)], -1)

    def settled() -> object:  # a broker shows a change once it has read it from the controller's log
        found = cluster.topic_settings([name])[name]
        return {setting: found[setting] for setting in WINDOWS} == WINDOWS or NotYet(found)

    until(settled, "the limits are raised")
    assert cluster.topic_settings([name])[name]["segment.bytes"] == "2000000"


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("settings", "policy"), [(CHANGELOG_SETTINGS, "delete"), (REPARTITION_SETTINGS, "compact")]
)
def test_a_topic_that_was_made_by_hand_with_a_policy_that_loses_records_is_refused(
    kafka: str, settings: dict[str, str], policy: str
) -> None:
    name = new_topic(kafka, **{"cleanup.policy": policy, "retention.ms": "604800000"})
    with pytest.raises(SourceTopicError, match=f"internal topic {name} has cleanup.policy={policy}"):
        create_topics(Cluster({"bootstrap.servers": kafka}), [InternalTopic(name, 1, settings)], -1)


@pytest.mark.kafka
def test_topics_of_our_own_making_fit(kafka: str) -> None:
    cluster = Cluster({"bootstrap.servers": kafka})
    topics = [InternalTopic(named("log"), 1, CHANGELOG_SETTINGS), InternalTopic(named("by"), 1, REPARTITION_SETTINGS)]
    assert len(create_topics(cluster, topics, -1)) == 2
    assert create_topics(cluster, topics, -1) == frozenset()


@pytest.mark.kafka
def test_no_question_about_a_topic_makes_it(kafka: str) -> None:
    """A broker that makes topics by itself would make a deleted changelog anew, as a topic that loses state."""
    cluster, name = Cluster({"bootstrap.servers": kafka}), named("nowhere")
    assert cluster.partition_counts([name]) == {}
    assert cluster.described([name]) == {}
    with pytest.raises(KafkaException):
        cluster.topic_ids([name])
    assert name not in cluster.partition_counts()
