"""The seams of a thread that polls: one Protocol per part, and `ThreadParts`, one factory of each.

*Guarantees*: the stream thread knows only these; `wiring.py` alone knows which class stands behind which.
*Assumes*: every part is made in the thread that drives it, and driven by `run_once(now_ms) -> did_something`, where
`now_ms` is monotonic time.
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


class Committing(Protocol):
    """What a commit needs of a membership: proof that the tasks are ours."""

    def metadata(self) -> bytes:
        """For `send_offsets_to_transaction`; `StaleGenerationError` when there is no generation."""
        ...

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """An OffsetCommit under the generation; `commit_returned` tells when it is made."""
        ...

    def commit_returned(self, wait_ms: int) -> bool:
        """Whether it is made, waiting at most so long. Errors as of `GroupMember.commit_returned`."""
        ...

    def session_over(self) -> bool:
        """Whether the group may have given the tasks to others by now."""
        ...


class Sending(Protocol):
    """The clients that collection and commit work with."""

    @property
    def producer(self) -> OutputProducer: ...

    @property
    def member(self) -> Committing: ...


class ReadClients(Protocol):
    """The clients that inputs, tasks and restoration work with."""

    @property
    def consumer(self) -> AssignedConsumer: ...

    def new_restore_consumer(self) -> AssignedConsumer:
        """A restore consumer that belongs to the calling thread, whichever that is, and is closed by it."""
        ...


class Clients(Protocol):
    """Client ownership: the Kafka clients that one thread works with."""

    consumer: AssignedConsumer
    producer: OutputProducer
    member: GroupMember

    def new_restore_consumer(self) -> AssignedConsumer:
        """A restore consumer that belongs to the calling thread, whichever that is, and is closed by it."""
        ...

    def renew_producer(self, within_ms: int | None = None, *, one_record_per_batch: bool = False) -> None:
        """Put a new producer of the same transactional id in place of the old one, initialised: it fences the old one.
        `one_record_per_batch`: one that says which output a batch or a transaction fails of.

        `KafkaUnreachableError` when that takes longer than `within_ms` (`task_timeout_ms` by default): the new one is
        in place then and can't send, as its first transaction will say."""
        ...

    def close(self, *, leave_group: bool) -> None:
        """Let all clients go; every one is tried."""
        ...


@dataclass(frozen=True)
class FailedTask:
    """A task whose restoration ended with an error. `again`: it may be opened and restored anew; else the thread ends
    with the error."""

    task: Task | StandbyTask
    error: BaseException
    again: bool


class Restoration(Protocol):
    """Restoration: brings an active task's stores up to the end of their changelogs, and keeps standbys there.

    A task that was removed is *in transit* until `take_removed` gives it back: at once, or any time later. Nothing but
    `close` waits for it.
    """

    @property
    def blocked_ns(self) -> int:
        """How long the stream thread has waited for Kafka in here."""
        ...

    @property
    def poll_interval_ms(self) -> int:
        """How long the stream thread may wait for input while a task isn't running yet."""
        ...

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        """Take the task. `committed`: its inputs' committed offsets, which have been read stable before."""
        ...

    def add_standby(self, task: StandbyTask) -> None:
        """Take the standby; it never completes."""
        ...

    def remove(self, task: TaskId, *, recycled: bool = False) -> None:
        """Give the task back, by `take_removed`; what is restored stays restored. `recycled`: it changes its role."""
        ...

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Restore nothing for tasks of these sub-topologies, of all others again."""
        ...

    def limit(self, committed: Mapping[TopicPartition, int]) -> None:
        """What the group has committed of source topics that serve as changelogs: standbys may read as far."""
        ...

    def run_once(self, now_ms: int) -> bool: ...

    def take_restored(self) -> list[Task]: ...

    def take_removed(self) -> list[Task | StandbyTask]: ...

    def take_failed(self) -> list[FailedTask]:
        """Tasks that weren't removed and can't be restored."""
        ...

    def close(self, timeout_ms: int) -> None:
        """The end, once every task was removed: let the restore consumer go, and wait at most so long for what is in
        transit. What comes back later than that is closed where it is."""
        ...

    def remaining(self) -> Mapping[TaskId, int]:
        """Changelog records still to restore, by active task in restoration."""
        ...

    def lags(self) -> Mapping[TaskId, int]:
        """Changelog records that a standby is behind, by task; without those that haven't seen the ends yet."""
        ...

    def positions(self) -> Mapping[TaskId, int]:
        """The sum of its changelogs' offsets, by task that is here or in transit."""
        ...


