"""One task on its way along its changelogs.

*Guarantees*: a store whose changelog is gone from under its offset, or is another topic of the same name, is rebuilt;
the task's other stores stay. An active task is complete when its position has reached the changelogs' ends as they
were, uncommitted and control records included, when its restoration began; a standby never is. Of a source topic that
serves as changelog neither reads further than the group has committed.
*Assumes*: what was read belongs to `reading()`, in order, read committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import OFFSET_BEGINNING, Message

from milestones.common.errors import StateCorruptError
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.common.testing.faults import reach
from milestones.housekeeper import Bounds

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.common.topology.nodes import SubTopology

log = logging.getLogger(__name__)

KnownEnd = Callable[[TopicPartition], "int | None"]
"""The end of a partition as of its last fetch; None before the first."""


class Restorable(Protocol):
    """What an active task and a standby have in common."""

    id: TaskId
    subtopology: SubTopology

    def changelog_offsets(self) -> dict[str, int | None]: ...
    def changelog_ids(self) -> Mapping[str, str]: ...
    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None: ...
    def restore(self, store: str, batch: list[Message], next_offset: int) -> None: ...
    def clear(self, store: str, reason: object) -> None: ...


class Changelogs:
    """A task and its place in its changelogs. `ends` is None until the changelogs' bounds are known (`begin`).

    `answers` is this object's alone: the answer to an earlier question about the same task would name an end that the
    changelog has outgrown. `asked`: one is under way; `heard_ms`: when the last one came; `failing_since_ms`: since
    when they have been errors. `restored`: records taken so far.
    """

    what_it_does = "restores"

    def __init__(self, task: Restorable, answers: Mailbox[Bounds], now_ms: int) -> None:
        self.task, self.answers = task, answers
        self.stores = {
            TopicPartition(topic, task.id.partition): store for store, topic in task.subtopology.changelogs.items()
        }
        self.asked, self.heard_ms = False, now_ms
        self.failing_since_ms: int | None = None
        self.ends: Mapping[TopicPartition, int] | None = None
        self.positions: dict[TopicPartition, int] = {}
        self.restored = 0

    def begin(self, answer: Bounds) -> None:
        """Where the changelogs begin and end is known: see that the stores fit to them. `StateError`."""
        ends = self._ends({partition: end for partition, (_, end) in answer.bounds.items()})
        self._leave_other_topics(answer.topic_ids)
        offsets = self.task.changelog_offsets()
        for partition, store in self.stores.items():
            offset = offsets[store]
            first, end = answer.bounds[partition]
            if offset is not None and not first <= offset <= end:
                self._clear(partition, f"{partition} has offsets {first} to {end}, the store is at {offset}")
                offset = None
            self.positions[partition] = OFFSET_BEGINNING if offset is None else offset
        self.ends = ends
        missing = {str(partition): count for partition, count in self.missing().items()}
        if missing:
            log.info("task %s %s %s", self.task.id, self.what_it_does, missing)

    def _ends(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return ends

    def other_topics(self, topic_ids: Mapping[str, str]) -> dict[str, str]:
        """By store whose offset is one of a topic that was deleted since, be there another of its name: why."""
        known, offsets = self.task.changelog_ids(), self.task.changelog_offsets()
        ids = {store: id for (topic, _), store in self.stores.items() if (id := topic_ids.get(topic)) is not None}
        return {
            store: f"its topic was deleted and made anew (topic id {known[store]} then, {id} now)"
            for store, id in ids.items()
            if known.get(store, id) != id and offsets[store] is not None
        }

    def _leave_other_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Clear the stores of other topics, then write down which topics are read: in this order, a crash in between
        does no harm."""
        others = self.other_topics(topic_ids)
        for partition, store in self.stores.items():
            if store in others:
                self._clear(partition, f"{partition}: {others[store]}")
        ids = {store: topic_ids[topic] for (topic, _), store in self.stores.items() if topic in topic_ids}
        self.task.keep_changelog_ids(ids)

    def limit(self, partition: TopicPartition) -> int | None:
        """How far the partition may be read, None without limit."""
        return None if self.ends is None else self.ends.get(partition)

    def missing(self) -> dict[TopicPartition, int]:
        """Records still to come up to the ends that are known, by partition that isn't there."""
        if self.ends is None:
            return {}
        return {p: end - at for p, end in self.ends.items() if (at := max(0, self.positions.get(p, 0))) < end}

    def complete(self) -> bool:
        return self.ends is not None and not self.missing()

    def reading(self) -> dict[TopicPartition, int]:
        """The partitions that are to be read now, each from where."""
        return {partition: self.positions[partition] for partition in self.missing()}

    def position(self) -> int:
        """The sum of the stores' offsets."""
        if self.ends is None:
            return sum(offset or 0 for offset in self.task.changelog_offsets().values())
        return sum(max(0, at) for at in self.positions.values())

    def apply(self, partition: TopicPartition, messages: list[Message], position: int) -> bool:
        """Take what was read up to `position`. False: what follows has to be read again, from where `reading` says; as
        it is beyond the limit, or the store was damaged and is empty now."""
        end = self.limit(partition)
        within = True
        if end is not None and position > end:
            within = False
            messages, position = [message for message in messages if (message.offset() or 0) < end], end
        if position <= self.positions[partition]:
            return within
        try:
            self.task.restore(self.stores[partition], messages, position)
        except StateCorruptError as error:
            self._clear(partition, str(error))
            self.positions[partition] = OFFSET_BEGINNING
            return False
        self.positions[partition] = position
        self.restored += len(messages)
        if messages:
            self._took_a_batch()
        return within

    def _took_a_batch(self) -> None:
        """For tests that want to fail here."""

    def _clear(self, partition: TopicPartition, why: str) -> None:
        store = self.stores[partition]
        log.warning("task %s: store %s is rebuilt from its changelog: %s", self.task.id, store, why)
        self.task.clear(store, why)


