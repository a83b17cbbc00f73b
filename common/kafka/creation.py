"""`TopicCreation`: makes the application's internal topics, one step at a time.

    look --all there--> done
     ^ |
     | +--some missing--> asked --answered--> look
     +-------- pause <--- passing error ---+

*Guarantees*: a step waits `STEP_MS` for an answer, a look at most as long as one request of the cluster may take; a
request has no more partitions than a broker takes at once. After a passing error Kafka is asked again, after growing
pauses. An existing topic is never changed: one that doesn't fit is an error that says what to do.
*Assumes*: driven by the thread that owns the cluster; `now_ms` is monotonic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future, wait

from confluent_kafka import KafkaError, KafkaException

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import KafkaUnreachableError, MilestonesError, SourceTopicError
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.kafka.fitness import misfit
from milestones.common.kafka.topics import Cluster, InternalTopic

log = logging.getLogger(__name__)

STEP_MS = 20
"""The longest wait of a step."""

MOST_PARTITIONS = 2_000
"""The most partitions in one request. Kafka's controllers refuse more than 10,000, and take seconds for so many."""

SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 5_000
"""The first pause before Kafka is asked again, doubled after each failure."""


class TopicCreation:
    """`made`: the topics made so far. *Owns*: the awaited answers."""

    def __init__(
        self, cluster: Cluster, topics: Iterable[InternalTopic], replication_factor: int, patience_ms: int, clock: Clock
    ) -> None:
        """`patience_ms`: the time for which Kafka is asked again after errors."""
        self._clock, self._cluster, self._wanted = clock, cluster, {topic.name: topic for topic in topics}
        self._replication_factor, self._patience_ms = replication_factor, patience_ms
        self._asked: dict[str, Future[None]] = {}
        self._there: set[str] = set()
        self._since_ms: int | None = None
        self._resume_ms = 0
        self._pause_ms = SHORTEST_PAUSE_MS
        self.made: frozenset[str] = frozenset()

    def run_once(self, now_ms: int) -> bool:
        """Do one step; True when all topics exist. `SourceTopicError` for a topic that doesn't fit; `MilestonesError`
        for one that can't be made; Kafka's last error when `patience_ms` is over."""
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        if now_ms < self._resume_ms:
            self._clock.sleep_ms(STEP_MS)
            return False
        try:
            return self._answered() if self._asked else self._look(now_ms)
        except (KafkaException, KafkaUnreachableError) as error:
            if not is_passing_or_away(error) or now_ms - self._since_ms > self._patience_ms:
                raise
            log.info("internal topics: asked again in %d ms: %s", self._pause_ms, text_of(error))
        # By a new connection: on the old one a late answer holds up all later ones.
        self._cluster.renew()
        self._pause(now_ms)
        return False

    def _pause(self, now_ms: int) -> None:
        self._resume_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _look(self, now_ms: int) -> bool:
        counts = self._cluster.partition_counts(self._wanted)
        for name in self._wanted.keys() & counts.keys() - self.made:
            _must_have(self._wanted[name], counts[name])
        missing = [topic for name, topic in self._wanted.items() if name not in counts.keys() | self.made | self._there]
        if missing:
            self._asked = self._cluster.start_creating(_batch(missing), self._replication_factor)
            return False
        if unheard := self._there - counts.keys():
            # Another leader has made the topic, and the answering broker doesn't know it yet; or it was just deleted.
            self._there -= unheard
            raise KafkaUnreachableError(f"the broker that answers doesn't know {min(unheard)}, which is said to exist")
        self._must_fit(counts.keys() - self.made)
        return True

    def _answered(self) -> bool:
        if wait(self._asked.values(), STEP_MS / 1000).not_done:
            return False
        asked, self._asked = self._asked, {}
        passing: KafkaException | None = None
        for name, future in asked.items():
            passing = self._note(self._wanted[name], future) or passing
        if passing is not None:
            raise passing
        return False

    def _note(self, topic: InternalTopic, future: Future[None]) -> KafkaException | None:
        """Note the answer about one topic; returns an error after which Kafka is to be asked again."""
        try:
            future.result()
        except KafkaException as exception:
            error = error_of(exception)
            if error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                self._there.add(topic.name)
                return None
            if is_passing(exception):
                return exception
            raise MilestonesError(
                f"can't create internal topic {topic.name} ({topic.partitions} partitions): {error}; "
                "check replication_factor, this principal's rights and the brokers' policies"
            ) from exception
        log.info("created topic %s with %d partitions", topic.name, topic.partitions)
        self.made |= {topic.name}
        return None

    def _must_fit(self, names: Iterable[str]) -> None:
        """Check the settings of topics that existed before. A principal that may not read settings isn't held up."""
        names = sorted(names)
        try:
            settings = self._cluster.topic_settings(names)
        except KafkaException as exception:
            log.info("settings of internal topics can't be looked at: %s", text_of(exception))
            return
        for name in names:
            reason = misfit(self._wanted[name], settings.get(name, {}))
            if reason is not None:
                raise SourceTopicError(reason)


def is_passing_or_away(error: KafkaException | KafkaUnreachableError) -> bool:
    """Whether Kafka may give another answer to the same question later."""
    return isinstance(error, KafkaUnreachableError) or is_passing(error)


def _must_have(topic: InternalTopic, partitions: int) -> None:
    if partitions != topic.partitions:
        raise SourceTopicError(
            f"internal topic {topic.name} has {partitions} partitions, the topology needs {topic.partitions}: its "
            "input's partition count was changed; reset the application (`milestones reset`), or give the input its "
            "old number of partitions in a new topic"
        )


def _batch(topics: Iterable[InternalTopic]) -> list[InternalTopic]:
    """The first topics, as many as go into one request."""
    batch: list[InternalTopic] = []
    for topic in topics:
        if batch and sum(one.partitions for one in batch) + topic.partitions > MOST_PARTITIONS:
            break
        batch.append(topic)
    return batch


def create_topics(cluster: Cluster, topics: Iterable[InternalTopic], replication_factor: int) -> frozenset[str]:
    """Make missing topics, wait for that, and return the topics made. Errors as of `TopicCreation`."""
    clock = SystemClock()
    creation = TopicCreation(cluster, topics, replication_factor, 30_000, clock)
    while not creation.run_once(clock.monotonic_ms()):
        pass
    return creation.made
