"""The admin side: topics, bounds, purges."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from milestones.common.clock import SystemClock
from milestones.common.errors import KafkaUnreachableError, OwnershipError, SourceTopicError
from milestones.common.kafka.answers import told
from milestones.common.kafka.creation import create_topics
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.internal_topics import InternalTopic
from milestones.common.kafka.retry import RetryPolicy
from milestones.common.kafka.topics import ALL, Cluster
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.state.stores.kinds import CHANGELOG_SETTINGS
from milestones.testing import KafkaProbe, until
from tests.topics import named

ROOT = Path(__file__).parents[3]


def test_brokers_that_do_not_answer_are_named_with_the_reason() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(KafkaUnreachableError, match=r"'127\.0\.0\.1:1' .* 1 s.* failed: Connection refused; check"):
        Cluster(settings, request_timeout_ms=1_000).partition_counts()


def test_a_name_that_no_one_knows_is_told_as_such() -> None:
    with pytest.raises(KafkaUnreachableError, match="Failed to resolve"):
        Cluster({"bootstrap.servers": "broker.invalid:9092"}, request_timeout_ms=1_000).partition_counts()


def test_a_broker_that_lets_wait_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("milestones.common.kafka.topics.SILENT_S", 0.5)
    settings = {"bootstrap.servers": "127.0.0.1:1"}
    cluster = Cluster(settings, request_timeout_ms=1_000)
    with caplog.at_level("INFO"), pytest.raises(KafkaUnreachableError):
        cluster.partition_counts()
    assert re.search(r"waiting for a broker of bootstrap_servers='127\.0\.0\.1:1': .*Connection refused", caplog.text)


def test_a_question_about_all_topics_that_has_no_answer_holds_up_no_thread_that_asks() -> None:
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1"})
    began = time.monotonic()
    (answer,) = cluster.start_counting_all(timeout_ms=2_000).values()
    assert time.monotonic() - began < 1
    with pytest.raises(KafkaException) as raised:
        answer.result(10)
    assert is_passing(raised.value)


FOLDERS = ("common", "milestones", "pipeline", "compat_tests")
PROGRAMS = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
TO_A_COORDINATOR = re.compile(
    r"\.(list_consumer_group_offsets|alter_consumer_group_offsets|describe_consumer_groups|delete_consumer_groups"
    r"|delete_consumer_group_offsets)\(.*"
)


def test_librdkafka_gives_no_question_to_a_coordinator_up_as_it_would_end_the_process_later() -> None:
    asked = {path: [found[0] for found in TO_A_COORDINATOR.finditer(path.read_text())] for path in PROGRAMS}
    lines = [line for found in asked.values() for line in found]
    assert lines
    assert [line for line in lines if "request_timeout=GIVEN_UP_S" not in line] == []


# -- on a real broker


def test_committed_offsets_that_came_too_late_come_when_they_are_asked_for_again(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path) as broker:
        probe, at = KafkaProbe(broker.bootstrap_servers), TopicPartition("in", 0)
        probe.create({"in": 1})
        group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        group.commit(offsets=[Position("in", 0, 7)], asynchronous=False)
        group.close()
        cluster = Cluster({"bootstrap.servers": broker.bootstrap_servers}, request_timeout_ms=1_000)
        broker.pause()
        with pytest.raises(KafkaUnreachableError):
            cluster.start_reading_committed("g", [at]).result(30)
        broker.unpause()
        asked = [at, TopicPartition("in", 1)]
        assert cluster.start_reading_committed("g", asked).result(30) == {at: OffsetAndMetadata(7)}


@pytest.mark.kafka
def test_missing_topics_are_created_and_existing_ones_are_left_alone(kafka: str) -> None:
    cluster = Cluster({"bootstrap.servers": kafka})
    topic = InternalTopic(named("changelog"), 3, CHANGELOG_SETTINGS)
    create_topics(cluster, [topic], -1)
    create_topics(cluster, [topic, InternalTopic(named("second"), 1, {})], -1)
    assert cluster.partition_counts()[topic.name] == 3


@pytest.mark.kafka
def test_an_internal_topic_with_another_partition_count_is_an_error_that_says_what_to_do(kafka: str) -> None:
    cluster = Cluster({"bootstrap.servers": kafka})
    name = named("changelog")
    create_topics(cluster, [InternalTopic(name, 3, {})], -1)
    with pytest.raises(SourceTopicError, match=rf"{name} has 3 partitions, the topology needs 4.*reset"):
        create_topics(cluster, [InternalTopic(name, 4, {})], -1)


def late(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker that answers first hasn't heard of any topic yet."""
    unheard: Iterator[dict[str, Future[Any]]] = iter([{}])
    now = cluster.start_describing
    monkeypatch.setattr(cluster, "start_describing", lambda topics: next(unheard, None) or now(topics))


