"""`ChangelogReader` reads changelogs for tasks in restoration and for standbys, by one restore consumer, in batches.

*Why this way*:
- One consumer serves all tasks of a thread, as each consumer has connections and memory of its own.
- A round reads one batch and returns, so that the thread can answer requests between two rounds.
- Stages differ only in `ReaderHooks`. So the baseline and m1 share all rules about damaged stores and changed topics.
- An error of one task stays with this task: a damaged store is rebuilt here, and other tasks notice nothing.

*Guarantees*: active tasks are completed, and standbys follow their changelogs, as `changelogs.py` defines. A damaged
store is rebuilt. A task whose engine is busy waits for it. Other tasks aren't affected. The hooks of a stage decide how
much is fetched, when standbys don't read, and what other errors of one task lead to.
*Assumes*: the thread that owns the restore consumer makes all calls. `add` gets the committed offsets of a task's
inputs, which were read while no transaction was pending on them.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, StateBusyError, StateCorruptError, TimeoutExceededError
from milestones.common.kafka.retry import SOONEST_MS, again_after_ms
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.state.refusals import Refusals
from milestones.common.testing.faults import reach
from milestones.instance.admin_thread import AskBounds, Bounds
from milestones.restoration.changelogs import ActiveChangelogs, Changelogs, StandbyChangelogs

if TYPE_CHECKING:
    from confluent_kafka import Message

    from milestones.common.kafka.consumers import AssignedConsumer, Fetched
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import ReadClients

log: Final = logging.getLogger(__name__)

C = TypeVar("C", bound=Changelogs)

MUCH = 10_000
"""If active tasks have at least this number of changelog records left to restore, standbys may have to wait."""

CHECK_INTERVAL_MS = 60_000
"""The time between two checks whether a standby's changelogs are still the same topics."""


class ReaderHooks(Protocol):
    """A stage's decisions about reading changelogs. The reader calls each hook in its own thread."""

    def fetch(self, consumer: AssignedConsumer, *, restoring: bool) -> Fetched:
        """Fetch the next batch. `restoring`: True if a changelog of an active task is being read."""
        ...

    def apply(
        self, changelogs: Changelogs, partition: TopicPartition, messages: list[Message], apply: Callable[[], None]
    ) -> None:
        """Call `apply()`, which writes the messages to the partition's store."""
        ...

    def standbys_stand_back(self, now_ms: int, remaining: int) -> bool:
        """Return True if only active tasks read now. `remaining`: the number of records that active tasks still have to
        read; paused tasks don't count."""
        ...

    def stand_back(self, now_ms: int, left: Mapping[int, int]) -> Set[int]:
        """Return the sub-topologies whose active tasks don't read now. `left`: for each sub-topology, the number of
        records that its tasks still have to read, as far as they could read now."""
        ...

    def failed(self, task: Task | StandbyTask, error: Exception) -> bool:
        """Note that the task can't be restored. Returns True if the reader must drop the task, False if it must raise
        the error."""
        ...


