"""The seams of a thread that polls: one Protocol per part, and `ThreadParts`, one factory of each.

*Guarantees*: the stream thread knows only these Protocols; `wiring.py` alone knows the classes behind them.
*Assumes*: every part is made in the thread that drives it. `Restoration` and `Processing` are driven by
`run_once(now_ms) -> did_something`, where `now_ms` is monotonic time, `Commit` and `StoreOpening` by a `run_once` of
their own; `OutputCollection` and `Confirmation` take steps of a commit; the others answer calls.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition

if TYPE_CHECKING:
    from milestones.common.errors import MilestonesError
    from milestones.common.kafka.consumers import AssignedConsumer
    from milestones.common.kafka.membership import GroupMember
    from milestones.common.kafka.producer import OutputProducer
    from milestones.common.steps import Steps
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task, TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts.instance import ClientFactory
    from milestones.parts.state import StateOwnership, StoreOpening


class CommitMember(Protocol):
    """The calls of a group member that a commit needs: they prove that the tasks are this thread's."""

    def metadata(self) -> bytes:
        """The group metadata for `send_offsets_to_transaction`; `StaleGenerationError` without a generation."""
        ...

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Begin an OffsetCommit under the generation; `commit_returned` says when Kafka has answered."""
        ...

    def commit_returned(self, wait_ms: int) -> bool:
        """Whether the begun commit is made, after a wait of at most `wait_ms`. Errors as of
        `GroupMember.commit_returned`."""
        ...

    def session_over(self) -> bool:
        """Whether the group may have given the tasks to other members by now."""
        ...


class Sending(Protocol):
    """The clients that collection and commit use."""

    @property
    def producer(self) -> OutputProducer: ...

    @property
    def member(self) -> CommitMember: ...


class ReadClients(Protocol):
    """The clients that inputs, tasks and restoration use."""

    @property
    def consumer(self) -> AssignedConsumer: ...

    def new_restore_consumer(self) -> AssignedConsumer:
        """A restore consumer that belongs to the calling thread, whichever that is, and is closed by it."""
        ...


class Clients(ReadClients, Protocol):
    """Client ownership: the Kafka clients of one thread."""

    consumer: AssignedConsumer
    producer: OutputProducer
    member: GroupMember

    def renew_producer(self, within_ms: int | None = None, *, one_record_per_batch: bool = False) -> None:
        """Replace the producer by an initialised one of the same transactional id, which fences the old one.
        `one_record_per_batch`: as in `ClientFactory.producer`.

        `KafkaUnreachableError` when that takes longer than `within_ms` (`task_timeout_ms` by default): the new producer
        is in place then, and its first transaction fails. Also when no producer can be made: a transactional old one
        stays in place then, closed, and fails at its next call; without transactions the old one is used on."""
        ...

    def close(self, *, leave_group: bool) -> None:
        """Close all clients, also when one of them fails to close."""
        ...


@dataclass(frozen=True)
class FailedTask:
    """A task whose restoration ended with an error. `again`: the task may be opened and restored anew; otherwise the
    thread ends with the error."""

    task: Task | StandbyTask
    error: BaseException
    again: bool


class Restoration(Protocol):
    """Restoration: brings an active task's stores up to the end of their changelogs, and keeps standbys there.

    A removed task is *leaving* until `take_removed` gives it back, at once or any time later. Only `close` waits for
    leaving tasks.
    """

    @property
    def blocked_ns(self) -> int:
        """How long this part has made the stream thread wait for Kafka so far."""
        ...

    @property
    def poll_interval_ms(self) -> int:
        """The longest time that the stream thread may wait for input while a task isn't running yet."""
        ...

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        """Take the task over. `committed`: its inputs' committed offsets, read stable before."""
        ...

    def add_standby(self, task: StandbyTask) -> None:
        """Take the standby over; a standby never completes."""
        ...

    def remove(self, task: TaskId, *, recycled: bool = False) -> None:
        """Give the task back by `take_removed`, as far restored as it is. `recycled`: the task changes its role."""
        ...

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Restore no task of these sub-topologies, and all others."""
        ...

    def limit(self, committed: Mapping[TopicPartition, int]) -> None:
        """Let standbys read source topics that serve as changelogs up to these offsets, which the group has
        committed."""
        ...

    def run_once(self, now_ms: int) -> bool: ...

    def take_restored(self) -> list[Task]: ...

    def take_removed(self) -> list[Task | StandbyTask]: ...

    def take_failed(self) -> list[FailedTask]:
        """The tasks that can't be restored, without removed ones."""
        ...

    def close(self, timeout_ms: int) -> None:
        """Close the restore consumer, once every task was removed, and wait at most `timeout_ms` for leaving tasks. A
        task that comes back later is closed by its holder."""
        ...

    def remaining(self) -> Mapping[TaskId, int]:
        """The number of changelog records still to restore, by active task in restoration."""
        ...

    def lags(self) -> Mapping[TaskId, int]:
        """The number of changelog records that a standby is behind, by task, once the changelogs' ends are known."""
        ...

    def positions(self) -> Mapping[TaskId, int]:
        """The sums of changelog offsets, by task in restoration, and by leaving task."""
        ...


