"""The housekeeper: one thread per client, with the only admin client of an instance that runs.

*Guarantees*: a question never blocks the thread that asks. Every question is answered, by an error if Kafka doesn't
answer. The housekeeper waits neither for a broker nor for a disk. So an unanswered question doesn't delay others,
unless a broker answers the requests of one connection one after the other. When the housekeeper dies, each further
question raises its error, and the supervisor gets a message.
*Assumes*: each question names the mailbox, or has the future, of the thread that asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.admin import AdminCall, AdminDesk, Answers, Begin
from milestones.common.kafka.blocking_call import CallThread, LateError
from milestones.common.kafka.failures import caught
from milestones.common.kafka.topic_metadata import Described
from milestones.common.kafka.topics import ALL, Cluster
from milestones.common.last_words import report
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TopicPartition
from milestones.instance.changelog_trim import ChangelogTrim, Trim, own_limits
from milestones.instance.compaction_watch import CompactionWatch, histories
from milestones.instance.global_watch import GlobalWatch
from milestones.instance.partition_offsets import AskBounds as AskBounds
from milestones.instance.partition_offsets import Bounds as Bounds
from milestones.instance.partition_offsets import BoundsDesk
from milestones.instance.partition_offsets import bounds_of as bounds_of
from milestones.instance.topic_ids import AskTopicIds as AskTopicIds
from milestones.instance.topic_ids import IdsDesk, former_topics
from milestones.instance.topic_ids import TopicIds as TopicIds
from milestones.instance.topic_watch import InternalWatch, SourceWatch
from milestones.instance.topic_watch import NewSources as NewSources

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.instance.application import Application

log: Final = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

WATCH_INTERVAL_MS = 5_000
"""The time between two looks at the topics."""


@dataclass(frozen=True)
class Purge:
    """Delete the records before these offsets in the application's repartition topics."""

    offsets: Mapping[TopicPartition, int]


CLEANING_MS = 24 * 3_600_000
"""The longest time that a removal of old state may take. If one takes longer, this client removes no more old state."""

RARELY_MS = 3_600_000
"""The longest time between two cleanings: each cleaning records for how long state hasn't been used."""

LAST_ANSWERS_MS = 2_000
"""How long the end of the thread waits for the answers to requests that are under way."""

IDLE_MS, STEP_MS = 200, 20
"""`IDLE_MS`: the longest wait of the thread for requests. `STEP_MS`: its longest wait while answers are due."""

Request = AskBounds | AskTopicIds | Purge | Trim | AdminCall[Any, Any]
Requests = Mailbox[Request]