class CloseMode(enum.Enum):
    """What becomes of an active task before it is given back."""

    SUSPEND = "nothing: it goes on later"
    CLOSE = "its processors are closed"


@dataclass(frozen=True)
class RemovedTask:
    """An active task that was given back. `stores`: those of a closed one, open; None if they had to be closed too.
    `error`: it didn't close cleanly, but it is closed."""

    task: Task
    stores: TaskStorage | None = None
    error: BaseException | None = None


PREPARE_MS = 1_000
"""How long a commit waits for caches that are to be flushed."""


class Processing(Protocol):
    """Processing: who calls user code, and in which order of tasks.

    A task that was removed is *in transit* until `take_removed` gives it back: at once, or any time later. What it does
    meanwhile is void. Nothing but `close` waits for it.
    """

    def add(self, task: Task) -> None:
        """Take the task; its processors are initialised first, unless they are."""
        ...

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        """Give the task back, by `take_removed`, at a record's boundary, after this fate."""
        ...

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        """The same for a task that it doesn't have."""
        ...

    def take_removed(self) -> list[RemovedTask]: ...

    def places(self) -> Mapping[TaskId, str]:
        """By task that doesn't simply process: what keeps it from that."""
        ...

    def take_changed(self) -> Collection[Task]:
        """The tasks that were added, removed or worked on since the last call, and those that are at work: only these
        have made outputs, staged writes or asked for a commit. What is done later is told by a later call."""
        ...

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Call nothing of the tasks of these sub-topologies, and only of these (KIP-834)."""
        ...

    def hold(self, held: bool) -> None:
        """While this holds nothing is processed, nor punctuated: what it made couldn't be sent, or committed."""
        ...

    def run_once(self, now_ms: int) -> bool:
        """Process for a while. Raises what a task's user code raised, once its handler chose to fail."""
        ...

    high_watermark: int
    """Records that may wait in the buffers of all tasks before `should_fetch` says no."""

    def should_fetch(self, timeout_ms: int) -> bool:
        """Whether processing needs more input; waits up to `timeout_ms` for it to need some."""
        ...

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        """Bring the tasks to where they can be committed: their caches are flushed. False: ask again soon, for
        `patience_ms` at most. One that isn't there in time isn't `committable`; it is left out. `final`: it is the
        last commit of some of them."""
        ...

    def committed(self) -> None:
        """What was prepared has been committed, or won't be: all may go on."""
        ...

    def apply(self, task: Task) -> None:
        """Have what was confirmed of the task written to its engines. `StateError`, or `run_once` raises it later."""
        ...

    def close(self, timeout_ms: int) -> None:
        """The end, once every task was removed: wait at most so long for what is in transit. What comes back later
        than that is closed where it is."""
        ...

    @property
    def processed(self) -> int:
        """Records processed so far."""
        ...

    def wake_up_ms(self, now_ms: int) -> int | None:
        """Milliseconds until the stream thread must be back, None if nothing here needs it."""
        ...


