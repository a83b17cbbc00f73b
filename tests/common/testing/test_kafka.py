"""`KafkaProbe`: what isn't there is an error, never nothing to check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, Uuid
from confluent_kafka import TopicPartition as Position

from milestones import TopicPartition
from milestones.testing import DeadlineError, KafkaProbe, until


class LateBroker:
    """An admin client of a broker that learns of new topics, and of their leaders, some questions later."""

    def __init__(self, **topics: list[int]) -> None:
        self.leaders, self.questions_until_known, self.created = topics, 0, list[str]()

    def create_topics(self, new: list[Any], **_: object) -> dict[str, Any]:
        for topic in new:
            self.leaders[topic.topic] = [-1] * topic.num_partitions
        self.questions_until_known = 3
        return {topic.topic: SimpleNamespace(result=lambda timeout: None) for topic in new}

    def list_topics(self, **_: object) -> Any:
        self.questions_until_known -= 1
        if self.questions_until_known <= 0:
            self.leaders = {name: [1 for _ in leaders] for name, leaders in self.leaders.items()}
        topics = {
            name: SimpleNamespace(partitions={n: SimpleNamespace(leader=one) for n, one in enumerate(leaders)})
            for name, leaders in self.leaders.items()
        }
        return SimpleNamespace(topics=topics)


def probe(broker: Any) -> KafkaProbe:
    made = KafkaProbe("127.0.0.1:1")
    made.admin = broker
    return made


def test_a_topic_that_the_broker_does_not_know_is_an_error_and_not_one_without_partitions() -> None:
    with pytest.raises(KafkaException, match="the broker knows no topic gone"):
        probe(LateBroker(there=[1])).places(["there", "gone"])


def test_a_topic_was_created_once_the_broker_knows_all_its_partitions() -> None:
    late = probe(LateBroker())
    late.create({"new": 2})
    assert late.places(["new"]) == [TopicPartition("new", 0), TopicPartition("new", 1)]


class ForgetfulBroker(LateBroker):
    """An admin client of a broker that refuses to make a topic anew with these errors, one after the other."""

    def __init__(self, *refusals: int, **topics: list[int]) -> None:
        super().__init__(**topics)
        self.refusals = list(refusals)
        self.answers = iter(range(4))

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Any]:
        """It names the former topic twice after the new one is made."""
        told = SimpleNamespace(topic_id=Uuid(7, max(1, next(self.answers) - 1)), partitions=[1])
        return {topic: SimpleNamespace(result=lambda: told) for topic in topics.topic_names}

    def delete_topics(self, topics: list[str], **_: object) -> dict[str, Any]:
        return {topic: SimpleNamespace(result=lambda timeout, topic=topic: self.leaders.pop(topic)) for topic in topics}

    def create_topics(self, new: list[Any], **_: object) -> dict[str, Any]:
        if not self.refusals:
            return super().create_topics(new)
        error = KafkaException(KafkaError(self.refusals.pop(0)))
        return {topic.topic: SimpleNamespace(result=Mock(side_effect=error)) for topic in new}


def test_a_topic_is_made_anew_once_the_former_one_is_gone_for_the_broker() -> None:
    broker = ForgetfulBroker(KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.REQUEST_TIMED_OUT, a=[1])
    forgetful = probe(broker)
    forgetful.make_anew({"a": 2})
    assert next(broker.answers, None) is None, "the broker knows the new one by its id"
    assert broker.refusals == []
    assert forgetful.places(["a"]) == [TopicPartition("a", 0), TopicPartition("a", 1)]


def test_a_topic_that_may_not_be_made_anew_is_an_error_at_once() -> None:
    with pytest.raises(KafkaException, match="Topic authorization failed"):
        probe(ForgetfulBroker(KafkaError.TOPIC_AUTHORIZATION_FAILED, a=[1])).make_anew({"a": 2})


class DeafClient:
    """An admin client that hears nothing more of its broker."""

    def list_topics(self, **_: object) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_client_that_has_failed_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = probe(DeafClient())
    monkeypatch.setattr(made, "_new_client", lambda: LateBroker(there=[1]))
    assert made.places(["there"]) == [TopicPartition("there", 0)]


def test_a_broker_that_no_client_hears_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = probe(DeafClient())
    monkeypatch.setattr(made, "_new_client", DeafClient)
    monkeypatch.setattr("milestones.common.testing.kafka.ASK_S", 0.2)
    with pytest.raises(KafkaException):
        made.topics()


@pytest.mark.kafka
def test_what_was_written_is_read_to_the_end_in_order_and_tailed_as_it_comes(kafka: str) -> None:
    looking, topic = KafkaProbe(kafka), f"probed-{uuid4().hex[:8]}"
    looking.create({topic: 2})
    looking.write(topic, "a", None, key="k", partition=1, timestamp=7)
    with looking.tail(topic) as tail:
        until(lambda: tail.has(2), "both records have come")
        looking.write(topic, "b", partition=0)
        until(lambda: tail.has(3), "the third one too")
    third, first, second = looking.read(topic)
    assert (first.place, first.key, first.value, first.timestamp) == (TopicPartition(topic, 1), b"k", b"a", 7)
    assert (second.value, second.offset, third.key, third.value) == (None, 1, None, b"b")
    assert looking.ends(looking.places([topic])) == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2}


@pytest.mark.kafka
def test_a_transaction_is_read_once_it_is_committed_and_one_left_open_is_named(kafka: str) -> None:
    looking, topic = KafkaProbe(kafka), f"probed-{uuid4().hex[:8]}"
    looking.create({topic: 1})
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "a")
    assert producer.flush(30) == 0
    assert [record.value for record in looking.read(topic, uncommitted=True)] == [b"a"]
    assert looking.read(topic, stable=True) == []
    with pytest.raises(DeadlineError, match="a transaction was left open"):
        looking.read(topic, timeout_s=0.5)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([Position(topic, 0, 0)])
    producer.send_offsets_to_transaction([Position(topic, 0, 5)], consumer.consumer_group_metadata())
    producer.commit_transaction(30)
    consumer.close()
    assert [record.value for record in looking.read(topic)] == [b"a"]
    assert looking.committed(topic) == {TopicPartition(topic, 0): 5}


@pytest.mark.kafka
def test_a_record_that_kafka_refuses_is_an_error_of_the_write(kafka: str) -> None:
    looking, topic = KafkaProbe(kafka), f"probed-{uuid4().hex[:8]}"
    looking.create({topic: 1}, {"max.message.bytes": "1000"})
    with pytest.raises(AssertionError, match="didn't reach Kafka"):
        looking.write(topic, "x" * 2_000)