class ChangelogReader:
    """Restores active tasks, and lets standbys follow their changelogs.

    *Owns*: the tasks between `add` and `take_restored` or `take_removed`; the restore consumer's assignment.
    *Sends*: `AskBounds`. *Receives*: `Bounds`.
    """

    def __init__(self, context: ThreadContext, clients: ReadClients, hooks: ReaderHooks) -> None:
        self._context, self._consumer, self._hooks = context, clients.new_restore_consumer(), hooks
        self._active: dict[TaskId, ActiveChangelogs] = {}
        self._standbys: dict[TaskId, StandbyChangelogs] = {}
        self._by_partition: dict[TopicPartition, Changelogs] = {}
        self._committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self._paused: frozenset[int] = frozenset()
        self._restored: list[Task] = []
        self._removed: list[Task | StandbyTask] = []

    @property
    def blocked_ns(self) -> int:
        return self._consumer.blocked_ns

    @property
    def active(self) -> Mapping[TaskId, ActiveChangelogs]:
        """The active tasks in restoration."""
        return self._active

    @property
    def standbys(self) -> Mapping[TaskId, StandbyChangelogs]:
        """The standbys."""
        return self._standbys

    @property
    def paused(self) -> frozenset[int]:
        """The paused sub-topologies: their tasks aren't restored."""
        return self._paused

    @property
    def restores(self) -> bool:
        """True if an active task restores, or is about to restore."""
        return any(id.subtopology not in self._paused for id in self._active)

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        now_ms, listeners = self._context.clock.monotonic_ms(), self._context.listeners
        changelogs = ActiveChangelogs(task, self._answers(task.id), now_ms, listeners, committed)
        self._active[task.id] = changelogs
        self._enter(changelogs)

    def add_standby(self, task: StandbyTask) -> None:
        now_ms, listeners = self._context.clock.monotonic_ms(), self._context.listeners
        changelogs = StandbyChangelogs(
            task, self._answers(task.id), now_ms, listeners, self._committed, self._consumer.known_end
        )
        self._standbys[task.id] = changelogs
        self._enter(changelogs)

    def _everybody(self) -> list[Changelogs]:
        return [*self._active.values(), *self._standbys.values()]

    def _answers(self, id: TaskId) -> Mailbox[Bounds]:
        return Mailbox(1, f"{self._context.name} bounds of {id}'s changelogs")

    def _enter(self, changelogs: Changelogs) -> None:
        self._by_partition.update(dict.fromkeys(changelogs.stores, changelogs))
        self._guarded(changelogs, self._prepare)

    def _prepare(self, changelogs: Changelogs) -> None:
        """Request snapshots for empty stores. The reader asks for the changelogs' bounds only when these have come."""
        changelogs.fetching = self._context.snapshots.ask(changelogs.task)
        if changelogs.fetching is None:
            self._ask(changelogs)

    def _ask(self, changelogs: Changelogs) -> None:
        changelogs.asked = True
        question = AskBounds(changelogs.task.id, frozenset(changelogs.stores), changelogs.answers, topic_ids=True)
        self._context.housekeeper.put(question, timeout_ms=1_000)

    def remove(self, task: TaskId, *, recycled: bool = False) -> None:
        complete = [restored for restored in self._restored if restored.id == task]
        self._restored = [restored for restored in self._restored if restored.id != task]
        if complete:
            self._removed += complete
        elif task in self._active:
            self._removed.append(self._release(self._active.pop(task), recycled=recycled).task)
        else:
            self._removed.append(self._release(self._standbys.pop(task), recycled=recycled).task)

    def _release(self, changelogs: C, *, recycled: bool = False) -> C:
        changelogs.give_up()
        changelogs.suspended(recycled=recycled)
        self._consumer.unassign(changelogs.stores)
        for partition in changelogs.stores:
            del self._by_partition[partition]
        return changelogs

    def pause(self, subtopologies: frozenset[int]) -> None:
        self._paused = subtopologies

    def limit(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed = dict(committed)
        for standby in self._standbys.values():
            standby.know(self._committed)

    def take_restored(self) -> list[Task]:
        restored, self._restored = self._restored, []
        return restored

    def take_removed(self) -> list[Task | StandbyTask]:
        removed, self._removed = self._removed, []
        return removed

    def close(self, timeout_ms: int) -> None:
        self._consumer.close()

    def remaining(self) -> Mapping[TaskId, int]:
        return {task: sum(changelogs.missing().values()) for task, changelogs in self._active.items()}

    def lags(self) -> Mapping[TaskId, int]:
        found = {task: standby.lag() for task, standby in self._standbys.items()}
        return {task: lag for task, lag in found.items() if lag is not None}

    def positions(self) -> Mapping[TaskId, int]:
        everything: dict[TaskId, Changelogs] = {**self._active, **self._standbys}
        return {task: changelogs.position() for task, changelogs in everything.items()}

    def run_once(self, now_ms: int) -> bool:
        """Make one round: 1. note the answers that came; 2. take one step of each snapshot that is being loaded; 3.
        write records for which an engine was busy before; 4. choose which partitions are read now; 5. apply a batch; 6.
        hand out complete tasks."""
        if not self._active and not self._standbys:
            return False
        self._take_bounds(now_ms)
        ingested = self._ingest()
        self._write_unwritten(now_ms)
        self._choose(now_ms)
        fetched = self._fetch()
        self._take(fetched)
        self._complete()
        return ingested or bool(fetched.records)

    def _ingest(self) -> bool:
        ingesting = [changelogs for changelogs in self._everybody() if changelogs.ingesting]
        for changelogs in ingesting:
            self._guarded(changelogs, Changelogs.advance)
        return bool(ingesting)

    def _write_unwritten(self, now_ms: int) -> None:
        for changelogs in self._everybody():
            if changelogs.task.unwritten and now_ms >= changelogs.again_ms:
                self._guarded(changelogs, partial(self._write_restored, now_ms))

    def _write_restored(self, now_ms: int, changelogs: Changelogs) -> None:
        refused = changelogs.refused
        if refused is None:
            refused = changelogs.refused = Refusals(self._context.clock, f"task {changelogs.task.id}")
        try:
            changelogs.task.write_restored()
            refused.made()
        except StateBusyError as busy:
            changelogs.again_ms = now_ms + refused.note(busy)

    def _fetch(self) -> Fetched:
        restoring = self.restores and any(
            self._by_partition[partition].task.id in self._active for partition in self._consumer.assigned
        )
        return self._hooks.fetch(self._consumer, restoring=restoring)

    def _take(self, fetched: Fetched) -> None:
        for partition in fetched.records.keys() | fetched.ends.keys():
            records, end = fetched.records.get(partition, []), fetched.ends.get(partition)
            self._of(partition, partial(self._apply, partition, records, end))
        for partition in fetched.out_of_range:
            log.warning("%s no longer has the offset that is next", partition)
            self._of(partition, self._begin_again)
        for partition in fetched.gone:
            self._of(partition, partial(self._topic_unknown, partition))
        for partition, error in fetched.refused.items():
            self._of(partition, partial(_raise, error))

    def _of(self, partition: TopicPartition, act: Callable[[Changelogs], None]) -> None:
        """Call `act` with the changelogs of the partition's task, unless the task has left in the meantime."""
        changelogs = self._by_partition.get(partition)
        if changelogs is not None:
            self._guarded(changelogs, act)

    def _guarded(self, changelogs: Changelogs, act: Callable[[Changelogs], None]) -> None:
        """Call `act` for one task. A store that proves damaged is rebuilt. The hooks decide about other errors."""
        try:
            try:
                act(changelogs)
            except StateCorruptError as error:
                self._rebuild(changelogs, error)
        except (MilestonesError, KafkaException) as error:
            id = changelogs.task.id
            known = self._active.get(id) or self._standbys[id]
            if not self._hooks.failed(known.task, error):
                raise
            self._active.pop(id, None)
            self._standbys.pop(id, None)
            self._release(changelogs)

    def _rebuild(self, changelogs: Changelogs, error: StateCorruptError) -> None:
        """Empty the task's damaged stores, and begin anew. Raises the error if it names no store of the task."""
        task = changelogs.task.id
        damaged = [partition for partition, store in changelogs.stores.items() if (task, store) in error.damaged]
        if not damaged:
            raise error
        changelogs.give_up()
        for partition in damaged:
            changelogs.clear(partition, str(error))
        self._begin_again(changelogs)

    def _take_bounds(self, now_ms: int) -> None:
        for changelogs in self._everybody():
            if changelogs.brought(now_ms):
                self._guarded(changelogs, self._ask)
            for answer in changelogs.answers.drain() if changelogs.asked else ():
                changelogs.asked, changelogs.heard_ms = False, now_ms
                self._guarded(changelogs, partial(self._note_bounds, answer, now_ms))
        for changelogs in self._everybody():
            if changelogs.asked or changelogs.preparing or now_ms - changelogs.heard_ms < SOONEST_MS:
                continue
            if now_ms - changelogs.heard_ms >= self._pause_ms(changelogs):
                self._guarded(changelogs, self._ask)

    def _pause_ms(self, changelogs: Changelogs) -> float:
        """Return the pause between the last answer and the next question."""
        if changelogs.failing_since_ms is not None:
            return again_after_ms(changelogs.heard_ms - changelogs.failing_since_ms)
        return CHECK_INTERVAL_MS if changelogs.task.id in self._standbys else math.inf

    def _note_bounds(self, answer: Bounds, now_ms: int, changelogs: Changelogs) -> None:
        if answer.error is not None:
            self._unanswered(changelogs, answer.error, now_ms)
        else:
            changelogs.failing_since_ms = None
            self._answered(changelogs, answer)

    def _answered(self, changelogs: Changelogs, answer: Bounds) -> None:
        if changelogs.ends is None:
            changelogs.begin(answer)
        elif changelogs.other_topics(answer.topic_ids):
            self._begin_again(changelogs)

    def _unanswered(self, changelogs: Changelogs, error: Exception, now_ms: int) -> None:
        """Note that a question had an error as its answer. The question is repeated after a pause: for an active task
        until `task_timeout_ms` is over, for a standby without a limit."""
        if changelogs.failing_since_ms is None:
            changelogs.failing_since_ms = now_ms
            log.info("task %s can't learn the ends of its changelogs now: %s", changelogs.task.id, error)
        if changelogs.task.id in self._standbys:
            return
        if now_ms - changelogs.failing_since_ms > self._context.config.task_timeout_ms:
            raise TimeoutExceededError(
                f"task {changelogs.task.id} can't learn the ends of its changelogs: {error}"
            ) from error

    def _begin_again(self, changelogs: Changelogs) -> None:
        """Ask for the changelogs' bounds once more, because a changelog has changed. The task reads nothing before the
        answer. An earlier answer that is still under way doesn't count: the task may have passed the end in it."""
        self._consumer.unassign(changelogs.stores)
        changelogs.lose_ends(self._answers(changelogs.task.id))
        self._ask(changelogs)

    def _topic_unknown(self, partition: TopicPartition, changelogs: Changelogs) -> None:
        """Handle a topic that one broker doesn't know. Only the housekeeper, which checks twice, may conclude that the
        topic was deleted."""
        log.warning("task %s: a broker doesn't know changelog %s; it is asked again", changelogs.task.id, partition)
        self._begin_again(changelogs)

    def _choose(self, now_ms: int) -> None:
        """Assign the partitions that are read now, each from its task's position, and unassign the others."""
        missing = self._missing()
        back = self._hooks.stand_back(now_ms, self._left(missing))
        chosen: list[Changelogs] = [active for id, active in self._active.items() if id.subtopology not in back]
        if not self._hooks.standbys_stand_back(now_ms, sum(missing.values())):
            chosen += self._standbys.values()
        reading: dict[TopicPartition, int] = {}
        for changelogs in chosen:
            if changelogs.task.id.subtopology not in self._paused:
                reading.update(changelogs.reading())
        assigned = self._consumer.assigned
        if reading.keys() != assigned:
            self._consumer.unassign(assigned - reading.keys())
            self._consumer.assign({p: position for p, position in reading.items() if p not in assigned})

    def _missing(self) -> Mapping[TaskId, int]:
        """Return the number of records that each active task still has to restore. Paused tasks are left out."""
        going = {id: active for id, active in self._active.items() if id.subtopology not in self._paused}
        return {id: sum(active.missing().values()) for id, active in going.items()}

    def _left(self, missing: Mapping[TaskId, int]) -> Mapping[int, int]:
        """Return the number of missing records for each sub-topology. Only tasks that could read now count."""
        left = Counter[int]()
        for id, records in missing.items():
            if records and self._active[id].reading():
                left[id.subtopology] += records
        return left

    def _apply(
        self, partition: TopicPartition, messages: list[Message], end: int | None, changelogs: Changelogs
    ) -> None:
        """Apply a batch. `end`: the partition's end, if the batch reached it; control records count."""
        position = (messages[-1].offset() or 0) + 1 if end is None else end

        def apply() -> None:
            if not changelogs.apply(partition, messages, position):
                self._consumer.unassign([partition])

        self._hooks.apply(changelogs, partition, messages, apply)

    def _complete(self) -> None:
        for changelogs in [changelogs for changelogs in self._active.values() if changelogs.complete()]:
            reach("restore.complete")
            self._restored.append(self._release(self._active.pop(changelogs.task.id)).task)
            if changelogs.restored:
                log.info("task %s has restored %d records", changelogs.task.id, changelogs.restored)


def _raise(error: Exception, _: Changelogs) -> None:
    raise error
