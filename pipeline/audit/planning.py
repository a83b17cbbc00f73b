"""Makes the plan of an audit from Kafka's answers.

*Guarantees*: those of `plan.py`. The plan names each part that can't be checked.
*Assumes*: the plan is made in the driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from milestones.common.assignment.plan import TaskPlan, plan_tasks
from milestones.common.config import StreamsConfig
from milestones.common.errors import KafkaUnreachableError, MilestonesError, SourceTopicError
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TaskId, TopicPartition
from milestones.common.topology.nodes import SinkNode
from milestones.flags import parse_milestones
from milestones.instance.application import Application
from milestones.pipeline.audit.plan import AuditedPartition, AuditPlan, FoldJob, StoreRange
from milestones.pipeline.driving.order import inner_topics, levels
from milestones.pipeline.looking import looked_at
from milestones.pipeline.reading import PartitionRange, read

log: Final = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]

DECIDED_S = 60.0
"""How long, in seconds, transactions that are open at the beginning may stay open."""

ALWAYS_EMITS = "committed_collector"
"""The flag of the stages in which caches leave out no output."""

ALL = 1 << 62
"""The end of an input that is read from computed records, which have no offsets."""


@dataclass(frozen=True)
class Seen:
    """Kafka's answers, in the order of the questions."""

    counts: Mapping[str, int]
    first: Offsets
    sure: Offsets
    ends: Offsets
    committed: Offsets
    settings: Mapping[str, Mapping[str, str]]


def plan_audit(application: Application, config: StreamsConfig, work: str, begin: Offsets | None = None) -> AuditPlan:
    """Make the plan of an audit. `counters`: URL of a folder for the records that should be in repartition topics.
    `begin`: the offset at which the application began to read each input partition, 0 by default. Raises
    `SourceTopicError`, `KafkaUnreachableError`, and a `MilestonesError` that says what is missing.
    """
    return looked_at(f"the topics of {application.id}", AuditPlanner(application, config, work, begin or {}).plan)


