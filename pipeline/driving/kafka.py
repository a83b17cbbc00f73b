"""Makes the requests to Kafka that a run needs to plan its passes.

*Guarantees*: for topics that the application itself writes, the end includes open transactions. For other topics under
`exactly_once_v2`, it is the beginning of the first open transaction. A batch gets final ends (`batch_ends`). Committed
offsets are asked for after ends, so that a plan may have too few records but never too many.
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
    archive, or `IN_KAFKA`, or None.
    """

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
        """Raise an error unless Kafka answers and has all needed topics: the external ones, those of the archive, and
        the internal ones that earlier commits name. `SourceTopicError`.
        """
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
        self._sources.look(found)  # later looks report a topic that is gone or was made anew

    def _continue_archive(self, sources: Mapping[str, Described]) -> None:
        """Raise an error unless the archive belongs to the present topics. They may have been made anew since the
        archive was last checked.
        """
        if self._history is None:
            return
        from milestones.pipeline.backfill.archive import IN_KAFKA, Archive  # not at the top: a circular import
        from milestones.pipeline.backfill.beginning import check_topics

        if self._history != IN_KAFKA:
            check_topics(Archive(self._history).topic_ids(sources), sources, self._history)

    def look(
        self, tasks: Inputs, *, settled: bool
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Return the end of each input partition of these tasks, and the committed offset of each partition that has
        one. `settled`: True if the run's upstream tasks have finished.
        """
        partitions = [partition for inputs in tasks.values() for partition in inputs]
        ours = [partition for partition in partitions if partition.topic in self._inner]
        others = [partition for partition in partitions if partition.topic not in self._inner]
        outer = self._cluster.ends(others, TIMEOUT_MS, committed=self._config.exactly_once)
        inner = self._cluster.ends(ours, TIMEOUT_MS)
        ends = {**outer, **inner} if self._batch_ends is None else self._batch_ends.ends(outer, inner, settled=settled)
        return ends, self.committed(partitions)

    def reopen(self) -> None:
        """Make the batch's ends not final, because the run has new tasks whose outputs belong to the batch, too."""
        if self._batch_ends is not None:
            self._batch_ends.reopen()

    def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the committed offset of each partition that has one. Raises a `SourceTopicError` if a topic was
        deleted and made anew since the commit.
        """
        committed = self._group.offsets(partitions)
        refuse_former(self._found, known_ids(committed, committed), self._application.internal_topics)
        return {at: found.offset for at, found in committed.items()}

    def watch(self) -> frozenset[str]:
        """Return the new topics that a source's pattern matches. Raises a `SourceTopicError` if a source topic is gone,
        or its number of partitions has changed.
        """
        new: frozenset[str] = frozenset()
        self._found = self._cluster.look(None)
        for news in self._sources.look(self._found):
            if isinstance(news, NewSources):
                new |= news.topics
            else:
                raise news
        return new

    def everything(self) -> frozenset[TaskId]:
        """Return all tasks of the application, including those of other members."""
        return frozenset(plan_tasks(self._application.subtopologies, self._cluster.partition_counts()).tasks)

    def purge(self, tasks: Inputs) -> None:
        """Delete the committed records from the repartition topics that the tasks read."""
        internal = self._application.repartition_topics
        partitions = [p for inputs in tasks.values() for p in inputs if p.topic in internal]
        if partitions:
            self._cluster.purge(self.committed(partitions))

    def trim(self, gone: Mapping[TopicPartition, int], wall_ms: int) -> None:
        """Delete changelog records whose rows have expired by the stores' times (`Task.gone`), where changelogs are
        trimmed.
        """
        self._trim.take(Trim(gone), wall_ms)
        if times := self._trim.due():
            self._cluster.purge(self._trim.found(times, self._cluster.start_searching(times, committed=False)))

    def close(self) -> None:
        self._group.close()
