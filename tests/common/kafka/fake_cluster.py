"""A `Cluster` in memory, for what makes topics and looks at them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.topics import InternalTopic
from milestones.common.records import TopicPartition


class FakeCluster:
    """Topics with `counts` of partitions, and those that are made. `looks`: what the next looks at topics find, before
    these are. Requests to make topics are refused by `refusals`, in turn; others succeed, or have no answer while
    `holds`: their futures are `open`."""

    def __init__(self, *refusals: int) -> None:
        self.counts: dict[str, int] = {}
        self.looks: list[dict[str, int]] = []
        self.created: dict[str, InternalTopic] = {}
        self.error: Exception | None = None
        self.refusals = list(refusals)
        self.requests: list[list[str]] = []
        self.holds = False
        self.open: list[Future[None]] = []
        self.ends: dict[TopicPartition, int] = {}
        self.asked: list[TopicPartition] = []
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    def renew_after(self, exception: Exception) -> None:
        self.renew()

    def partition_counts(self, topics: Any = None) -> dict[str, int]:
        if self.error is not None:
            raise self.error
        if self.looks:
            return self.looks.pop(0)
        existing = {**self.counts, **{name: topic.partitions for name, topic in self.created.items()}}
        return {name: count for name, count in existing.items() if topics is None or name in topics}

    def start_creating(self, topics: Any, replication_factor: int) -> dict[str, Future[None]]:
        self.requests.append([topic.name for topic in topics])
        futures: dict[str, Future[None]] = {topic.name: Future() for topic in topics}
        if self.holds:
            self.open = list(futures.values())
            return futures
        code = self.refusals.pop(0) if self.refusals else None
        for topic in topics:
            if code is None:
                self.created[topic.name] = topic
                futures[topic.name].set_result(None)
            else:
                futures[topic.name].set_exception(KafkaException(KafkaError(code)))
        return futures

    def topic_settings(self, topics: Any) -> dict[str, dict[str, str]]:
        return {name: dict(self.created[name].settings) for name in topics if name in self.created}

    def known_ends(self, partitions: Any, *, timeout_ms: int) -> dict[TopicPartition, int]:
        self.asked = list(partitions)
        return {at: self.ends[at] for at in self.asked if at in self.ends}