class AuditPlanner:
    """*Owns*: an admin client, a connection to the group's coordinator."""

    def __init__(self, application: Application, config: StreamsConfig, work: str, begin: Offsets) -> None:
        self._application, self._config, self._work, self._begin = application, config, work, begin
        name = f"{application.id}-audit"
        self._cluster = Cluster(config.admin_settings(name))
        self._consumer = config.restore_consumer_settings(name)
        self._inner = inner_topics(application.subtopologies)
        self._cached = config.statestore_cache_max_bytes > 0
        self._thins_out = self._cached and ALWAYS_EMITS not in parse_milestones(config.milestones)

    def plan(self) -> AuditPlan:
        counts = self._cluster.partition_counts()
        tasks = plan_tasks(self._application.subtopologies, counts)
        if tasks.error is not None:
            raise SourceTopicError(tasks.error)
        seen = self._look(tasks, counts)
        purged = {
            topic
            for topic in self._application.repartition_topics
            if any(seen.first[at] > 0 for at in _partitions([topic], counts))
        }
        live = any(seen.committed.get(at, 0) != offset for at, offset in seen.sure.items())
        skipped = self._skipped(tasks, seen, purged, live=live)
        self._check_history(tasks, seen, purged)
        order = levels(self._application.subtopologies)
        jobs = {level: self._jobs(tasks, seen, purged, [s for s in level if s not in skipped]) for level in order}
        return AuditPlan(
            levels=tuple(tuple(jobs[level]) for level in order if jobs[level]),
            outputs=self._outputs(seen, purged),
            doubts=self._doubts(tasks, seen, purged),
            skipped=skipped,
            notes=tuple(self._notes(seen, purged)),
            live=live,
            untimed=frozenset(
                topic for topic, at in seen.settings.items() if at["message.timestamp.type"] == "LogAppendTime"
            ),
            upserted=frozenset(self._upserted(counts)),
        )

    # -- what Kafka says

    def _look(self, tasks: TaskPlan, counts: Mapping[str, int]) -> Seen:
        """Ask Kafka for offsets, in the order on which the plan's guarantees depend."""
        inputs = {at for partitions in tasks.tasks.values() for at in partitions}
        changelogs = {at for logs in tasks.changelogs.values() for at in logs}
        missing = sorted({at.topic for at in changelogs} - counts.keys())
        if missing:
            raise SourceTopicError(f"changelog topics don't exist: {', '.join(missing)}; has the application run?")
        written = set(_partitions(self._written(counts), counts))
        sure = self._stable(inputs)
        if not sure:
            raise MilestonesError(
                f"the group {self._application.id} has committed nothing: has the application run, under this id?"
            )
        ends = self._decided(written | changelogs)
        committed = self._stable(inputs) if self._config.exactly_once else self._cluster.ends(inputs, 10_000)
        bounds = self._cluster.bounds(inputs | written | changelogs, committed=False)
        topics = {at.topic for at in inputs | written}
        return Seen(
            counts, {at: first for at, (first, _) in bounds.items()}, sure, ends, committed,
            self._cluster.topic_settings(topics),
        )  # fmt: skip

    def _written(self, counts: Mapping[str, int]) -> set[str]:
        """Return the topics that the application writes to, without changelogs. If a function chooses the topic, these
        are all topics that it may choose.
        """
        application = self._application
        topics = {topic for sub in application.subtopologies for topic in sub.sink_topics}
        sinks = (node for sub in application.subtopologies for node in sub.nodes if isinstance(node, SinkNode))
        if any(callable(sink.topic) for sink in sinks):
            changelogs = {topic for sub in application.subtopologies for topic in sub.changelogs.values()}
            read_only = {topic for sub in application.subtopologies for topic in sub.source_topics}
            topics |= {topic for topic in counts if not topic.startswith("__")} - changelogs - read_only
        return topics & counts.keys()

    def _upserted(self, counts: Mapping[str, int]) -> set[str]:
        """Return the topics that an upsert sink writes to. If a function chooses the topic, these are all topics that
        it may choose.
        """
        sinks = [node for sub in self._application.subtopologies for node in sub.nodes if isinstance(node, SinkNode)]
        topics = {sink.topic for sink in sinks if sink.upserts}
        named = {topic for topic in topics if isinstance(topic, str)}
        return named if len(named) == len(topics) else self._written(counts)

    def _stable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        reader = GroupReader(
            self._config.admin_settings(f"{self._application.id}-audit"), self._application.id,
            timeout_ms=int(DECIDED_S * 1000),
        )  # fmt: skip
        try:
            return {at: found.offset for at, found in reader.stable(partitions).items()}
        finally:
            reader.close()

    def _decided(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Wait until all transactions in these topics have ended, and return the ends. (Kafka answers EndTxn before the
        markers are written.)
        """
        wanted = self._cluster.ends(partitions, 10_000)
        deadline = time.monotonic() + DECIDED_S
        while True:
            ends = {at: end for at, (_, end) in self._cluster.bounds(partitions, committed=True).items()}
            open_ = sorted(str(at) for at, end in wanted.items() if ends[at] < end)
            if not open_:
                return ends
            if time.monotonic() > deadline:
                raise KafkaUnreachableError(
                    f"transactions on {', '.join(open_[:5])} have been open for {DECIDED_S:.0f} s: their producers "
                    "hang; wait for transaction.timeout.ms, or end them with kafka-transactions"
                )
            time.sleep(0.05)

    # -- what can be judged

    def _check_history(self, tasks: TaskPlan, seen: Seen, purged: Collection[str]) -> None:
        for at in sorted({at for partitions in tasks.tasks.values() for at in partitions if at.topic not in purged}):
            begin, first = self._begin.get(at, 0), seen.first[at]
            if first > begin:
                raise MilestonesError(
                    f"input {at} begins at offset {first} now, and the application began at {begin}: what it did with "
                    "the records between can't be known any more. If it began later, say where (--begin "
                    f"{at}=OFFSET); else audit earlier than retention removes the input"
                )

    def _skipped(self, tasks: TaskPlan, seen: Seen, purged: set[str], *, live: bool) -> dict[int, str]:
        """Return the sub-topologies that can't be checked: they read a purged topic that still has unprocessed records.
        It isn't known how many of the deleted records they have processed.
        """
        found: dict[int, str] = {}
        for task, partitions in tasks.tasks.items():
            gone = [at for at in partitions if at.topic in purged]
            if gone and (live or any(self._left(at, seen) for at in gone)):
                found[task.subtopology] = (
                    f"{gone[0].topic} was purged while it is in use: what was processed of it can't be told; "
                    "let the application process all of its input first"
                )
        return found

    def _left(self, at: TopicPartition, seen: Seen) -> bool:
        """True if there is an unprocessed record; control records don't count."""
        (_, end), begin = self._cluster.bounds([at], committed=False)[at], seen.sure.get(at, 0)
        return any(batch for batch in read(self._consumer, at, max(begin, seen.first[at]), end))

    def _doubts(self, tasks: TaskPlan, seen: Seen, purged: set[str]) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = {}
        for sub in self._application.subtopologies:
            doubts = found.setdefault(sub.id, [])
            partitions = [at for task, at in tasks.tasks.items() if task.subtopology == sub.id]
            if sub.stores and any(len(each) > 1 for each in partitions):
                doubts.append("its tasks read several partitions, in an order that isn't recorded")
            if sum(spec.duplicates for spec in sub.stores) > 1:
                doubts.append("after a restart its stores of duplicates go on above one another's numbers")
            for topic in sorted({at.topic for each in partitions for at in each}):
                if topic in purged:
                    doubts.append(f"{topic} was purged: the order of its records is lost")
                elif "compact" in seen.settings[topic]["cleanup.policy"]:
                    doubts.append(f"{topic} is compacted: what compaction has removed was processed all the same")
            if self._thins_out and any(spec.cached for spec in sub.stores):
                doubts.append("its caches emit the last update per key and commit (statestore_cache_max_bytes)")
        return {id: tuple(doubts) for id, doubts in found.items() if doubts}

    def _notes(self, seen: Seen, purged: set[str]) -> Iterable[str]:
        for topic in sorted(self._written(seen.counts) - purged):
            first = {at: seen.first[at] for at in _partitions([topic], seen.counts) if seen.first[at]}
            if first:
                at, offset = next(iter(first.items()))
                yield f"{at} begins at offset {offset}: outputs before that are gone, and are told as lost"
            if "compact" in seen.settings[topic]["cleanup.policy"]:
                yield f"{topic} is compacted: outputs that compaction has removed are told as lost"
        subs = self._application.subtopologies
        loose = sorted(spec.name for sub in subs for spec in sub.stores if spec.name not in sub.changelogs)
        if loose:
            yield f"stores without a changelog can't be looked at: {', '.join(loose)}"
        if self._cached and not self._thins_out and any(spec.cached for sub in subs for spec in sub.stores):
            yield (
                "at this stage every update is emitted: what an earlier one, or a run on Spark, left to its caches "
                "(statestore_cache_max_bytes) is told as lost; name that stage (milestones) to audit it"
            )

    # -- jobs

    def _jobs(self, tasks: TaskPlan, seen: Seen, purged: set[str], subs: Collection[int]) -> list[FoldJob]:
        found = []
        for task, partitions in sorted(tasks.tasks.items()):
            if task.subtopology in subs:
                sources = tuple(self._source(at, seen, purged) for at in sorted(partitions))
                stores = tuple(self._stores(tasks, task, seen, {at for each in tasks.tasks.values() for at in each}))
                found.append(FoldJob(task, sources, stores, seen.counts, self._consumer))
        return sorted(found, key=lambda job: -job.size)

    def _source(self, at: TopicPartition, seen: Seen, purged: set[str]) -> AuditedPartition:
        if at.topic in purged:
            return AuditedPartition(at, 0, ALL, ALL, computed=self._work)
        begin = self._begin.get(at, seen.first[at])
        sure = max(begin, seen.sure.get(at, begin))
        # Under `at_least_once`, outputs are visible before their offsets: once some input was committed, all may count.
        return AuditedPartition(at, begin, sure, max(sure, seen.committed.get(at, begin)))

    def _stores(
        self, tasks: TaskPlan, task: TaskId, seen: Seen, inputs: Collection[TopicPartition]
    ) -> Iterable[StoreRange]:
        sub = self._application.subtopology(task.subtopology)
        for spec in sub.stores:
            at = TopicPartition(sub.changelogs.get(spec.name, ""), task.partition)
            if at in tasks.changelogs.get(task, ()) and at not in inputs:
                yield StoreRange(spec.bare, at, seen.first[at], seen.ends[at])

    def _outputs(self, seen: Seen, purged: set[str]) -> tuple[PartitionRange, ...]:
        topics = self._written(seen.counts) - purged
        return tuple(
            PartitionRange(at, seen.first[at], seen.ends[at], self._consumer)
            for at in sorted(_partitions(sorted(topics), seen.counts))
        )


def _partitions(topics: Iterable[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]
