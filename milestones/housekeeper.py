"""The housekeeper: one thread per client for what no stream thread should wait for.

*Guarantees*: asking never blocks; every question is answered, with an error when Kafka can't; when the thread itself
dies, asking raises its error, and the client is told.
*Assumes*: whoever asks looks into its own mailbox.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topics import Cluster
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TaskId, TopicPartition

if TYPE_CHECKING:
    from milestones.application import Application
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.state.cleaner import Cleaner

log = logging.getLogger(__name__)

WATCH_INTERVAL_MS = 5_000
"""How often the source topics' partition counts are looked at."""


@dataclass(frozen=True)
class AskBounds:
    """Where do these partitions begin and end now? With `committed`, they end where the first open transaction
    begins; else after their last record, uncommitted and control records included. With `topic_ids`, the answer has
    the ids of their topics too."""

    task: TaskId
    partitions: frozenset[TopicPartition]
    reply_to: Mailbox[Bounds]
    committed: bool = False
    topic_ids: bool = False


@dataclass(frozen=True)
class Bounds:
    """The answer to `AskBounds`: first offset and end by partition, or the error that Kafka gave. `topic_ids`: by
    topic, where it was asked for and Kafka has one."""

    task: TaskId
    bounds: Mapping[TopicPartition, tuple[int, int]]
    error: Exception | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Purge:
    """Delete what is before these offsets in the application's repartition topics."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class NewSources:
    """Topics that a source's pattern matches and that weren't there before: the group has to assign anew."""

    topics: frozenset[str]


Request = AskBounds | Purge
Requests = Mailbox[Request]


class Housekeeper(threading.Thread):
    """Answers the stream threads' questions to the cluster, purges, watches source topics, cleans the state directory.

    *Owns*: the admin client, the cleaner. *Receives*: `AskBounds`, `Purge`. *Sends*: `Bounds` to whoever asked; a
    `SourceTopicError` to the client when a source topic was deleted or got another number of partitions, `NewSources`
    when topics have come up that a source's pattern matches. `runs`: whether the client is RUNNING: else a task that
    nobody holds may be one that is about to be opened, or was closed for the end, and its state isn't cleaned away.
    """

    def __init__(
        self,
        name: str,
        config: StreamsConfig,
        application: Application,
        cleaner: Cleaner,
        clock: Clock,
        tell: Callable[[Exception | NewSources], None],
        runs: Callable[[], bool],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.requests: Requests = Mailbox(capacity=10_000, name=f"{name} requests")
        self._config, self._application, self._cleaner, self._clock = config, application, cleaner, clock
        self._tell, self._runs = tell, runs
        self._sources = SourceWatch(application)
        self._next_watch = 0
        self._next_clean = 0

    def run(self) -> None:
        try:
            cluster = Cluster(self._config.admin_settings(self.name), stopped=lambda: self.requests.closed)
            while not self.requests.closed:
                first = self._next_request()
                self.run_once(cluster, self._clock.monotonic_ms(), first)
        except Exception as error:
            log.exception("%s died", self.name)
            self.requests.close(error)
            self._tell(error)

    def _next_request(self) -> Request | None:
        try:
            return self.requests.get(timeout_ms=200)
        except MailboxClosedError:
            return None

    def run_once(self, cluster: Cluster, now_ms: int, request: Request | None) -> None:
        """1. answer the request; 2. watch source topics; 3. clean the state directory."""
        if request is not None:
            self._serve(cluster, request)
        if now_ms >= self._next_watch:
            self._next_watch = now_ms + WATCH_INTERVAL_MS
            self._watch(cluster)
        if now_ms >= self._next_clean and self._runs():
            self._next_clean = now_ms + max(1_000, self._config.state_cleanup_delay_ms // 10)
            self._cleaner.run_once(self._clock.wall_ms())

    def _serve(self, cluster: Cluster, request: Request) -> None:
        match request:
            case AskBounds():
                request.reply_to.try_put(bounds_of(cluster, request))
            case Purge(offsets):
                cluster.purge(offsets)

    def _watch(self, cluster: Cluster) -> None:
        try:
            counts = cluster.partition_counts()
        except (KafkaException, MilestonesError) as error:
            log.info("source topics can't be looked at now: %s", error)
            return
        for news in self._sources.look(counts):
            self._tell(news)

    def close(self) -> None:
        """Ask the thread to end; the caller joins it."""
        self.requests.close()


class SourceWatch:
    """What becomes of the source topics that somebody else made. *Owns*: what it has seen of them."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._counts: dict[str, int] = {}
        self._missing: frozenset[str] = frozenset()

    def look(self, counts: Mapping[str, int]) -> list[SourceTopicError | NewSources]:
        """The news in the partition counts of all topics. Brokers that have just started may not know a topic yet: it
        is gone when two looks in a row miss it."""
        news: list[SourceTopicError | NewSources] = []
        missing = self._counts.keys() - counts.keys()
        unsure = {topic: self._counts[topic] for topic in missing - self._missing}
        self._missing = frozenset(missing)
        changed = changed_sources(self._counts, {**counts, **unsure})
        if changed is not None:
            news.append(changed)
        sources = self._application.external_topics(counts) & counts.keys()
        new = frozenset(sources - self._counts.keys())
        if new and self._counts:
            news.append(NewSources(new))
        self._counts |= {topic: counts[topic] for topic in sources}
        return news


def bounds_of(cluster: Cluster, asked: AskBounds) -> Bounds:
    """The answer to `asked`."""
    try:
        bounds = cluster.bounds(asked.partitions, committed=asked.committed)
        ids = cluster.topic_ids({partition.topic for partition in asked.partitions}) if asked.topic_ids else {}
        return Bounds(asked.task, bounds, topic_ids=ids)
    except (KafkaException, MilestonesError) as error:
        return Bounds(asked.task, {}, error)


def changed_sources(before: Mapping[str, int], now: Mapping[str, int]) -> SourceTopicError | None:
    """What became of the source topics that we run on: an error that names the change, None when there is none."""
    for topic, partitions in before.items():
        if topic not in now:
            return SourceTopicError(
                f"source topic {topic} was deleted under the running application; create it again with "
                f"{partitions} partitions and restart, or reset the application (`milestones reset`)"
            )
        if now[topic] != partitions:
            return SourceTopicError(
                f"source topic {topic} had {partitions} partitions and has {now[topic]} now: keys have moved between "
                "tasks, so state would be wrong; reset the application (`milestones reset`) to start over"
            )
    return None