@pytest.mark.kafka
def test_two_leaders_may_create_the_same_topic(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"bootstrap.servers": kafka})
    topic = InternalTopic(named("changelog"), 1, {})
    assert create_topics(cluster, [topic], -1) == {topic.name}
    late(cluster, monkeypatch)
    assert create_topics(cluster, [topic], -1) == frozenset()


@pytest.mark.kafka
def test_two_leaders_that_want_different_partition_counts_of_a_topic_do_not_both_get_it(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, name = Cluster({"bootstrap.servers": kafka}), named("changelog")
    create_topics(cluster, [InternalTopic(name, 3, {})], -1)
    late(cluster, monkeypatch)
    with pytest.raises(SourceTopicError, match=f"{name} has 3 partitions, the topology needs 4"):
        create_topics(cluster, [InternalTopic(name, 4, {})], -1)


def first_bounds(cluster: Cluster, at: TopicPartition) -> object:
    """What a new partition is said to hold, once it has a leader."""
    return RetryPolicy(20_000, SystemClock()).retry(lambda: cluster.bounds([at], committed=True), is_passing)


@pytest.mark.kafka
def test_all_topics_are_counted_without_waiting_as_by_a_call_that_waits(kafka: str) -> None:
    cluster, name = Cluster({"bootstrap.servers": kafka}), named("in")
    create_topics(cluster, [InternalTopic(name, 3, {})], -1)
    until(lambda: name in cluster.partition_counts(), "it is seen")
    assert cluster.start_counting_all()[ALL].result(20)[name] == 3


@pytest.mark.kafka
def test_the_end_of_a_partition_is_told_beside_the_error_of_one_that_is_not_there(kafka: str) -> None:
    cluster, name = Cluster({"bootstrap.servers": kafka}), named("in")
    create_topics(cluster, [InternalTopic(name, 1, {})], -1)
    here, nowhere = TopicPartition(name, 0), TopicPartition(named("nowhere"), 0)
    first_bounds(cluster, here)
    answers = cluster.start_listing([here, nowhere], end=True, timeout_ms=10_000)
    assert told(here, answers[here]) == 0
    with pytest.raises(KafkaException):
        told(nowhere, answers[nowhere])


@pytest.mark.kafka
def test_the_end_of_a_partition_includes_control_records_and_open_transactions_unless_committed_is_asked(
    kafka: str,
) -> None:
    cluster, name = Cluster({"bootstrap.servers": kafka}), named("in")
    create_topics(cluster, [InternalTopic(name, 1, {})], -1)
    at = TopicPartition(name, 0)
    assert first_bounds(cluster, at) == {at: (0, 0)}
    for commit in (True, False):
        KafkaProbe(kafka).write(name, "v", transactional_id=name, commit=commit)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"v", partition=0)
    producer.flush(20)
    assert cluster.bounds([at], committed=False) == {at: (0, 5)}
    assert cluster.bounds([at], committed=True) == {at: (0, 4)}
    producer.abort_transaction(20)
    cluster.purge({at: 3})
    assert cluster.bounds([at], committed=False)[at][0] == 3


@pytest.mark.kafka
def test_the_first_record_of_a_time_is_found_and_none_where_all_are_older(kafka: str) -> None:
    cluster, name = Cluster({"bootstrap.servers": kafka}), named("in")
    create_topics(cluster, [InternalTopic(name, 2, {"message.timestamp.type": "CreateTime"})], -1)
    at, empty = TopicPartition(name, 0), TopicPartition(name, 1)
    first_bounds(cluster, at)
    producer = Producer({"bootstrap.servers": kafka})
    for timestamp in (10, 20, 15, 30):
        producer.produce(name, b"v", partition=0, timestamp=timestamp)
    producer.flush(20)
    assert [cluster.search({at: since}, committed=True)[at] for since in (0, 11, 20, 21, 31)] == [0, 1, 1, 3, -1]
    assert cluster.search({empty: 0}, committed=False) == {empty: -1}


