"""A `Cluster` in memory, for what makes topics and looks at them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Uuid

from milestones.common.kafka.admin import OwnAdmin
from milestones.common.kafka.internal_topics import InternalTopic
from milestones.common.kafka.topics import ALL
from milestones.common.records import TopicPartition


class FakeCluster:
    """Topics with `counts` of partitions, and those that are made. `looks`: what the next looks at topics find, before
    these are; an error is what a look fails with. `error`: that of all looks. Requests to make topics are refused by
    `refusals`, in turn; others succeed, or have no answer while `holds`: their futures are `open`. `asked`: the
    partitions whose ends were asked for. `renewed`: how often another client was made. `changed`: the settings that
    topics were given, unless `change_refusal`. `reason`: the text of refusals."""

    client = None

    def __init__(self, *refusals: int) -> None:
        self.counts: dict[str, int] = {}
        self.looks: list[dict[str, int] | Exception] = []
        self.created: dict[str, InternalTopic] = {}
        self.error: Exception | None = None
        self.refusals = list(refusals)
        self.requests: list[list[str]] = []
        self.holds = False
        self.open: list[Future[None]] = []
        self.ends: dict[TopicPartition, int] = {}
        self.asked: list[TopicPartition] = []
        self.timeouts_ms: list[int | None] = []
        self.renewed = 0
        self.changed: dict[str, dict[str, str]] = {}
        self.change_refusal: int | None = None
        self.reason = "refused"

    @property
    def admin(self) -> OwnAdmin:
        return OwnAdmin(lambda: self)  # type: ignore[arg-type,return-value]

    def renew(self) -> None:
        self.renewed += 1

    def renew_after(self, exception: Exception) -> None: ...

    def _look(self) -> dict[str, int] | Exception:
        if self.error is not None:
            return self.error
        if self.looks:
            return self.looks.pop(0)
        return {**self.counts, **{name: topic.partitions for name, topic in self.created.items()}}

    def start_describing(self, topics: Any, timeout_ms: int | None = None) -> dict[str, Future[Any]]:
        self.timeouts_ms.append(timeout_ms)
        look = self._look()
        if isinstance(look, Exception):
            return {name: answered(look) for name in topics}
        unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {name: answered(described(look[name]) if name in look else unknown) for name in topics}

    def start_counting_all(self, timeout_ms: int | None = None) -> dict[str, Future[Any]]:
        return {ALL: answered(self._look())}

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
                futures[topic.name].set_exception(KafkaException(KafkaError(code, self.reason)))
        return futures

    def start_reading_settings(self, topics: Any) -> dict[str, Future[Any]]:
        made = {name: self.created[name].settings for name in topics if name in self.created}
        entries = {name: {key: SimpleNamespace(value=value) for key, value in made[name].items()} for name in made}
        return {name: answered(found) for name, found in entries.items()}

    def start_changing_settings(self, changes: Any) -> dict[str, Future[Any]]:
        if self.change_refusal is not None:
            refused = KafkaException(KafkaError(self.change_refusal))
            return dict.fromkeys(changes, answered(refused))
        self.changed |= {name: dict(settings) for name, settings in changes.items()}
        return dict.fromkeys(changes, answered(None))

    def start_listing(
        self, partitions: Any, *, end: bool, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Future[Any]]:
        self.asked = list(partitions)
        timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        found = {at: SimpleNamespace(offset=self.ends[at]) for at in self.asked if at in self.ends}
        return {at: answered(found.get(at, timed_out)) for at in self.asked}


def answered(result: Any) -> Future[Any]:
    """A future with this result, or error."""
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def described(partitions: int) -> object:
    return SimpleNamespace(topic_id=Uuid(7, 1), partitions=[None] * partitions)
