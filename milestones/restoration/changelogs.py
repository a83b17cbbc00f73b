"""`Changelogs`: one task's changelogs, their bounds, and the task's positions in them.

*Guarantees*: a store is rebuilt if its offset is outside of its changelog, or if its changelog is another topic of the
same name; the task's other stores stay. An active task is complete when it has reached the ends that its changelogs had
when its restoration began. Uncommitted and control records count in these ends. A standby is never complete. If a
source topic serves as changelog, no task reads it further than the group has committed.
*Assumes*: the messages belong to partitions of `reading()`, and come in order, read committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final

from confluent_kafka import OFFSET_BEGINNING, Message

from milestones.common.errors import StateCorruptError
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, StoreId, TopicPartition
from milestones.common.state.spec import is_trimmed
from milestones.common.testing.faults import reach
from milestones.instance.admin_thread import Bounds
from milestones.instance.listeners import SuspendReason
from milestones.restoration.snapshot_ingestion import ingest

if TYPE_CHECKING:
    from milestones.common.state.refusals import Refusals
    from milestones.common.state.snapshots.repository import LocalSnapshot
    from milestones.common.task.changelog_task import ChangelogTask
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.listeners import Listeners
    from milestones.instance.snapshot_fetcher import Fetching

log: Final = logging.getLogger(__name__)

DONE = object()

EMPTIED: Final = (
    "task %s: store %s begins empty: all of its changelog %s up to offset %d was deleted, by its brokers or by hand, "
    "as the application never deletes the newest records. Windows that were open then lack earlier records. Check that "
    "retention.ms and retention.bytes of the topic are -1"
)

KnownEnd = Callable[[TopicPartition], "int | None"]
"""Returns the end of a partition that its last fetch reported; None before the first fetch."""


class Changelogs:
    """A task and its positions in its changelogs. `ends` is None until the changelogs' bounds are known (`begin`).

    `answers` is a mailbox of this object alone. In a shared mailbox, an earlier answer about the same task could name
    an end that the changelog has outgrown. `asked`: True while a question is under way. `heard_ms`: the time of the
    last answer. `failing_since_ms`: the time since which all answers have been errors. `fetching`: the request for
    snapshots. `restored`: the number of records taken so far; `counts`: the same for each partition. `refused`: the
    refusals of a busy engine; the records that wait for it are written once more at `again_ms`.
    """

    answers: Mailbox[Bounds]
    asked: bool
    heard_ms: int
    task: ChangelogTask

    what_it_does = "restores"

    def __init__(self, task: ChangelogTask, answers: Mailbox[Bounds], now_ms: int, listeners: Listeners) -> None:
        self.task, self.answers, self._listeners = task, answers, listeners
        self.stores: dict[TopicPartition, str] = {
            TopicPartition(topic, task.id.partition): store for store, topic in task.subtopology.changelogs.items()
        }
        self._trimmed = frozenset(spec.name for spec in task.subtopology.stores if is_trimmed(spec))
        self.asked, self.heard_ms = False, now_ms
        self.failing_since_ms: int | None = None
        self.ends: Mapping[TopicPartition, int] | None = None
        self.positions: dict[TopicPartition, int] = {}
        self.counts: dict[TopicPartition, int] = dict.fromkeys(self.stores, 0)
        self._done: set[TopicPartition] | None = None
        self.fetching: Fetching | None = None
        self._snapshots: dict[str, LocalSnapshot] = {}
        self._beginning: Generator[object, None, None] | None = None
        self.refused: Refusals | None = None
        self.again_ms = 0

    @property
    def restored(self) -> int:
        return sum(self.counts.values())

    @property
    def preparing(self) -> bool:
        """True while snapshots are downloaded or loaded, so that it isn't known yet where reading begins."""
        return self.fetching is not None or self._beginning is not None

    @property
    def ingesting(self) -> bool:
        """True if `advance` has a step to do."""
        return self._beginning is not None

    def brought(self, now_ms: int) -> bool:
        """Return True if the request for snapshots was answered or given up."""
        if self.fetching is None:
            return False
        found = self.fetching.take(now_ms)
        if found is not None:
            self.fetching, self._snapshots = None, dict(found)
        return found is not None

    def begin(self, answer: Bounds) -> None:
        """Take the changelogs' bounds, and take the first step of what follows: clear stores that don't fit, and load
        snapshots. Raises `StateError`."""
        self._beginning = self._begin(answer)
        self.advance()

    def advance(self) -> None:
        """Take the next step of the work that `begin` began. Raises `StateError`."""
        if self._beginning is not None and next(self._beginning, DONE) is DONE:
            self._beginning = None

    def _begin(self, answer: Bounds) -> Generator[object, None, None]:
        ends = self._ends({partition: end for partition, (_, end) in answer.bounds.items()})
        self._leave_other_topics(answer.topic_ids)
        offsets = self.task.changelog_offsets()
        for partition, store in self.stores.items():
            offset = offsets[store]
            first, end = answer.bounds[partition]
            if offset is not None and not first <= offset <= end:
                self.clear(partition, f"{partition} has offsets {first} to {end}, the store is at {offset}")
        for partition, store in self.stores.items():
            if store in self._snapshots:
                where = answer.topic_ids.get(partition.topic), answer.bounds[partition][0], ends[partition]
                yield from ingest(self.task, store, self._snapshots.pop(store), *where)
        self._start(answer, ends)

    def _start(self, answer: Bounds, ends: Mapping[TopicPartition, int]) -> None:
        offsets = self.task.changelog_offsets()
        for partition, store in self.stores.items():
            first, end = answer.bounds[partition]
            offset = offsets[store]
            if offset is None and 0 < first == end and store in self._trimmed:
                log.warning(EMPTIED, self.task.id, store, partition, end)
            # A number, not `OFFSET_BEGINNING`: for this constant the client would have to ask Kafka, and it waits half
            # a second when it can't ask yet. A changelog with nothing left to read is read all the same, as lags come
            # from the store's offset.
            beginning = first if first < end else OFFSET_BEGINNING
            self.positions[partition] = beginning if offset is None else offset
        self.ends = ends
        missing = {str(partition): count for partition, count in self.missing().items()}
        if missing:
            log.info("task %s %s %s", self.task.id, self.what_it_does, missing)
        self._done = set()
        for partition in self.stores:
            self._began(partition)
        self._note_ends()

    def give_up(self) -> None:
        """Delete the snapshots that are downloaded or loaded, because the task leaves. A store with a part of a
        snapshot has no offset. Such a store is emptied when it is next opened, so the task's stores must be closed."""
        if self.fetching is not None:
            self.fetching.close()
        if self._beginning is not None:
            self._beginning.close()
            self.task.reusable = False
        for snapshot in self._snapshots.values():
            snapshot.remove()
        self.fetching, self._beginning, self._snapshots = None, None, {}

    def _ends(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return ends

    def other_topics(self, topic_ids: Mapping[str, str]) -> dict[str, str]:
        """Return the stores whose offset belongs to a topic that was deleted since, each with the reason."""
        known, offsets = self.task.changelog_ids(), self.task.changelog_offsets()
        return {
            store: f"its topic was deleted and made anew (topic id {known[store]} then, {id} now)"
            for store, id in self._ids(topic_ids).items()
            if known.get(store, id) != id and offsets[store] is not None
        }

    def _leave_other_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Clear the stores of deleted topics, then write down the ids of the present topics. In this order a crash
        between the two does no harm."""
        others = self.other_topics(topic_ids)
        for partition, store in self.stores.items():
            if store in others:
                self.clear(partition, f"{partition}: {others[store]}")
        self.task.keep_changelog_ids(self._ids(topic_ids))

    def _ids(self, topic_ids: Mapping[str, str]) -> dict[str, str]:
        """Return the topic ids by store, as far as Kafka has reported them."""
        return {store: topic_ids[topic] for (topic, _), store in self.stores.items() if topic in topic_ids}

    def limit(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which the partition may be read; None if there is no limit."""
        return None if self.ends is None else self.ends.get(partition)

    def missing(self) -> dict[TopicPartition, int]:
        """Return the number of records up to the known end, for each partition that hasn't reached its end."""
        if self.ends is None:
            return {}
        return {p: end - at for p, end in self.ends.items() if (at := max(0, self.positions.get(p, 0))) < end}

    def complete(self) -> bool:
        return self.ends is not None and not self.missing() and not self.task.unwritten

    def reading(self) -> dict[TopicPartition, int]:
        """Return the partitions to read now, each with the offset to read next; none while the engine is busy."""
        if self.task.unwritten:
            return {}
        return {partition: self.positions[partition] for partition in self.missing()}

    def position(self) -> int:
        """Return the sum of the stores' offsets."""
        if self.ends is None:
            return self.task.position()
        return sum(max(0, at) for at in self.positions.values())

    def apply(self, partition: TopicPartition, messages: list[Message], position: int) -> bool:
        """Apply the messages that were read up to `position`. Returns False if the records after the offset in
        `reading` must be read once more: they are beyond the limit, or the store was damaged and is empty now. If
        another store is damaged, applies nothing and raises `StateCorruptError`."""
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
            if error.damaged - {StoreId(self.task.id, self.stores[partition])}:
                raise  # the error is about another store, whose writes had waited for the disk
            self.clear(partition, str(error))
            self.positions[partition] = OFFSET_BEGINNING
            return False
        self.positions[partition] = position
        self.counts[partition] += len(messages)
        if messages:
            self._took_a_batch(partition, messages)
        self._note_ends()
        return within

    def lose_ends(self, answers: Mailbox[Bounds]) -> None:
        """Forget the changelogs' bounds; the next answer comes to `answers`."""
        self.ends, self.answers = None, answers

    def suspended(self, *, recycled: bool = False) -> None:
        """Report to the listener that the restoration or the standby ends early. `recycled`: True if the task changes
        its role."""
        if self._done is not None:
            for partition in self.stores.keys() - self._done:
                self._suspended(partition, recycled)
        self._done = None

    def _began(self, partition: TopicPartition) -> None: ...

    def _took_a_batch(self, partition: TopicPartition, messages: list[Message]) -> None: ...

    def _note_ends(self) -> None: ...

    def _suspended(self, partition: TopicPartition, recycled: bool) -> None: ...

    def clear(self, partition: TopicPartition, why: str) -> None:
        """Empty the partition's store. `why` is the reason, for the log."""
        store = self.stores[partition]
        log.warning("task %s: store %s is rebuilt from its changelog: %s", self.task.id, store, why)
        self.task.clear(store, why)


class ActiveChangelogs(Changelogs):
    """The changelogs of an active task. `committed`: its inputs' committed offsets."""

    task: Task

    def __init__(
        self,
        task: Task,
        answers: Mailbox[Bounds],
        now_ms: int,
        listeners: Listeners,
        committed: Mapping[TopicPartition, int],
    ) -> None:
        super().__init__(task, answers, now_ms, listeners)
        self._committed = committed

    def _ends(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self.task.restoration_ends(ends, self._committed)

    def lose_ends(self, answers: Mailbox[Bounds]) -> None:
        self.suspended()
        super().lose_ends(answers)

    def _began(self, partition: TopicPartition) -> None:
        listeners, at = self._listeners, max(0, self.positions[partition])
        end = (self.ends or {}).get(partition, at)
        listeners.tell(listeners.restore.on_restore_start, partition, self.stores[partition], at, end)

    def _took_a_batch(self, partition: TopicPartition, messages: list[Message]) -> None:
        reach("restore.batch")
        listeners, last = self._listeners, messages[-1].offset() or 0
        listeners.tell(listeners.restore.on_batch_restored, partition, self.stores[partition], last, len(messages))

    def _note_ends(self) -> None:
        done, listeners = self._done, self._listeners
        if done is None or self.ends is None or len(done) == len(self.stores):
            return
        for partition in self.stores.keys() - done - self.missing().keys():
            done.add(partition)
            store, count = self.stores[partition], self.counts[partition]
            listeners.tell(listeners.restore.on_restore_end, partition, store, count)

    def _suspended(self, partition: TopicPartition, recycled: bool) -> None:
        listeners, count = self._listeners, self.counts[partition]
        listeners.tell(listeners.restore.on_restore_suspended, partition, self.stores[partition], count)


class StandbyChangelogs(Changelogs):
    """The changelogs of a standby. `committed`: the group's committed offsets. If a source topic serves as changelog,
    partitions of this topic without a committed offset aren't read."""

    committed: Mapping[TopicPartition, OffsetAndMetadata]

    task: StandbyTask
    what_it_does = "is a standby now and lacks"

    def __init__(
        self,
        task: StandbyTask,
        answers: Mailbox[Bounds],
        now_ms: int,
        listeners: Listeners,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        known_end: KnownEnd,
    ) -> None:
        super().__init__(task, answers, now_ms, listeners)
        self._known_end = known_end
        self.know(committed)

    def know(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take the offsets that the group has committed."""
        self.committed = committed
        self.task.know(committed)

    def limit(self, partition: TopicPartition) -> int | None:
        if partition not in self.task.source_changelogs:
            return None
        return self.committed[partition].offset if partition in self.committed else 0

    def complete(self) -> bool:
        return False

    def _began(self, partition: TopicPartition) -> None:
        listeners, at = self._listeners, max(0, self.positions[partition])
        listeners.tell(listeners.standby.on_update_start, partition, self.stores[partition], at)

    def _took_a_batch(self, partition: TopicPartition, messages: list[Message]) -> None:
        reach("standby.batch")
        listeners, last = self._listeners, messages[-1].offset() or 0
        listeners.tell(
            listeners.standby.on_batch_loaded,
            partition, self.stores[partition], self.task.id, last, len(messages), self._end(partition),
        )  # fmt: skip

    def _suspended(self, partition: TopicPartition, recycled: bool) -> None:
        listeners, at = self._listeners, max(0, self.positions[partition])
        reason = SuspendReason.PROMOTED if recycled else SuspendReason.MIGRATED
        listeners.tell(
            listeners.standby.on_update_suspended, partition, self.stores[partition], at, self._end(partition), reason
        )

    def reading(self) -> dict[TopicPartition, int]:
        if self.ends is None:
            return {}
        limits = {partition: self.limit(partition) for partition in self.stores}
        return {p: at for p, at in self.positions.items() if (limit := limits[p]) is None or max(0, at) < limit}

    def _end(self, partition: TopicPartition) -> int:
        """Return the highest known end. The end that `begin` got counts, too: the client may remember an older end from
        an earlier assignment."""
        end = self.limit(partition)
        return max(self._known_end(partition) or 0, (self.ends or {}).get(partition, 0)) if end is None else end

    def lag(self) -> int | None:
        """Return the number of records behind the known ends; None before the ends are known."""
        if self.ends is None or not self.task.source_changelogs <= self.committed.keys():
            return None
        return sum(max(0, self._end(partition) - max(0, at)) for partition, at in self.positions.items())