class OutputCollection(Protocol):
    """Collection: takes finished boundaries' outputs from tasks and hands them to the producer."""

    @property
    def dropped(self) -> Mapping[TaskId, int]:
        """By task, how many outputs were refused that it goes on without."""
        ...

    @property
    def held(self) -> bool:
        """Whether outputs wait for room in the client, so that no others should be made."""
        ...

    @property
    def unsent(self) -> Collection[Task]:
        """The tasks of the last `collect` that have outputs for which there was no room."""
        ...

    def collect(self, tasks: Iterable[Task]) -> bool:
        """Send what the tasks have finished, and there is room for; True when there was anything.
        `TimeoutExceededError` when there has been none for `task_timeout_ms`."""
        ...

    def send(self, commit_set: CommitSet, within_ms: int) -> Steps[bool]:
        """Send what frozen boundaries still have. False when there was no room for any within `within_ms`: what is left
        is its task's again."""
        ...

    def flush(self) -> Steps[None]:
        """Until Kafka has acknowledged everything. `ProductionError` when a handler chose to fail; without a
        transaction `CommitRetriableError` when it takes too long."""
        ...

    def let_go(self, tasks: Collection[TaskId]) -> None:
        """Forget all tasks but these."""
        ...

    def changelog_offsets(self, task: Task) -> dict[str, int]:
        """By store, the offset after the last acknowledged changelog record since the previous call."""
        ...


class Confirmation(Protocol):
    """Confirmation: how Kafka is made to commit. The processing guarantee decides, and how a producer is recovered.

    1. The offsets are handed over. 2. The end is asked for: from then on it isn't known whether Kafka has committed.
    """

    generation_counts: bool
    """Whether the end asks for the member's generation: then the member mustn't join beside it."""

    @property
    def room_ms(self) -> int:
        """How long the outputs of a commit may wait for room in the client while none of them leaves."""
        ...

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        """What follows when that was too long."""
        ...

    def hand_over(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps[None]:
        """Put the offsets where the end will commit them."""
        ...

    def end(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps[None]:
        """Make Kafka commit; over once it has."""
        ...

    def failed(self, commit_set: CommitSet) -> None:
        """The commit failed: keep or drop what the tasks staged for it."""
        ...


class CommitStep(enum.Enum):
    """How far a commit is."""

    SENDING = "what is left of its outputs is handed to the client"
    FLUSHING = "Kafka hasn't acknowledged all of them yet"
    OFFSETS = "its offsets are handed over"
    ENDING = "Kafka was asked to commit: whether it has isn't known"

    @property
    def may_be_abandoned(self) -> bool:
        """Nothing of the producer's is under way but a flush, and nothing can be committed yet."""
        return self in (CommitStep.SENDING, CommitStep.FLUSHING)


class Commit(Protocol):
    """Commit: one committer per transaction, one commit at a time."""

    @property
    def step(self) -> CommitStep | None:
        """How far the commit is that is under way; None when there is none."""
        ...

    @property
    def joins_beside(self) -> bool:
        """Whether the member may join a new generation now: none is under way, or it doesn't ask for it any more."""
        ...

    def begin(self, commit_set: CommitSet) -> None:
        """From now on `run_once` commits these boundaries, all or none. The producer belongs to the commit until it is
        over."""
        ...

    def run_once(self, wait_ms: int) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """What was committed, and is applied to the engines; None while it is under way. Waits for Kafka about
        `wait_ms`, if the part doesn't take all steps at once.

        An error ends the commit: `TaskCorruptedError` (roll back these tasks), `TaskMigratedError` (the thread lost its
        tasks), `CommitRetriableError` (all is kept), those of the producer.
        """
        ...

    def abandon(self) -> None:
        """End the one that is under way as if it had failed, without an answer to what was asked last. A roll-back or
        the end of its tasks is to follow. Harmless when there is none."""
        ...


class Recovery(Protocol):
    """Transaction recovery: what follows when the producer or a commit failed.

    For metrics: how often the producer was fenced, how often a dead one was replaced and the tasks went on
    (`recovered`), how often they were lost.
    """

    fenced: int
    recovered: int
    lost: int

    def recover(self, error: Exception, tasks: Collection[Task]) -> bool:
        """True: the tasks were rolled back and go on in place. False: they are lost, drop them and rejoin.
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
    """Gives a function that says how many partitions a topic has; whoever runs user code may call that."""
    state: Callable[[ThreadContext, Callable[[str], int]], StateOwnership]
    opening: Callable[[ThreadContext], StoreOpening]
    confirmation: Callable[[ThreadContext, Clients], Confirmation]
    commit: Callable[[Clients, OutputCollection, Confirmation, Processing], Commit]
