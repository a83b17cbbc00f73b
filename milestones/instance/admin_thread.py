"""The housekeeper: one thread per client, for requests to Kafka that no stream thread should wait for.

*Guarantees*: a question never blocks its thread, and is answered, by an error when Kafka gives no answer. A broker that
doesn't answer one question holds up no other one, except where patterns need a look at all topics. When the housekeeper
dies, a question raises its error, and the supervisor is told.
*Assumes*: each question names the mailbox of the thread that asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topics import Cluster, Described
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TopicPartition
from milestones.instance.partition_offsets import AskBounds as AskBounds
from milestones.instance.partition_offsets import Bounds as Bounds
from milestones.instance.partition_offsets import BoundsDesk
from milestones.instance.partition_offsets import bounds_of as bounds_of

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription  # type: ignore[attr-defined]

    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.instance.application import Application

log = logging.getLogger(__name__)

WATCH_INTERVAL_MS = 5_000
"""The time between two looks at the source topics' partition counts."""


@dataclass(frozen=True)
class Purge:
    """Delete the records before these offsets in the application's repartition topics."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class NewSources:
    """New topics that a source's pattern matches: the group has to assign anew."""

    topics: frozenset[str]


LOST = (
    "what it held is lost, and a store that moves or is opened anew would lose it too: stop all instances, reset the "
    "application (`milestones reset`), and see that nothing deletes its topics"
)
"""The consequence of a deleted internal topic, for errors."""

IDLE_MS, STEP_MS = 200, 20
"""The longest wait of the thread for requests, and for answers while some are due."""

Request = AskBounds | Purge
Requests = Mailbox[Request]


