"""`TopicCreation`: creates the application's internal topics, one step at a time.

    look --all there--> done
     ^ |
     | +--some missing--> asked --answered--> look
     +-------- pause <--- passing error ---+

*Guarantees*: a step waits `STEP_MS` at most. A request has no more partitions than a broker accepts in one request.
After each passing error the question to Kafka is repeated, after growing pauses. In an existing topic only limits that
are too low are changed (`fitness.too_tight`). They are raised before the application writes to the topic. If Kafka
refuses the change, the log gets a warning. Any other setting that doesn't fit is an error that says what to do.
*Assumes*: one thread takes all steps.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import KafkaUnreachableError, SourceTopicError
from milestones.common.kafka.admin import Admin, Begin, OwnAdmin, answered, by_another_client, rest
from milestones.common.kafka.answers import described_in, settings_in
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.kafka.fitness import kept_tight, misfit, too_tight
from milestones.common.kafka.internal_topics import ANY_TIME, InternalTopic
from milestones.common.kafka.topics import Cluster

log: Final = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

MOST_PARTITIONS = 2_000
"""The most partitions in one request. Kafka's controllers refuse more than 10,000, and need seconds for 10,000."""

SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 5_000
"""The shortest and the longest pause before a question to Kafka is repeated. The pause doubles after each failure."""


class TopicCreation:
    """Creates missing topics. `made`: the names of the topics created so far."""

    def __init__(
        self, admin: Admin, topics: Iterable[InternalTopic], replication_factor: int, patience_ms: int, clock: Clock
    ) -> None:
        """`patience_ms`: the time for which a question is repeated after passing errors."""
        self._clock, self._admin, self._wanted = clock, admin, {topic.name: topic for topic in topics}
        self._replication_factor, self._patience_ms = replication_factor, patience_ms
        self._there: set[str] = set()
        self._fails = False
        self.made: frozenset[str] = frozenset()

    def steps(self) -> Generator[None, None, None]:
        """Create the missing topics. After the last step all topics exist. Raises `SourceTopicError` for a topic that
        doesn't fit, or that can't be created. Raises Kafka's last error when `patience_ms` is over."""
        until_ms, pause_ms = self._clock.monotonic_ms() + self._patience_ms, SHORTEST_PAUSE_MS
        while True:
            try:
                yield from self._make_missing()
                return
            except (KafkaException, KafkaUnreachableError) as error:
                if not is_passing_or_away(error) or self._clock.monotonic_ms() > until_ms:
                    raise
                log.info("internal topics can't be created yet, next try in %d ms: %s", pause_ms, text_of(error))
            self._fails = True
            yield from rest(self._clock, pause_ms)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)

    def _ask(self, begin: Begin[K, V]) -> Generator[None, None, Mapping[K, Future[V]]]:
        """Ask Kafka. After a failure the question goes through a new connection, because on the old one all answers
        would wait behind a late one."""
        begin, self._fails = by_another_client(begin) if self._fails else begin, False
        return answered(self._admin.ask(begin), self._clock)

    def _make_missing(self) -> Generator[None, None, None]:
        while True:
            found = yield from self._look()
            missing = [topic for name, topic in self._wanted.items() if name not in found | self.made | self._there]
            if not missing:
                break
            yield from self._create(_batch(missing))
        if unheard := self._there - found:
            # Another member has created the topic and this broker doesn't know it yet, or the topic was just deleted.
            self._there -= unheard
            raise KafkaUnreachableError(f"the broker that answers doesn't know {min(unheard)}, which is said to exist")
        yield from self._must_fit(found - self.made)

    def _look(self) -> Generator[None, None, set[str]]:
        """Returns the names of the wanted topics that exist. Raises `SourceTopicError` if one has the wrong number of
        partitions."""
        if not self._wanted:
            return set()
        answers = yield from self._ask(lambda cluster: cluster.start_describing(self._wanted))
        found = described_in(answers)
        for name in found.keys() - self.made:
            _must_have(self._wanted[name], found[name].partitions)
        return set(found)

    def _create(self, topics: Collection[InternalTopic]) -> Generator[None, None, None]:
        answers = yield from self._ask(lambda cluster: cluster.start_creating(topics, self._replication_factor))
        passing: KafkaException | None = None
        for name, future in answers.items():
            if _is_older(future):
                self._wanted[name] = without_times(self._wanted[name])
            else:
                passing = self._note(self._wanted[name], future) or passing
        if passing is not None:
            raise passing

    def _note(self, topic: InternalTopic, future: Future[None]) -> KafkaException | None:
        """Note the answer about one topic. Returns a passing error, after which Kafka must be asked once more. Returns
        None if the topic exists now."""
        try:
            future.result()
        except KafkaException as exception:
            error = error_of(exception)
            if error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                self._there.add(topic.name)
                return None
            if is_passing(exception):
                return exception
            raise SourceTopicError(
                f"can't create internal topic {topic.name} ({topic.partitions} partitions): {error}; "
                "check replication_factor, this principal's rights and the brokers' policies"
            ) from exception
        log.info("created topic %s with %d partitions", topic.name, topic.partitions)
        self.made |= {topic.name}
        return None

    def _must_fit(self, names: Iterable[str]) -> Generator[None, None, None]:
        """Check the settings of topics that existed before. If this principal may not read settings, the check is left
        out with a line in the log."""
        names = sorted(names)
        try:
            answers = yield from self._ask(lambda cluster: cluster.start_reading_settings(names))
            settings = {name: settings_in(future.result()) for name, future in answers.items()}
        except KafkaException as exception:
            deleting = [name for name in names if "retention.ms" in self._wanted[name].settings]
            log.log(
                logging.WARNING if deleting else logging.INFO,
                "can't read the settings of internal topics (%s); %s must have retention.ms=-1 and "
                "retention.bytes=-1, or brokers may delete records that the application needs",
                text_of(exception), ", ".join(deleting) or "topics with cleanup.policy=delete",
            )  # fmt: skip
            return
        for name in names:
            reason = misfit(self._wanted[name], settings.get(name, {}))
            if reason is not None:
                raise SourceTopicError(reason)
        yield from self._raise_limits({name: too_tight(self._wanted[name], settings.get(name, {})) for name in names})

    def _raise_limits(self, changes: Mapping[str, Mapping[str, str]]) -> Generator[None, None, None]:
        """Change these settings of topics. If this principal may not change settings, the log gets a warning and the
        creation goes on."""
        changes = {name: settings for name, settings in changes.items() if settings}
        if not changes:
            return
        answers = yield from self._ask(lambda cluster: cluster.start_changing_settings(changes))
        for name, future in answers.items():
            try:
                future.result()
            except KafkaException as exception:
                if is_passing(exception):
                    raise
                log.warning("%s", kept_tight(name, changes[name], text_of(exception)))
            else:
                log.info("internal topic %s has %s now", name, dict(changes[name]))


