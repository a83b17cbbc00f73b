"""The requests of a run to Kafka, to plan its passes.

*Guarantees*: of topics that the application itself writes the end is the very end, open transactions included; of
others it is where the first open transaction begins, under exactly once. A batch sees ends that don't move for ever
(`batch_ends`). Committed offsets are asked for after ends: a plan may do too little, never too much.
*Assumes*: one owner thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from milestones.common.assignment.plan import plan_tasks
from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import SourceTopicError
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.login import Login
from milestones.common.kafka.topic_metadata import Described
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.application import Application
from milestones.instance.changelog_trim import ChangelogTrim, Trim, own_limits
from milestones.instance.lost_topics import SECOND_LOOK_MS, refuse_deleted
from milestones.instance.topic_ids import known_ids, refuse_former
from milestones.instance.topic_watch import NewSources, SourceWatch
from milestones.pipeline.driving.batch_ends import BatchEnds
from milestones.pipeline.driving.order import circular_topics, inner_topics

log: Final = logging.getLogger(__name__)

TIMEOUT_MS = 10_000

Inputs = Mapping[TaskId, Collection[TopicPartition]]


class KafkaView:
    """*Owns*: an admin client, a connection to the group's coordinator. `batch`: ends are capped. `history`: URL of an
    archive, or `IN_KAFKA`; None for none."""

    def __init__(
        self, config: StreamsConfig, application: Application, client_id: str, *, batch: bool,
        history: str | None = None,
    ) -> None:  # fmt: skip
        self._config, self._application, self._history = config, application, history
        settings = config.admin_settings(client_id)
        self._cluster = Cluster(settings, login=Login(settings))
        self._group = GroupReader(settings, config.application_id, timeout_ms=TIMEOUT_MS)
        self._inner = inner_topics(application.subtopologies)
        self._batch_ends = BatchEnds(circular_topics(application.subtopologies)) if batch else None
        self._sources = SourceWatch(application)
        additional_ms = config.windowstore_changelog_additional_retention_ms
        self._trim = ChangelogTrim(additional_ms, own_limits(application.subtopologies))
        self._found: Mapping[str, Described] = {}

    def prepare(self) -> None:
        """See that Kafka is there, with the topics that others have to make, those of the archive, and those of the
        application's own that its commits name. `SourceTopicError`."""
        self._found = found = self._cluster.look(None)
        missing = self._application.missing_topics(found)
        if missing is not None:
            raise SourceTopicError(missing)
        sources = frozenset(self._application.external_topics(found))
        self._continue_archive({topic: found[topic] for topic in sources & found.keys()})
        self._sources = SourceWatch(self._application, sources)
        refuse_deleted(
            self._application, sources, self._cluster.seen, self._group.offsets, {},
            lambda: SystemClock().sleep_ms(SECOND_LOOK_MS),
        )  # fmt: skip
        self._sources.look(found)  # from now on a topic that is gone, or was made anew, is news

    def _continue_archive(self, sources: Mapping[str, Described]) -> None:
        """See that the archive is of these topics: it may have been looked at before, and they may be made anew since.
        """
        if self._history is None:
            return
        from milestones.pipeline.backfill.archive import IN_KAFKA, Archive  # its package needs runs
        from milestones.pipeline.backfill.beginning import check_topics

        if self._history != IN_KAFKA:
            check_topics(Archive(self._history).topic_ids(sources), sources, self._history)

    def look(
        self, tasks: Inputs, *, settled: bool
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Of all input partitions of these tasks: where they end, and what is committed, where anything is. `settled`:
        our tasks upstream of these have nothing left."""
        partitions = [partition for inputs in tasks.values() for partition in inputs]
        ours = [partition for partition in partitions if partition.topic in self._inner]
        others = [partition for partition in partitions if partition.topic not in self._inner]
        outer = self._cluster.ends(others, TIMEOUT_MS, committed=self._config.exactly_once)
        inner = self._cluster.ends(ours, TIMEOUT_MS)
        ends = {**outer, **inner} if self._batch_ends is None else self._batch_ends.ends(outer, inner, settled=settled)
        return ends, self.committed(partitions)

    def reopen(self) -> None:
        """The run has new tasks: what they write isn't beyond a batch's end."""
        if self._batch_ends is not None:
            self._batch_ends.reopen()

    def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What is committed of these partitions, where anything is. `SourceTopicError`: of a topic that was deleted and
        made anew since."""
        committed = self._group.offsets(partitions)
        refuse_former(self._found, known_ids(committed, committed), self._application.internal_topics)
        return {at: found.offset for at, found in committed.items()}

    def watch(self) -> frozenset[str]:
        """Topics that a source's pattern matches and that are new. `SourceTopicError`: a source topic is gone, or has
        another number of partitions."""
        new: frozenset[str] = frozenset()
        self._found = self._cluster.look(None)
        for news in self._sources.look(self._found):
            if isinstance(news, NewSources):
                new |= news.topics
            else:
                raise news
        return new

    def everything(self) -> frozenset[TaskId]:
        """All tasks of the application, with any owner."""
        return frozenset(plan_tasks(self._application.subtopologies, self._cluster.partition_counts()).tasks)

    def purge(self, tasks: Inputs) -> None:
        """Delete what is committed of the tasks' repartition topics."""
        internal = self._application.repartition_topics
        partitions = [p for inputs in tasks.values() for p in inputs if p.topic in internal]
        if partitions:
            self._cluster.purge(self.committed(partitions))

    def trim(self, gone: Mapping[TopicPartition, int], wall_ms: int) -> None:
        """Delete what is gone by the stores' times (`Task.gone`) of changelogs that are trimmed."""
        self._trim.take(Trim(gone), wall_ms)
        if times := self._trim.due():
            self._cluster.purge(self._trim.found(times, self._cluster.start_searching(times, committed=False)))

    def close(self) -> None:
        self._group.close()