class ActiveChangelogs(Changelogs):
    """An active task that is restored. `committed`: its inputs' committed offsets."""

    task: Task

    def __init__(
        self, task: Task, answers: Mailbox[Bounds], now_ms: int, committed: Mapping[TopicPartition, int]
    ) -> None:
        super().__init__(task, answers, now_ms)
        self._committed = committed

    def _ends(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self.task.restoration_ends(ends, self._committed)

    def _took_a_batch(self) -> None:
        reach("restore.batch")


class StandbyChangelogs(Changelogs):
    """A standby. `committed`: how far the group is on its source topics that serve as changelogs; unknown ones aren't
    read."""

    task: StandbyTask
    what_it_does = "is a standby now and lacks"

    def __init__(
        self, task: StandbyTask, answers: Mailbox[Bounds], now_ms: int, committed: Mapping[TopicPartition, int]
    ) -> None:
        super().__init__(task, answers, now_ms)
        self.committed = committed

    def limit(self, partition: TopicPartition) -> int | None:
        return self.committed.get(partition, 0) if partition in self.task.source_changelogs else None

    def complete(self) -> bool:
        return False

    def _took_a_batch(self) -> None:
        reach("standby.batch")

    def reading(self) -> dict[TopicPartition, int]:
        if self.ends is None:
            return {}
        limits = {partition: self.limit(partition) for partition in self.stores}
        return {p: at for p, at in self.positions.items() if (limit := limits[p]) is None or max(0, at) < limit}

    def lag(self, known_end: KnownEnd) -> int | None:
        """Records behind the ends as they are known; None before they are. The ends of the beginning count too, as the
        client may remember a partition from an earlier assignment."""
        if self.ends is None or not self.task.source_changelogs <= self.committed.keys():
            return None
        lag = 0
        for partition, at in self.positions.items():
            end = self.limit(partition)
            if end is None:
                end = max(known_end(partition) or 0, self.ends[partition])
            lag += max(0, end - max(0, at))
        return lag
