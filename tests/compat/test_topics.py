"""The suite's own view of topics: what isn't there is an error, never nothing to check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from compat_tests.harness.cluster import Cluster
from compat_tests.harness.situation import situation
from compat_tests.oracles.rows import Place


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


def cluster(broker: LateBroker) -> Cluster:
    made = Cluster("127.0.0.1:1")
    made.admin = broker  # type: ignore[assignment]
    return made


def test_a_topic_that_the_broker_does_not_know_is_an_error_and_not_one_without_partitions() -> None:
    with pytest.raises(KafkaException, match="the broker knows no topic gone"):
        cluster(LateBroker(there=[1])).places(["there", "gone"])


def test_a_topic_was_created_once_the_broker_knows_all_its_partitions() -> None:
    late = cluster(LateBroker())
    late.create({"new": 2})
    assert late.places(["new"]) == [Place("new", 0), Place("new", 1)]


def test_a_situation_that_cannot_be_learned_says_why_and_replaces_no_failure() -> None:
    broken = cluster(LateBroker())
    broken.admin = None  # type: ignore[assignment]
    assert situation(broken, "app", []).count("can't be told") == 4


class DeafClient:
    """An admin client that hears nothing more of its broker."""

    def list_topics(self, **_: object) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_client_that_has_failed_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cluster("127.0.0.1:1")
    made.admin = DeafClient()  # type: ignore[assignment]
    monkeypatch.setattr(made, "_new_client", lambda: LateBroker(there=[1]))
    assert made.places(["there"]) == [Place("there", 0)]


def test_a_broker_that_no_client_hears_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cluster("127.0.0.1:1")
    monkeypatch.setattr(made, "_new_client", DeafClient)
    monkeypatch.setattr("compat_tests.harness.cluster.ASK_S", 0.2)
    made.admin = DeafClient()  # type: ignore[assignment]
    with pytest.raises(KafkaException):
        made.topics()