class HousekeeperAdmin:
    """Calls the housekeeper's admin client by messages, for any thread. *Sends*: `AdminCall`s."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def ask(self, begin: Begin[K, V]) -> Answers[K, V]:
        """Make a request, as in `Admin`. If the housekeeper has died, its error is raised."""
        call = AdminCall(begin)
        if not self._requests.try_put(call):
            full = KafkaError(KafkaError._TIMED_OUT_QUEUE, f"too many {self._requests.name} wait")
            call.answers.set_exception(KafkaException(full))
        return call.answers


class Housekeeper(threading.Thread):
    """A thread that answers other threads' questions about the cluster, deletes old records, watches source topics, and
    cleans the state directory.

    *Owns*: the admin client; the thread that removes old state, and notes topics. *Receives*: `AskBounds`,
    `AskTopicIds`, `Purge`, `Trim`, `AdminCall`. *Sends*: `Bounds` and `TopicIds` to the mailbox that the question
    names, answers to the future of a call; to the client a `SourceTopicError` when a source or internal topic was
    deleted or made anew, or offsets that a task begins with belong to a former topic, and `NewSources` when a source's
    pattern matches new topics. `runs`: True while the client is RUNNING. While it isn't, the state of tasks without an
    owner isn't cleaned, because such a task may be about to be opened, or may have been closed for the end. Its topics
    needn't exist then.
    """

    def __init__(
        self,
        name: str,
        config: StreamsConfig,
        application: Application,
        cleaner: Callable[[], bool],
        clock: Clock,
        tell: Callable[[BaseException | NewSources], None],
        runs: Callable[[], bool],
        sources: frozenset[str] = frozenset(),
        note: Callable[[Mapping[str, str]], object] = lambda _: None,
    ) -> None:
        """`sources`: the source topics that the client found at its start. `note`: writes the ids of the application's
        own topics to the disk."""
        super().__init__(name=name, daemon=True)
        self.requests: Requests = Mailbox(capacity=10_000, name=f"{name} requests")
        self._config, self._application, self._cleaner, self._clock = config, application, cleaner, clock
        self._tell, self._runs = tell, runs
        self._sources, self._internal = SourceWatch(application, sources), InternalWatch()
        self._globals = GlobalWatch(application.global_topics)
        self._watched = set(application.source_topics) | application.internal_topics | set(application.global_topics)
        self._desk, self._ids = BoundsDesk(self._changed), IdsDesk(self._unfit)
        self._calls = AdminDesk()
        additional_ms = config.windowstore_changelog_additional_retention_ms
        self._trim = ChangelogTrim(additional_ms, own_limits(application.subtopologies))
        self._compaction = CompactionWatch(histories(application.subtopologies), config.application_id)
        self._to_purge: dict[TopicPartition, int] = {}
        self._purging: Answers[TopicPartition, Any] | None = None
        self._watching: Answers[str, dict[str, Described]] | None = None
        self._next_watch = 0
        self._cleaning = CallThread(f"{name}-cleaner", when_late=lambda: None)
        self._next_clean = 0
        self._note, self._noted = note, dict[str, str]()

    def run(self) -> None:
        try:
            with closing(Cluster(self._config.admin_settings(self.name))) as cluster:
                while not self.requests.closed:
                    requests = self._next_requests()
                    self.run_once(cluster, self._clock.monotonic_ms(), requests)
                self._compaction.end(lambda begin: self._ask(begin, cluster, self._clock.monotonic_ms()))
        except BaseException as error:
            self._tell(error)
            self._refuse_all(error)
            report(log, "%s died", self.name, error=error)
        finally:
            try:
                self._calls.end(LAST_ANSWERS_MS)
            finally:
                self._end_cleaning()

    def _refuse_all(self, error: BaseException) -> None:
        """Answer all open, waiting and future questions with this error."""
        self.requests.close(error)
        self._calls.close(error)
        for request in self.requests.drain() if len(self.requests) else ():
            if isinstance(request, AdminCall):
                request.answers.set_exception(error)

    def _end_cleaning(self) -> None:
        """Wait until a running removal of old state has ended, because the state directory is unlocked after this
        thread's end.
        """
        with suppress(BaseException):
            while self._cleaning.busy and not self._cleaning.returned(CLEANING_MS):
                pass
        self._cleaning.close()

    def _next_requests(self) -> list[Request]:
        awaited = self._purging or self._watching or self._ids or self._trim.waits or self._compaction.waits
        try:
            self.requests.wait(0 if self._desk else STEP_MS if awaited else IDLE_MS)
            return self.requests.drain()
        except MailboxClosedError:
            return []

    def run_once(self, cluster: Cluster, now_ms: int, requests: Collection[Request]) -> None:
        """1. put questions, hand out answers; 2. trim changelogs, purge, and have others compacted; 3. watch topics;
        4. clean the state directory."""
        self._desk.ask([request for request in requests if isinstance(request, AskBounds)])
        self._ids.ask([request for request in requests if isinstance(request, AskTopicIds)])
        for request in requests:
            if isinstance(request, AdminCall):
                self._calls.begin(request, cluster, now_ms)
            elif isinstance(request, Purge):
                self._to_purge |= request.offsets
            elif isinstance(request, Trim):
                self._trim.take(request, self._clock.wall_ms())
        self._desk.run_once(cluster, now_ms, STEP_MS)
        self._ids.run_once(lambda topics: self._ask(_look_at(topics), cluster, now_ms))
        self._calls.run_once(cluster, now_ms)
        self._to_purge |= self._trim.run_once(lambda begin: self._ask(begin, cluster, now_ms))
        self._purge(cluster, now_ms)
        self._compaction.run_once(lambda begin: self._ask(begin, cluster, now_ms), now_ms, self._clock.wall_ms())
        self._watch(cluster, now_ms)
        self._clean(now_ms)

    def _ask(self, begin: Begin[K, V], cluster: Cluster, now_ms: int) -> Answers[K, V]:
        """Begin a call that the housekeeper itself needs."""
        call = AdminCall(begin)
        self._calls.begin(call, cluster, now_ms)
        return call.answers

    def _purge(self, cluster: Cluster, now_ms: int) -> None:
        """Begin the next purge, when the last one is answered."""
        if self._purging is not None and self._purging.done():
            if self._purging.exception() is None:
                cluster.purged(self._purging.result())
            self._purging = None
        if self._to_purge and self._purging is None:
            offsets, self._to_purge = self._to_purge, {}
            self._purging = self._ask(lambda cluster: cluster.start_purging(offsets), cluster, now_ms)

    def _watch(self, cluster: Cluster, now_ms: int) -> None:
        if now_ms >= self._next_watch and self._watching is None:
            self._next_watch = now_ms + WATCH_INTERVAL_MS
            # Watch all topics if there is a pattern, because it may match any topic.
            watched = None if self._application.source_patterns else self._watched
            self._watching = self._ask(_look_at(watched), cluster, now_ms)
        watching = self._watching
        if watching is None or not watching.done():
            return
        self._watching = None
        try:
            self._look(watching.result()[ALL].result())
        except (KafkaException, MilestonesError) as error:
            log.info("topics can't be looked at now: %s", error)

    def _clean(self, now_ms: int) -> None:
        """Begin the next removal of state, when the last one has ended: on a slow disk, the removal of a large state
        takes long. New topics are noted first.
        """
        if self._cleaning.late:  # that removal still runs, and may hold any lock
            return
        if self._cleaning.busy and (error := caught(lambda: self._cleaning.returned(0), Exception)) is not None:
            later = "this client tries it no more" if isinstance(error, LateError) else "it is tried again later"
            report(log, "%s: old state can't be removed now, or topics be noted; %s", self.name, later, error=error)
        if self._cleaning.busy:
            return
        new, self._noted = self._internal.ids != self._noted, self._internal.ids
        note = partial(self._note, self._noted)
        if now_ms >= self._next_clean and self._runs():
            self._next_clean = now_ms + min(max(1_000, self._config.state_cleanup_delay_ms // 10), RARELY_MS)
            self._cleaning.begin(lambda: (note(), self._cleaner()), CLEANING_MS)
        elif new:
            self._cleaning.begin(note, CLEANING_MS)

    def _changed(self, found: Mapping[str, Described]) -> Mapping[str, SourceTopicError]:
        """Return the errors of those topics of the application that were made anew, by topic. The client gets them. A
        thread that is about to restore or to read from such a topic learns of it before the next look.
        """
        changed = {
            **self._internal.changed(self._ours(found)), **self._sources.changed(found), **self._globals.changed(found),
        }  # fmt: skip
        for error in changed.values():
            self._tell(error)
        return changed

    def _unfit(
        self, found: Mapping[str, Described], known: Mapping[TopicPartition, int]
    ) -> Mapping[str, SourceTopicError]:
        """As `_changed`, for topics with committed offsets that belong to these ids."""
        former = former_topics(found, known, self._application.internal_topics)
        for error in former.values():
            self._tell(error)
        return former or self._changed(found)

    def _ours(self, found: Mapping[str, Described]) -> dict[str, Described]:
        return {topic: told for topic, told in found.items() if topic in self._application.internal_topics}

    def _look(self, found: Mapping[str, Described]) -> None:
        """Send the client the changes that a look at the topics has found."""
        # A running application has all its internal topics, unless a pattern matches nothing.
        has_all = self._runs() and not self._application.source_patterns
        expected = self._application.internal_topics if has_all else ()
        for news in [
            *self._sources.look(found), *self._internal.look(self._ours(found), expected), *self._globals.look(found),
        ]:  # fmt: skip
            self._tell(news)

    def close(self) -> None:
        """Ask the thread to end. The caller joins the thread."""
        self.requests.close()


def _look_at(topics: Collection[str] | None) -> Begin[str, dict[str, Described]]:
    return lambda cluster: cluster.start_looking(topics)
