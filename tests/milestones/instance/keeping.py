"""A housekeeper that is driven by hand, over a cluster that answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Uuid

from milestones.common.kafka.topic_metadata import Described
from milestones.common.kafka.topics import ALL
from milestones.common.mailbox import Mailbox
from milestones.common.records import TopicPartition
from milestones.instance.admin_thread import (
    WATCH_INTERVAL_MS,
    AskBounds,
    Housekeeper,
    HousekeeperAdmin,
)
from milestones.testing import until
from tests.common.kafka.fake_cluster import answered
from tests.milestones.fakes import CHANGELOG, IN, A, World, counting


class FakeCluster:
    """Topics `counts` with partitions led by broker 1, but for those of `leaders`. Who asks a broker of `hanging` gets
    no answer."""

    client = None

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"in": 2, CHANGELOG: 2, "unrelated": 9}
        self.ids: dict[str, int] = {}
        self.leaders: dict[TopicPartition, int | None] = {}
        self.hanging: set[int] = set()
        self.error: Exception | None = None
        self.described: list[set[str]] = []
        self.looked: list[set[str] | None] = []
        self.listed: list[tuple[set[TopicPartition], bool, bool]] = []
        self.purged_: list[Mapping[TopicPartition, int]] = []
        self.looked_at_all = 0

    def renew_after(self, exception: Exception) -> None: ...

    def start_looking(self, topics: Any) -> dict[str, Future[dict[str, Described]]]:
        self.looked_at_all += topics is None
        self.looked.append(topics)
        asked = self.counts if topics is None else topics
        found = {name: Described(self.counts[name], self._id(name)) for name in asked if name in self.counts}
        return {ALL: answered(self.error or found)}

    def _id(self, topic: str) -> str:
        return str(Uuid(7, self.ids.get(topic, 1)))

    def close(self) -> None: ...

    def start_describing(self, topics: Any) -> dict[str, Future[Any]]:
        self.described.append(set(topics))
        return {topic: answered(self.error or self._description(topic)) for topic in topics}

    def _description(self, topic: str) -> object:
        if topic not in self.counts:
            return KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        partitions = []
        for number in range(self.counts[topic]):
            leader = self.leaders.get(TopicPartition(topic, number), 1)
            node = None if leader is None else SimpleNamespace(id=leader)
            partitions.append(SimpleNamespace(id=number, leader=node))
        return SimpleNamespace(topic_id=Uuid(7, self.ids.get(topic, 1)), partitions=partitions)

    def start_listing(
        self, partitions: Any, *, end: bool, committed: bool = False
    ) -> dict[TopicPartition, Future[Any]]:
        self.listed.append((set(partitions), end, committed))
        at = {self.leaders.get(partition, 1) for partition in partitions}
        if at & self.hanging:
            return {partition: Future() for partition in partitions}
        return {partition: answered(SimpleNamespace(offset=8 if end else 3)) for partition in partitions}

    def start_searching(self, times: Any, *, committed: bool) -> dict[TopicPartition, Future[Any]]:
        """Records have the times 0 to 7."""
        return {at: answered(SimpleNamespace(offset=time if time < 8 else -1)) for at, time in times.items()}

    def start_purging(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Future[Any]]:
        self.purged_.append(offsets)
        return dict.fromkeys(offsets, answered(None))

    def purged(self, answers: Any) -> None: ...


class Client: ...


class FakeCleaner:
    def __init__(self) -> None:
        self.runs: list[str] = []
        self.error: Exception | None = None
        self.wait_for: threading.Event | None = None

    def __call__(self) -> bool:
        if self.wait_for is not None:
            self.wait_for.wait(20)
        if self.error is not None:
            raise self.error
        self.runs.append("cleaned")
        return False


class Keeping:
    def __init__(self, topology: Any = None, sources: frozenset[str] = frozenset(), **settings: Any) -> None:
        self.world = World(topology or counting(), settings)
        self.cluster, self.cleaner = FakeCluster(), FakeCleaner()
        self.errors: list[Exception] = []
        cleaner: Any = self.cleaner
        self.runs = True
        self.noted: list[dict[str, str]] = []
        self.keeper = Housekeeper(
            "keeper", self.world.config, self.world.context.application, cleaner, self.world.clock, self.errors.append,
            lambda: self.runs, sources, lambda ids: self.noted.append(dict(ids)),
        )  # fmt: skip

    def step(self, request: Any = None, *, ms: int = 0, cleans: bool = True) -> None:
        """`cleans`: a cleaning that has begun ends in this step."""
        self.world.clock.advance(ms)
        cluster: Any = self.cluster
        requests = request if isinstance(request, list) else [] if request is None else [request]
        self.keeper.run_once(cluster, self.world.clock.monotonic_ms(), requests)
        if cleans and self.keeper._cleaning.busy:
            until(lambda: self.keeper._cleaning.returned(20), "it is clean")

    @property
    def admin(self) -> HousekeeperAdmin:
        return HousekeeperAdmin(self.keeper.requests)

    def step_requests(self, *more: Any) -> None:
        """Take what waits in the mailbox, and these requests."""
        self.step([*self.keeper.requests.drain(), *more])

    def look(self) -> list[str]:
        """Look at the topics once more; the errors so far."""
        self.step(ms=WATCH_INTERVAL_MS)
        return [str(error) for error in self.errors]


def ask(committed: bool = False) -> AskBounds:
    return AskBounds(A, frozenset({IN}), Mailbox(5), committed)