class CloseMode(enum.Enum):
    """How an active task is closed before it is given back."""

    SUSPEND = "left as it is, for a roll-back"
    CLOSE = "its processors are closed"


@dataclass(frozen=True)
class RemovedTask:
    """An active task that was given back. `stores`: those of a closed task, open; None if they had to be closed, too.
    `error`: what the close raised; the task is closed all the same."""

    task: Task
    stores: TaskStorage | None = None
    error: BaseException | None = None


PREPARE_MS = 1_000
"""The longest wait of a commit for caches to be flushed."""


class Processing(Protocol):
    """Processing: calls the user code of the tasks, in an order of its own.

    A removed task is *leaving* until `take_removed` gives it back, at once or any time later. What user code does in a
    leaving task is void. Only `close` waits for leaving tasks.
    """

    def add(self, task: Task) -> None:
        """Take the task over; its processors are initialised before its first record."""
        ...

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        """Give the task back by `take_removed`, at a record's boundary, closed as `close_mode` says."""
        ...

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        """As `remove`, for a task that was never added."""
        ...

    def take_removed(self) -> list[RemovedTask]: ...

    def places(self) -> Mapping[TaskId, str]:
        """By task that doesn't simply process: what keeps it from that."""
        ...

    def take_changed(self) -> Collection[Task]:
        """The tasks that were added, removed or processed since the last call, and those in work: only these have made
        outputs, staged writes or asked for a commit. A task that changes later is in a later call's answer."""
        ...

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Process and punctuate no task of these sub-topologies, and all others (KIP-834). Their caches are flushed for
        commits all the same, and a new task may be initialised."""
        ...

    def hold(self, held: bool) -> None:
        """Begin no record and no punctuation while `held`: outputs wait for room in the client, or commits fall behind.
        Flushes and applies are done all the same."""
        ...

    def run_once(self, now_ms: int) -> bool:
        """Process for a while; True when anything was done. Raises an error of user code whose handler chose to
        fail."""
        ...

    high_watermark: int
    """The number of records that may wait in all tasks' buffers before `should_fetch` is False; 0: never for that."""

    def should_fetch(self, timeout_ms: int) -> bool:
        """Whether processing needs more input, after a wait of up to `timeout_ms` for such a need."""
        ...

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        """Have the tasks' caches flushed, so that they can be committed. False: ask again soon, for `patience_ms` at
        most. A task that isn't flushed in time isn't `committable`, and the commit leaves it out. `final`: this is the
        last commit of some tasks."""
        ...

    def unlock(self) -> None:
        """Process all tasks again: those of the prepared commit are frozen, or there is no commit."""
        ...

    def apply(self, task: Task) -> None:
        """Have the task's confirmed commit written to its engines. Raises `StateError`, or `run_once` does later."""
        ...

    def close(self, timeout_ms: int) -> None:
        """End, once every task was removed, and wait at most `timeout_ms` for leaving tasks. A task that comes back
        later is closed by its holder."""
        ...

    @property
    def processed(self) -> int:
        """The number of records processed so far."""
        ...

    def wake_up_ms(self, now_ms: int) -> int | None:
        """Milliseconds until processing needs the stream thread; None when it doesn't."""
        ...


class OutputCollection(Protocol):
    """Collection: takes finished boundaries' outputs from tasks and hands them to the producer."""

    @property
    def dropped(self) -> Mapping[TaskId, int]:
        """The number of refused outputs that a handler has dropped, by task."""
        ...

    @property
    def held(self) -> bool:
        """Whether outputs wait for room in the client, so that no task should make others."""
        ...

    @property
    def unsent(self) -> Collection[Task]:
        """The tasks of the last `collect` whose outputs had no room in the client."""
        ...

    def collect(self, tasks: Iterable[Task]) -> bool:
        """Send the tasks' finished outputs as far as the client has room; True when there were any.
        `TimeoutExceededError` when the client has had no room for `task_timeout_ms`."""
        ...

    def send(self, commit_set: CommitSet, within_ms: int) -> Steps[bool]:
        """Send the outputs of frozen boundaries. False when the client had no room for any output within `within_ms`:
        the rest goes back to the tasks."""
        ...

    def flush(self) -> Steps[None]:
        """Wait, in steps, until Kafka has acknowledged every output. `ProductionError` when a handler chose to fail;
        without a transaction `CommitRetriableError` when the acknowledgements take too long."""
        ...

    def let_go(self, tasks: Collection[TaskId]) -> None:
        """Forget all tasks but these."""
        ...

    def take_changelog_offsets(self, task: Task) -> dict[str, int]:
        """The offset after the last changelog record that was acknowledged since the previous call, by store. Each
        offset is told once."""
        ...


