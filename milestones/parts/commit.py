"""Collection of outputs, the steps of a commit, and recovery from one that failed.

*Guarantees*: there is one commit at a time, of all its tasks or of none.
*Assumes*: driven by the thread that owns the tasks and the producer. This thread calls `Commit.run_once` until the
commit has ended. Each call takes the next steps: those of `OutputCollection` send the outputs, those of `Confirmation`
make Kafka commit.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.errors import MilestonesError
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
    from milestones.common.steps import Steps
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.parts.transaction import CommitStage


class OutputCollection(Protocol):
    """The part that takes the outputs of finished boundaries from the tasks, and hands them to the producer."""

    @property
    def dropped(self) -> Mapping[TaskId, int]:
        """The number of refused outputs that a handler has dropped, keyed by task."""
        ...

    @property
    def sent_again(self) -> int:
        """The number of outputs that were handed over once more because their transaction had failed."""
        ...

    @property
    def suppressed(self) -> int:
        """The number of outputs that weren't sent because a later output of the same key and commit interval was
        sent."""
        ...

    @property
    def client_queue_full(self) -> bool:
        """True while outputs wait for room in the Kafka client, so that no task should make more."""
        ...

    @property
    def unsent(self) -> Collection[Task]:
        """The tasks of the last `collect` whose outputs had no room in the client."""
        ...

    def collect(self, tasks: Iterable[Task]) -> bool:
        """Send the tasks' finished outputs as far as the client has room. Returns True if there were outputs to send.
        Raises `TimeoutExceededError` when the client has had no room for `task_timeout_ms`."""
        ...

    def send(self, commit_set: CommitSet, within_ms: int) -> Steps[bool]:
        """Send the outputs of frozen boundaries, in steps. Returns False if the client had no room for another output
        for `within_ms`. The unsent outputs then go back to the tasks, or are kept, for a later commit."""
        ...

    def flush(self) -> Steps[None]:
        """Wait, in steps, until Kafka has acknowledged every output. Raises `ProductionError` when a handler chose to
        fail. Without a transaction, raises `CommitRetriableError` when the acknowledgements take too long."""
        ...

    def resend_unconfirmed(self, tasks: Mapping[TaskId, Task]) -> None:
        """Record that unconfirmed outputs of these tasks must be resent, as far as this part has kept them. Kept
        outputs of all other tasks are void."""
        ...

    def forget_all_but(self, tasks: Collection[TaskId]) -> None:
        """Forget all tasks but these."""
        ...

    def take_changelog_offsets(self, task: Task) -> dict[str, int]:
        """Take the offset after the last acknowledged changelog record, keyed by store. Only stores with a record that
        was acknowledged since the previous call are returned."""
        ...


class Confirmation(Protocol):
    """The part that makes Kafka commit, as the processing guarantee demands.

    1. `hand_over` puts the offsets where `end` commits them. 2. `end` asks Kafka for the end of the commit. From then
       until Kafka answers, it isn't known whether Kafka has committed.
    """

    @property
    def ending(self) -> CommitStage:
        """The stage of a commit from the request for its end until Kafka's answer. The stage decides what else may be
        done meanwhile."""
        ...

    @property
    def room_ms(self) -> int:
        """The longest time that a commit's outputs may wait for room in the client while none of them leaves."""
        ...

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        """Return the error that ends a commit because its outputs have waited for room for `room_ms`."""
        ...

    def hand_over(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps[None]:
        """Put the offsets, in steps, where `end` commits them."""
        ...

    def end(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps[None]:
        """Make Kafka commit, in steps. The last step is done when Kafka has committed."""
        ...


class StageRegister(Protocol):
    """The calls of the transaction's register by which a committer records the stage of its commit."""

    def move(self, stage: CommitStage) -> None:
        """Record that the commit under way is in this stage now."""
        ...

    def commit_is_over(self) -> None:
        """Record that the commit under way has succeeded, has failed, or was dropped. Does nothing when there is
        none."""
        ...


class Commit(Protocol):
    """The committer of a transaction, which makes one commit at a time. It moves the register to each stage of the
    commit, and to `OPEN` when the commit is over."""

    def begin(self, commit_set: CommitSet) -> None:
        """Begin the commit of these boundaries: Kafka commits all of them, or none. Calls of `run_once` drive it. The
        producer belongs to the commit until the commit is over, except in stages in which outputs are sent."""
        ...

    def run_once(self, wait_ms: int) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """Take steps of the commit. Waits for Kafka about `wait_ms`, unless the part takes all steps in one call. When
        Kafka has committed, the tasks' writes are applied to the engines, and the committed offsets are returned.
        Returns None while the commit is under way.

        An error ends the commit: `TaskCorruptedError` (all processing tasks are rolled back, not only those that it
        names), `TaskMigratedError` (the thread has lost its tasks), `CommitRetriableError` (everything is kept), or an
        error of the producer.
        """
        ...

    def abandon(self) -> None:
        """End the commit under way as if it had failed, without waiting for Kafka's answer. The caller then rolls the
        tasks of the commit back, or ends them. Does nothing when no commit is under way."""
        ...


class Recovered(enum.Enum):
    """The consequence of a recovery."""

    ROLL_BACK = "all processing tasks, or those that the error names, go back to their last commit, in place"
    SEND_AGAIN = "what the transaction held is sent again; only the tasks that the error names go back"
    LOST = "the tasks are lost: they are closed, and the thread rejoins"


class Recovery(Protocol):
    """The part that recovers from a failure of the producer or of a commit.

    For metrics: how often the producer was `fenced`, how often a dead producer was replaced without a loss of tasks
    (`recovered`), how often the tasks were `lost`.
    """

    fenced: int
    recovered: int
    lost: int

    def begin(self, error: Exception) -> None:
        """Begin to recover from the error. Calls of `run_once` drive the recovery. An error that isn't about
        transactions is re-raised. The producer belongs to the recovery until the recovery is over."""
        ...

    def run_once(self, wait_ms: int) -> Recovered | None:
        """Take steps of the recovery. Waits for Kafka about `wait_ms`, unless the part takes all steps in one call.
        Returns the consequence, or None while the recovery is under way. Raises an error that ends the thread."""
        ...

    def abandon(self) -> None:
        """Stop the recovery that is under way, at its present step. Does nothing when there is none."""
        ...
