"""Collection of outputs, the steps of a commit, and recovery from one that failed.

*Guarantees*: one commit at a time, all of its tasks or none.
*Assumes*: driven by the thread that owns the tasks and the producer. `Commit` is driven by its `run_once`, which takes
the steps that `OutputCollection` and `Confirmation` give.
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
    """Collection: takes finished boundaries' outputs from tasks and hands them to the producer."""

    @property
    def dropped(self) -> Mapping[TaskId, int]:
        """The number of refused outputs that a handler has dropped, by task."""
        ...

    @property
    def sent_again(self) -> int:
        """The number of outputs that were handed over once more, as their transaction had failed."""
        ...

    @property
    def suppressed(self) -> int:
        """The number of outputs that weren't sent, as a later one of their key and interval was."""
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
        the rest goes back to the tasks, or is kept, for a later commit."""
        ...

    def flush(self) -> Steps[None]:
        """Wait, in steps, until Kafka has acknowledged every output. `ProductionError` when a handler chose to fail;
        without a transaction `CommitRetriableError` when the acknowledgements take too long."""
        ...

    def again(self, tasks: Mapping[TaskId, Task]) -> None:
        """Note that what isn't confirmed of these tasks has to be sent again, as far as it is kept; what is kept of
        others is void."""
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

    @property
    def ending(self) -> CommitStage:
        """The stage of a commit from when `end` asks for its end: what else may be done until Kafka has answered."""
        ...

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


class StageRegister(Protocol):
    """Where a committer writes down how far its commit is: the transaction's register."""

    def move(self, stage: CommitStage) -> None:
        """The commit under way is in this stage now."""
        ...

    def commit_is_over(self) -> None:
        """The commit under way was made, or has failed, or was dropped. Does nothing when there is none."""
        ...


class Commit(Protocol):
    """Commit: one committer per transaction, one commit at a time. It moves the register to each stage of the commit,
    and to `OPEN` when the commit is over."""

    def begin(self, commit_set: CommitSet) -> None:
        """Begin the commit of these boundaries, all or none, which `run_once` drives. The producer belongs to the
        commit until the commit is over, except in stages in which outputs are sent."""
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


class Recovered(enum.Enum):
    """What follows a recovery."""

    ROLL_BACK = "all processing tasks, or those that the error names, go back to their last commit, in place"
    SEND_AGAIN = "what the transaction held is sent again; only the tasks that the error names go back"
    LOST = "the tasks are lost: they are closed, and the thread rejoins"


class Recovery(Protocol):
    """Transaction recovery: answers a failure of the producer or of a commit.

    For metrics: how often the producer was `fenced`, how often a dead producer was replaced without a loss of tasks
    (`recovered`), how often the tasks were `lost`.
    """

    fenced: int
    recovered: int
    lost: int

    def begin(self, error: Exception) -> None:
        """Begin to recover from the error, which `run_once` drives. An error that isn't about transactions is raised
        again. The producer belongs to the recovery until the recovery is over."""
        ...

    def run_once(self, wait_ms: int) -> Recovered | None:
        """What is to follow; None while the recovery is under way. Waits for Kafka about `wait_ms`, unless the part
        takes all steps at once. Raises what ends the thread."""
        ...

    def abandon(self) -> None:
        """End the recovery that is under way where it stands. Does nothing when there is none."""
        ...
