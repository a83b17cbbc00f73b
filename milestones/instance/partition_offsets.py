"""Answers the questions of many tasks about the first offsets and ends of partitions, together.

    questions that came together --describe their topics--> by leader --ListOffsets to each--> answers

*Guarantees*: `run_once` waits for `wait_ms` at most, and no other call waits. Questions that come together share their
requests. A leader that doesn't answer delays only questions about its partitions. Each question is answered once, by an
error after `ANSWER_MS` at the latest.
*Assumes*: driven by the thread that owns the cluster.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.kafka.answers import id_of, told
from milestones.common.kafka.topic_metadata import Described
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Node

    from milestones.common.kafka.topics import Cluster

ANSWER_MS = 15_000
"""The longest time to an answer. The time-out of a request is shorter. This limit is for requests that the Kafka client
has lost."""

ALONE_MS = 2_000
"""The longest time for which questions wait for the topic descriptions of earlier questions, so that later questions
are asked together. Descriptions are the larger answers: those of thousands of partitions take seconds of work."""


@dataclass(frozen=True)
class AskBounds:
    """The question for the present first offsets and ends of these partitions. With `committed`, a partition ends where
    its first open transaction begins; otherwise after its last record, uncommitted and control records included. With
    `topic_ids`, the answer has the ids of the topics too. `since`: for each of these partitions the answer also has the
    offset of the first record with this time (ms) or a later one.
    """

    task: TaskId
    partitions: frozenset[TopicPartition]
    reply_to: Mailbox[Bounds]
    committed: bool = False
    topic_ids: bool = False
    since: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """The answer to `AskBounds`: first offset and end by partition, or Kafka's error. `topic_ids`: the id by topic, if
    the question asked for ids and Kafka has one. `since`: the first offset with the requested time or a later one, or
    the end if all records are older."""

    task: TaskId
    bounds: Mapping[TopicPartition, tuple[int, int]]
    error: Exception | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[TopicPartition, int] = field(default_factory=dict)


Unfit = Callable[[Mapping[str, Described]], Mapping[str, Exception]]
"""Takes topics as Kafka has described them; returns the errors, by name, of topics that no question may be about."""


class BoundsDesk:
    """Answers questions about bounds. *Owns*: the open questions. *Receives*: `AskBounds`. *Sends*: `Bounds`."""

    def __init__(self, unfit: Unfit = lambda _: {}) -> None:
        self._unfit = unfit
        self._waiting: list[AskBounds] = []
        self._bundles: list[_Bundle] = []

    def __bool__(self) -> bool:
        return bool(self._bundles or self._waiting)

    def ask(self, questions: Collection[AskBounds]) -> None:
        """Accept these questions. `run_once` sends them to Kafka."""
        self._waiting += questions

    def run_once(self, cluster: Cluster, now_ms: int, wait_ms: int) -> None:
        """Send waiting questions to Kafka, wait for an answer for `wait_ms` at most, and pass the answers on."""
        if self._waiting and not any(bundle.describes_since(now_ms) < ALONE_MS for bundle in self._bundles):
            self._bundles.append(_Bundle(cluster, self._waiting, now_ms, self._unfit))
            self._waiting = []
        if not self._bundles:
            return
        wait([bundle.next() for bundle in self._bundles], wait_ms / 1000, "FIRST_COMPLETED")
        failed = [error for bundle in self._bundles if (error := bundle.run_once(cluster, now_ms)) is not None]
        self._bundles = [bundle for bundle in self._bundles if bundle.open]
        if failed:
            cluster.renew_after(failed[0])


class _Bundle:
    """Questions that came together. `open`: those without an answer."""

    def __init__(self, cluster: Cluster, questions: Collection[AskBounds], now_ms: int, unfit: Unfit) -> None:
        self.open = {id(question): question for question in questions}
        self._began_ms, self._unfit = now_ms, unfit
        self._client = cluster.client  # kept, as a client answers only while it lives
        self._topics = cluster.start_describing({at.topic for question in questions for at in question.partitions})
        self._ids: dict[str, str] = {}
        self._waits: dict[int, list[Future[Any]]] = {}
        self._firsts: dict[tuple[bool, TopicPartition], Future[Any]] = {}
        self._ends: dict[tuple[bool, TopicPartition], Future[Any]] = {}
        self._since: dict[int, Mapping[TopicPartition, Future[Any]]] = {}
        self._listed = False

    def describes_since(self, now_ms: int) -> float:
        """The time for which the topics' descriptions have been awaited; infinite once they have come."""
        return math.inf if self._listed else now_ms - self._began_ms

    def next(self) -> Future[Any]:
        """A request whose answer the next step needs."""
        pending = self._topics.values() if not self._listed else (futures[-1] for futures in self._waits.values())
        return next((future for future in pending if not future.done()), _done())

    def run_once(self, cluster: Cluster, now_ms: int) -> KafkaException | None:
        """Process the answers and make the next requests. Returns an error if there is one among the answers."""
        errors: list[KafkaException] = []
        if not self._listed and all(future.done() for future in self._topics.values()):
            errors += self._list(cluster)
            self._listed = True
        if self._listed:
            errors += self._answer()
        if now_ms - self._began_ms >= ANSWER_MS:
            late = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer about where partitions begin and end"))
            for question in self.open.values():
                _refused(question, late)
            self.open = {}
        return errors[0] if errors else None

    def _list(self, cluster: Cluster) -> Iterator[KafkaException]:
        """Ask each leader about all its partitions."""
        leaders, failed = self._leaders()
        groups: dict[tuple[int, bool], set[TopicPartition]] = defaultdict(set)
        for question in list(self.open.values()):
            error = next((failed[at.topic] for at in question.partitions if at.topic in failed), None)
            if error is None and not question.partitions <= leaders.keys():
                at = min(question.partitions - leaders.keys())
                error = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"{at} has no leader now"))
            if error is not None:
                self._refuse(question, error)
                if isinstance(error, KafkaException):
                    yield error
                continue
            for at in question.partitions:
                groups[leaders[at], question.committed].add(at)
        self._client = cluster.client  # may be another client than the one that described the topics
        for (_, committed), partitions in groups.items():
            firsts = cluster.start_listing(partitions, end=False)
            ends = cluster.start_listing(partitions, end=True, committed=committed)
            self._firsts |= {(committed, at): future for at, future in firsts.items()}
            self._ends |= {(committed, at): future for at, future in ends.items()}
        for question in self.open.values():
            asked = [(question.committed, at) for at in question.partitions]
            since = self._since[id(question)] = (
                cluster.start_searching(question.since, committed=question.committed) if question.since else {}
            )
            bounds = [futures[at] for at in asked for futures in (self._firsts, self._ends)]
            self._waits[id(question)] = [*bounds, *since.values()]

    def _leaders(self) -> tuple[dict[TopicPartition, int], dict[str, Exception]]:
        leaders: dict[TopicPartition, int] = {}
        failed: dict[str, Exception] = {}
        found: dict[str, Described] = {}
        for topic, future in self._topics.items():
            try:
                described = future.result()
            except KafkaException as exception:
                failed[topic] = exception
                continue
            found[topic] = Described(len(described.partitions), id := id_of(described))
            if id is not None:
                self._ids[topic] = id
            nodes: dict[int, Node | None] = {one.id: one.leader for one in described.partitions}
            leaders |= {TopicPartition(topic, at): node.id for at, node in nodes.items() if node is not None}
        return leaders, {**failed, **self._unfit(found)}

    def _answer(self) -> Iterator[KafkaException]:
        for question in list(self.open.values()):
            waits = self._waits[id(question)]
            while waits and waits[-1].done():
                waits.pop()
            if waits:
                continue
            key = question.committed
            try:
                bounds = {
                    at: (told(at, self._firsts[key, at]), told(at, self._ends[key, at])) for at in question.partitions
                }
                found = {at: told(at, future) for at, future in self._since[id(question)].items()}
            except KafkaException as exception:
                self._refuse(question, exception)
                yield exception
                continue
            self._settled(question)
            since = {at: bounds[at][1] if offset < 0 else offset for at, offset in found.items()}
            ids = {at.topic: self._ids[at.topic] for at in question.partitions if at.topic in self._ids}
            question.reply_to.try_put(Bounds(question.task, bounds, None, ids if question.topic_ids else {}, since))

    def _refuse(self, question: AskBounds, error: Exception) -> None:
        self._settled(question)
        _refused(question, error)

    def _settled(self, question: AskBounds) -> None:
        del self.open[id(question)]
        self._waits.pop(id(question), None)
        self._since.pop(id(question), None)


def _refused(question: AskBounds, error: Exception) -> None:
    question.reply_to.try_put(Bounds(question.task, {}, error))


def _done() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(None)
    return future


def bounds_of(cluster: Cluster, asked: AskBounds) -> Bounds:
    """Ask Kafka about these partitions, and wait for the answer. For threads without a housekeeper."""
    try:
        bounds = cluster.bounds(asked.partitions, committed=asked.committed)
        ids = cluster.topic_ids({partition.topic for partition in asked.partitions}) if asked.topic_ids else {}
        found = cluster.search(asked.since, committed=asked.committed)
        since = {at: bounds[at][1] if offset < 0 else offset for at, offset in found.items()}
        return Bounds(asked.task, bounds, None, ids, since)
    except (KafkaException, MilestonesError) as error:
        return Bounds(asked.task, {}, error)