@pytest.mark.kafka
def test_bounds_of_a_partition_that_is_not_there_are_an_error(kafka: str) -> None:
    cluster = Cluster({"bootstrap.servers": kafka})
    with pytest.raises(KafkaException):
        cluster.bounds([TopicPartition(named("nowhere"), 0)], committed=False)


@pytest.mark.kafka
def test_a_purge_that_fails_is_told_in_the_log_and_nowhere_else(kafka: str, caplog: pytest.LogCaptureFixture) -> None:
    Cluster({"bootstrap.servers": kafka}).purge({TopicPartition(named("nowhere"), 0): 1})
    assert "will try once more later" in caplog.text


def test_another_threads_touch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr("milestones.common.kafka.clients.get_ident", lambda: -1)
    with pytest.raises(OwnershipError, match="this is a bug"):
        cluster.partition_counts()


def id_once_known(cluster: Cluster, topic: str) -> str:
    """Its id is known a little after the topic itself is seen."""
    return RetryPolicy(20_000, SystemClock()).retry(lambda: cluster.topic_ids([topic])[topic], lambda _: True)


@pytest.mark.kafka
def test_a_topic_that_is_deleted_and_made_anew_gets_another_id(kafka: str) -> None:
    cluster, topic = Cluster({"bootstrap.servers": kafka}), InternalTopic(named("log"), 1, {})
    ids = []
    for _ in range(2):
        create_topics(cluster, [topic], -1)
        until(lambda: topic.name in cluster.partition_counts(), "it is seen")
        ids += [id_once_known(cluster, topic.name) for _ in range(2)]
        cluster._admin.delete_topics([topic.name], operation_timeout=20)[topic.name].result()
        until(lambda: topic.name not in cluster.partition_counts(), "it is no longer seen")
    assert ids[0] == ids[1] != ids[2] == ids[3]
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        cluster.topic_ids([topic.name])
    assert cluster.topic_ids([]) == {}


class Admin:
    """A client that gives these answers, whatever it is asked about partitions; `made` so far."""

    made: ClassVar[list[Admin]] = []
    answers: ClassVar[Iterator[int | Exception]] = iter([])

    def __init__(self, *_: object, **__: object) -> None:
        self.made.append(self)

    def poll(self, timeout: float) -> None: ...

    def delete_records(self, positions: Collection[Position], **_: object) -> dict[Position, Future[Any]]:
        return self.list_offsets(positions)

    def list_offsets(self, positions: Collection[Position], **_: object) -> dict[Position, Future[Any]]:
        futures: dict[Position, Future[Any]] = {position: Future() for position in positions}
        for future in futures.values():
            answer = next(self.answers)
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(SimpleNamespace(offset=answer))
        return futures


AT, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


def answering(monkeypatch: pytest.MonkeyPatch, *answers: int | Exception) -> Cluster:
    monkeypatch.setattr("milestones.common.kafka.topics.AdminClient", Admin)
    monkeypatch.setattr(Admin, "made", [])
    monkeypatch.setattr(Admin, "answers", iter(answers))
    return Cluster({"bootstrap.servers": "any:1"})


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError._NOENT, KafkaError._TRANSPORT])
def test_a_client_that_has_failed_is_asked_no_more(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """It may name a leader that has gone, or one's old epoch, for ever: seen with a broker that stood still."""
    cluster = answering(monkeypatch, KafkaException(KafkaError(code)), 7)
    with pytest.raises(KafkaException) as caught:
        cluster.ends([AT], timeout_ms=100)
    assert is_passing(caught.value)
    assert cluster.ends([AT], timeout_ms=100) == {AT: 7}
    assert len(Admin.made) == 2


def test_a_client_whose_purges_have_failed_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
    cluster = answering(monkeypatch, failure, failure)
    cluster.purge({AT: 1, OTHER: 1})
    assert len(Admin.made) == 2


def test_a_client_that_was_only_slow_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = answering(monkeypatch, KafkaException(KafkaError(KafkaError._TIMED_OUT)), 7)
    with pytest.raises(KafkaException):
        cluster.ends([AT], timeout_ms=100)
    assert cluster.ends([AT], timeout_ms=100) == {AT: 7}
    assert len(Admin.made) == 1


def test_an_answer_that_tells_no_offset_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka says -1001, without an error, of a leader that stands still: as an end, nothing would be restored."""
    cluster = answering(monkeypatch, -1001)
    with pytest.raises(KafkaException, match="doesn't tell its offsets") as caught:
        cluster.ends([AT], timeout_ms=100)
    assert is_passing(caught.value)