class Housekeeper(threading.Thread):
    """Answers the stream threads' questions to the cluster, purges, watches source topics, cleans the state directory.

    *Owns*: the admin client, the cleaner. *Receives*: `AskBounds`, `Purge`. *Sends*: `Bounds` to the mailbox that the
    question names; to the client a `SourceTopicError` when a source or internal topic was deleted or replaced, and
    `NewSources` when a source's pattern matches new topics. `runs`: whether the client is RUNNING. While it isn't, a
    task without an owner may be about to be opened, or was closed for the end: its state isn't cleaned, and its topics
    needn't exist.
    """

    def __init__(
        self,
        name: str,
        config: StreamsConfig,
        application: Application,
        cleaner: Callable[[int], bool],
        clock: Clock,
        tell: Callable[[Exception | NewSources], None],
        runs: Callable[[], bool],
        sources: frozenset[str] = frozenset(),
    ) -> None:
        """`sources`: the source topics that the client found at its start."""
        super().__init__(name=name, daemon=True)
        self.requests: Requests = Mailbox(capacity=10_000, name=f"{name} requests")
        self._config, self._application, self._cleaner, self._clock = config, application, cleaner, clock
        self._tell, self._runs = tell, runs
        self._sources, self._internal = SourceWatch(application, sources), InternalWatch()
        self._watched = set(application.source_topics) | application.internal_topics
        self._desk = BoundsDesk(self._changed)
        self._to_purge: dict[TopicPartition, int] = {}
        self._purging: dict[TopicPartition, Future[Any]] = {}
        self._watching: dict[str, Future[TopicDescription]] | None = None
        self._all: dict[str, int] = {}
        self._client: object = None
        self._purging_client: object = None
        self._next_watch = 0
        self._next_clean = 0

    def run(self) -> None:
        try:
            cluster = Cluster(self._config.admin_settings(self.name), stopped=lambda: self.requests.closed)
            while not self.requests.closed:
                requests = self._next_requests()
                self.run_once(cluster, self._clock.monotonic_ms(), requests)
        except Exception as error:
            log.exception("%s died", self.name)
            self.requests.close(error)
            self._tell(error)

    def _next_requests(self) -> list[Request]:
        awaited = self._purging or self._watching
        try:
            self.requests.wait(0 if self._desk else STEP_MS if awaited else IDLE_MS)
            return self.requests.drain()
        except MailboxClosedError:
            return []

    def run_once(self, cluster: Cluster, now_ms: int, requests: Collection[Request]) -> None:
        """1. put questions, hand out answers; 2. purge; 3. watch topics; 4. clean the state directory."""
        self._desk.ask([request for request in requests if isinstance(request, AskBounds)])
        self._desk.run_once(cluster, now_ms, STEP_MS)
        for request in requests:
            if isinstance(request, Purge):
                self._to_purge |= request.offsets
        self._purge(cluster)
        self._watch(cluster, now_ms)
        if now_ms >= self._next_clean and self._runs():
            self._next_clean = now_ms + max(1_000, self._config.state_cleanup_delay_ms // 10)
            self._cleaner(self._clock.wall_ms())

    def _purge(self, cluster: Cluster) -> None:
        """Begin the next purge, once the one before is answered."""
        if self._purging and all(future.done() for future in self._purging.values()):
            cluster.purged(self._purging)
            self._purging = {}
        if self._to_purge and not self._purging:
            self._purging_client = cluster.client  # which answers as long as it lives
            self._purging, self._to_purge = cluster.start_purging(self._to_purge), {}

    def _watch(self, cluster: Cluster, now_ms: int) -> None:
        try:
            if now_ms >= self._next_watch and self._watching is None:
                self._next_watch = now_ms + WATCH_INTERVAL_MS
                self._all = cluster.partition_counts() if self._application.source_patterns else {}
                self._client = cluster.client
                self._watching = cluster.start_describing(self._watched)  # none, where patterns are all there is
            if self._watching is not None and all(future.done() for future in self._watching.values()):
                answers, self._watching = self._watching, None
                self._look(cluster.seen(answers))
        except (KafkaException, MilestonesError) as error:
            log.info("topics can't be looked at now: %s", error)
            if isinstance(error, KafkaException):
                cluster.renew_after(error)

    def _changed(self, found: Mapping[str, Described]) -> Mapping[str, SourceTopicError]:
        """The errors of the application's own topics that were replaced, by name. A thread that is about to restore
        from such a topic learns of it before the next look."""
        internal = {topic: told for topic, told in found.items() if topic in self._application.internal_topics}
        changed = self._internal.changed(internal)
        for error in changed.values():
            self._tell(error)
        return changed

    def _look(self, found: Mapping[str, Described]) -> None:
        counts = self._all | {topic: told.partitions for topic, told in found.items()}
        internal = {topic: told for topic, told in found.items() if topic in self._application.internal_topics}
        # A running application has all of them, but those of a pattern that matches nothing aren't made.
        has_all = self._runs() and not self._application.source_patterns
        expected = self._application.internal_topics if has_all else ()
        for news in [*self._sources.look(counts), *self._internal.look(internal, expected)]:
            self._tell(news)

    def close(self) -> None:
        """Ask the thread to end; the caller joins it."""
        self.requests.close()


class InternalWatch:
    """Watches the application's own topics. *Owns*: the topics as it has seen them."""

    def __init__(self) -> None:
        self._seen: dict[str, Described] = {}
        self._missing: frozenset[str] = frozenset()

    def look(self, found: Mapping[str, Described], expected: Collection[str] = ()) -> list[SourceTopicError]:
        """The errors of a look that has `found` these topics. `expected`: the topics that must exist; one is deleted
        when two looks in a row miss it."""
        missing = frozenset(self._seen.keys() | set(expected)) - found.keys()
        gone, self._missing = missing & self._missing, missing
        news = [
            SourceTopicError(f"internal topic {topic} was deleted under the running application; {LOST}")
            for topic in sorted(gone)
        ]
        return [*news, *self.changed(found).values()]

    def changed(self, found: Mapping[str, Described]) -> dict[str, SourceTopicError]:
        """The errors of topics that exist, by topic. A topic that was made anew is an error at once, before any store
        is restored from it."""
        news: dict[str, SourceTopicError] = {}
        for topic, told in sorted(found.items()):
            before = self._seen.setdefault(topic, told)
            if before.id != told.id and None not in (before.id, told.id):
                news[topic] = SourceTopicError(
                    f"internal topic {topic} was deleted and made anew under the running application; {LOST}"
                )
            elif before.partitions != told.partitions:
                news[topic] = SourceTopicError(
                    f"internal topic {topic} had {before.partitions} partitions and has {told.partitions} now: keys "
                    "would move between tasks; reset the application (`milestones reset`) to start over"
                )
        return news


class SourceWatch:
    """Watches the source topics that the application doesn't make. *Owns*: the topics as it has seen them."""

    def __init__(self, application: Application, known: frozenset[str] = frozenset()) -> None:
        """`known`: topics that aren't new, besides those that the application names."""
        self._application = application
        self._known = known.union(application.source_topics)
        self._counts: dict[str, int] = {}
        self._missing: frozenset[str] = frozenset()

    def look(self, counts: Mapping[str, int]) -> list[SourceTopicError | NewSources]:
        """The changes in the partition counts of all topics. Brokers that have just started may not know a topic yet,
        so a topic is deleted when two looks in a row miss it."""
        news: list[SourceTopicError | NewSources] = []
        missing = self._counts.keys() - counts.keys()
        unsure = {topic: self._counts[topic] for topic in missing - self._missing}
        self._missing = frozenset(missing)
        changed = changed_sources(self._counts, {**counts, **unsure})
        if changed is not None:
            news.append(changed)
        sources = self._application.external_topics(counts) & counts.keys()
        new = frozenset(sources - self._counts.keys() - self._known)
        if new:
            news.append(NewSources(new))
        self._counts |= {topic: counts[topic] for topic in sources}
        return news


def changed_sources(before: Mapping[str, int], now: Mapping[str, int]) -> SourceTopicError | None:
    """The error that names how the source topics have changed; None when they haven't."""
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
