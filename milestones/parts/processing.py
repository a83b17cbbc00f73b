"""Processing of active tasks, by the stream thread or by threads of its own.

*Guarantees*: a task that was added and removed comes back once.
*Assumes*: driven by the thread that owns the tasks, by `run_once(now_ms)`, where `now_ms` is monotonic time.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task, TaskStorage


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


class Loop(Protocol):
    """The loop of a stream thread."""

    def run_once(self, now_ms: int) -> bool:
        """Make a turn."""
        ...

    @property
    def steady(self) -> bool:
        """Whether the next turn has no recovery or rebalance to see to."""
        ...


class CommitGate(Protocol):
    """The side of processing that a commit needs."""

    def prepare_commit(self, now_ms: int) -> bool:
        """Have the tasks' caches flushed, so that they can be committed. False: ask again soon."""
        ...

    def unlock(self) -> None:
        """Process all tasks again: those of the prepared commit are frozen, or there is no commit."""
        ...

    def apply(self, task: Task) -> None:
        """Have the task's confirmed commit written to its engines. Raises `StateError`, or `run_once` does later."""
        ...


class Processing(CommitGate, Protocol):
    """Processing: calls the user code of the tasks, in an order of its own.

    A removed task is *leaving* until `take_removed` gives it back, at once or any time later. What user code does in a
    leaving task is void. Only `close` waits for leaving tasks.
    """

    def drive(self, loop: Loop) -> None:
        """Make a turn of the stream thread's loop, or have another thread make some for a moment. Raises the errors of
        a turn."""
        ...

    def may_wait(self) -> bool:
        """Whether a turn may wait for Kafka: the calling thread has nothing to process meanwhile, or others do that."""
        ...

    def keep(self) -> BaseException | None:
        """Have no other thread make turns, until the next `drive`. The error of a turn that was under way."""
        ...

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

    def failing(self) -> Mapping[TaskId, str]:
        """By task that is retried: the text of the error of its last try."""
        ...

    def take_failed(self) -> Sequence[tuple[TaskId, BaseException]]:
        """The tasks that have failed for good since the last call, which aren't retried, each with its error. A
        part that calls user code in the calling thread raises the error in `run_once` instead."""
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

    def hold_back(self, tasks: Set[TaskId]) -> None:
        """Begin no record and no punctuation of these tasks, whatever else is held: they are about to be given away, or
        have more uncommitted than their share."""
        ...

    def at_rest(self, tasks: Set[TaskId]) -> bool:
        """Whether no thread is in the midst of these tasks' records. A long call isn't waited for."""
        ...

    def run_once(self, now_ms: int) -> bool:
        """Process for a while; True when anything was done. May raise an error of user code whose handler chose to
        fail: see `take_failed`."""
        ...

    def should_fetch(self, timeout_ms: int) -> bool:
        """Whether processing needs more input, after a wait of up to `timeout_ms` for such a need."""
        ...

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        """Have the tasks' caches flushed, so that they can be committed. False: ask again soon, for `patience_ms` at
        most. A task that isn't flushed in time isn't `committable`, and the commit leaves it out. `final`: this is the
        last commit of some tasks."""
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