def is_passing_or_away(error: KafkaException | KafkaUnreachableError) -> bool:
    """True if the same question may succeed later."""
    return isinstance(error, KafkaUnreachableError) or is_passing(error)


def _is_older(future: Future[None]) -> bool:
    """True if the broker refused the topic because it is too old to know a setting of `ANY_TIME`."""
    try:
        future.result()
    except KafkaException as exception:
        error = error_of(exception)
        refused = error is not None and error.code() == KafkaError.INVALID_CONFIG
        return refused and any(name in text_of(exception) for name in ANY_TIME)
    return False


def without_times(topic: InternalTopic) -> InternalTopic:
    """Returns the topic without the settings of `ANY_TIME`."""
    return replace(topic, settings={name: value for name, value in topic.settings.items() if name not in ANY_TIME})


def _must_have(topic: InternalTopic, partitions: int) -> None:
    if partitions != topic.partitions:
        raise SourceTopicError(
            f"internal topic {topic.name} has {partitions} partitions, the topology needs {topic.partitions}: its "
            "input's partition count was changed; reset the application (`milestones reset`), or give the input its "
            "old number of partitions in a new topic"
        )


def _batch(topics: Iterable[InternalTopic]) -> list[InternalTopic]:
    """Returns the first of the topics, as many as fit into one request."""
    batch: list[InternalTopic] = []
    for topic in topics:
        if batch and sum(one.partitions for one in batch) + topic.partitions > MOST_PARTITIONS:
            break
        batch.append(topic)
    return batch


def create_topics(cluster: Cluster, topics: Iterable[InternalTopic], replication_factor: int) -> frozenset[str]:
    """Create the missing topics, and wait until they exist. Returns the names of the topics created. Raises the errors
    of `TopicCreation.steps`."""
    creation = TopicCreation(OwnAdmin(lambda: cluster), topics, replication_factor, 30_000, SystemClock())
    for _ in creation.steps():
        pass
    return creation.made
