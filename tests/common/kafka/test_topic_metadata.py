"""What brokers say of topics, with their ids."""

from __future__ import annotations

import gc
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from milestones.common.kafka.topic_metadata import Described, MetadataReader, number_of
from milestones.common.kafka.topics import ALL, Cluster
from milestones.common.kafka.wire import ConnectionLostError
from milestones.testing import KafkaProbe
from tests.topics import named

ID = UUID("6a2c8d5e-3b1f-4f0a-9d53-0c1b2a3d4e5f")


class FakeBrokers:
    """Brokers that know `topics`: partition counts, or why they can't tell. Those of `dead` answer nothing."""

    def __init__(self, **topics: int | ErrorCode) -> None:
        self.topics, self.dead, self.asked = topics, set[str](), list[str]()
        self.requests: list[Any] = []

    def reader(self) -> MetadataReader:
        connect: Any = self.connect
        return MetadataReader({"bootstrap.servers": "one:1"}, connect)

    def connect(self, address: Any) -> FakeBrokers:
        self.asked.append(address.host)
        if address.host in self.dead:
            raise ConnectionLostError(f"{address} is dead")
        return self

    def call(self, request: Any, answer: Any, timeout_ms: int) -> MetadataResponse:
        self.requests.append(request)
        if self.asked[-1] in self.dead:
            raise ConnectionLostError("it died")
        topics: Any = [self._topic(name, told) for name, told in self.topics.items()]
        brokers: Any = [MetadataResponseBroker(node_id=n, host=host, port=1) for n, host in enumerate(("one", "two"))]  # type: ignore[arg-type]
        return MetadataResponse(throttle_time=timedelta(), brokers=tuple(brokers), topics=tuple(topics))  # type: ignore[arg-type]

    def _topic(self, name: str, told: int | ErrorCode) -> MetadataResponseTopic:
        code, count = (told, 0) if isinstance(told, ErrorCode) else (ErrorCode.none, told)
        one: Any = MetadataResponsePartition
        partitions = tuple(one(error_code=ErrorCode.none, partition_index=n, leader_id=1) for n in range(count))
        return MetadataResponseTopic(error_code=code, name=name, topic_id=ID, partitions=partitions)  # type: ignore[arg-type]

    def close(self) -> None: ...


def test_topics_come_with_their_partitions_and_the_ids_that_confluents_client_prints() -> None:
    brokers = FakeBrokers(a=3)
    assert brokers.reader().look(["a"], 100).found == {"a": Described(3, "aiyNXjsfTwqdUwwbKj1OXw")}
    (request,) = brokers.requests
    assert ([topic.name for topic in request.topics], request.allow_auto_topic_creation) == (["a"], False)


@pytest.mark.parametrize("code", [ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed])
def test_a_topic_that_isnt_there_or_may_not_be_seen_is_left_out(code: ErrorCode) -> None:
    assert FakeBrokers(a=1, b=code).reader().look(["a", "b"], 100).found.keys() == {"a"}


def test_topics_that_may_not_be_seen_are_told_apart_from_those_that_dont_exist() -> None:
    brokers = FakeBrokers(a=ErrorCode.topic_authorization_failed, b=ErrorCode.unknown_topic_or_partition)
    assert brokers.reader().look(["a", "b"], 100).forbidden == {"a"}


def test_a_topic_of_which_the_broker_cant_say_it_makes_no_half_answer() -> None:
    brokers = FakeBrokers(a=1, b=ErrorCode.leader_not_available)
    with pytest.raises(KafkaException, match="b: leader_not_available"):
        brokers.reader().look(["a", "b"], 100)
    assert brokers.reader().look(None, 100).found.keys() == {"a"}, "one bad topic of others hides no topic of ours"


def test_after_a_lost_connection_another_broker_is_asked_and_one_connection_serves_until_then() -> None:
    brokers = FakeBrokers(a=1)
    reader = brokers.reader()
    reader.look(["a"], 100)
    reader.look(["a"], 100)
    assert brokers.asked == ["one"]
    brokers.dead = {"one"}
    with pytest.raises(ConnectionLostError):
        reader.look(["a"], 100)
    assert reader.look(["a"], 100)
    assert brokers.asked[-1] == "two"


def test_ids_have_numbers_of_64_bits_each_its_own() -> None:
    numbers = {number_of(str(number)) for number in range(10_000)}
    assert len(numbers) == 10_000
    assert all(-(2**63) <= number < 2**63 for number in numbers)


@pytest.mark.kafka
def test_a_topic_that_is_made_anew_has_another_id_which_confluents_client_says_too(kafka: str) -> None:
    cluster, probe, name = Cluster({"bootstrap.servers": kafka}), KafkaProbe(kafka), named("anew")
    probe.create({name: 2})
    first = cluster.look([name])[name]
    client = AdminClient({"bootstrap.servers": kafka})
    told = client.describe_topics(TopicCollection([name]))[name].result()
    assert first == Described(2, str(told.topic_id))
    client.delete_topics([name])[name].result()
    probe.create({name: 2})
    (answer,) = cluster.start_looking([name, "no-such"]).values()
    again = answer.result(20)
    assert again.keys() == {name}
    assert again[name].id != first.id
    assert cluster.look(None)[name] == again[name]
    cluster.close()


@pytest.mark.kafka
def test_looks_leave_no_objects_behind(kafka: str) -> None:
    """Each of confluent's descriptions leaves an object per topic for ever."""
    cluster, probe, names = Cluster({"bootstrap.servers": kafka}), KafkaProbe(kafka), [named("leak") for _ in range(5)]
    probe.create(dict.fromkeys(names, 1))

    def left_by(looks: int) -> int:
        for _ in range(looks):
            cluster.start_looking(names)[ALL].result(20)
        gc.collect()
        return len(gc.get_objects())

    before = left_by(5)
    assert left_by(40) - before < 40
    cluster.close()