class Confirmation(Protocol):
    """Confirmation: makes Kafka commit, by the processing guarantee's way.

    1. `hand_over` hands the offsets over. 2. `end` asks for the end: from then on, until the answer, Kafka may have
    committed or not.
    """

    generation_counts: bool
    """Whether `end` needs the member's generation, so that the member mustn't join beside it."""

    @property
    def room_ms(self) -> int:
        """The longest time that a commit's outputs may wait for room in the client while none of them leaves."""
        ...

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        """The error that ends a commit whose outputs have waited for `room_ms`."""
        ...

    def hand_over(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps[None]:
        """Put the offsets, in steps, where `end` commits them."""
        ...

    def end(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps[None]:
        """Make Kafka commit, in steps; returns once Kafka has."""
        ...

    def failed(self, commit_set: CommitSet) -> None:
        """Keep or drop what the tasks staged for a commit that failed."""
        ...


class CommitStep(enum.Enum):
    """How far a commit is."""

    SENDING = "the rest of its outputs is handed to the client"
    FLUSHING = "Kafka hasn't acknowledged all of its outputs yet"
    OFFSETS = "its offsets are handed over"
    ENDING = "Kafka was asked to commit, and hasn't answered"

    @property
    def may_be_abandoned(self) -> bool:
        """Whether the producer is at most in a flush, and Kafka can't have committed yet."""
        return self in (CommitStep.SENDING, CommitStep.FLUSHING)


class Commit(Protocol):
    """Commit: one committer per transaction, one commit at a time."""

    @property
    def step(self) -> CommitStep | None:
        """The step of the commit under way; None when there is none."""
        ...

    @property
    def joins_beside(self) -> bool:
        """Whether the member may join a new generation now: no commit is under way, or the one that is doesn't need the
        generation any more."""
        ...

    def begin(self, commit_set: CommitSet) -> None:
        """Begin the commit of these boundaries, all or none, which `run_once` drives. The producer belongs to the
        commit until the commit is over."""
        ...

    def run_once(self, wait_ms: int) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """The offsets that were committed, with the tasks' writes applied to the engines; None while the commit is
        under way. Waits for Kafka about `wait_ms`, unless the part takes all steps at once.

        An error ends the commit: `TaskCorruptedError` (all processing tasks are rolled back, not only those it names),
        `TaskMigratedError` (the thread lost its tasks), `CommitRetriableError` (all is kept), those of the producer.
        """
        ...

    def abandon(self) -> None:
        """End the commit under way as if it had failed, without waiting for Kafka's answer. A roll-back or the end of
        its tasks is to follow. Does nothing when no commit is under way."""
        ...


class Recovery(Protocol):
    """Transaction recovery: answers a failure of the producer or of a commit.

    For metrics: how often the producer was `fenced`, how often a dead producer was replaced without a loss of tasks
    (`recovered`), how often the tasks were `lost`.
    """

    fenced: int
    recovered: int
    lost: int

    def recover(self, error: Exception) -> bool:
        """True: all processing tasks are to be rolled back, in place. False: the tasks are lost, drop them and rejoin.
        An error that isn't about transactions is raised again."""
        ...


@dataclass(frozen=True)
class ThreadParts:
    """One factory per seam; each is called once per thread that polls, in that thread, in the order of the fields."""

    clients: Callable[[ThreadContext, ClientFactory], Clients]
    collection: Callable[[ThreadContext, Clients], OutputCollection]
    processing: Callable[[ThreadContext], Processing]
    restoration: Callable[[ThreadContext, Clients], Restoration]
    recovery: Callable[[ThreadContext, Clients], Recovery]
    partition_counts: Callable[[ThreadContext, Clients], Callable[[str], int]]
    """Gives a function that returns a topic's partition count. Each thread that runs user code may call it: on the
    baseline that is the stream thread only."""
    state: Callable[[ThreadContext, Callable[[str], int]], StateOwnership]
    opening: Callable[[ThreadContext], StoreOpening]
    confirmation: Callable[[ThreadContext, Clients], Confirmation]
    commit: Callable[[Clients, OutputCollection, Confirmation, Processing], Commit]
