"""Processing of active tasks, in the stream thread or in processing threads.

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
    """The way in which an active task is closed before it is given back."""

    SUSPEND = "left as it is, for a roll-back"
    CLOSE = "its processors are closed"


@dataclass(frozen=True)
class RemovedTask:
    """An active task that was given back. `stores`: the open stores of a closed task; None if the stores had to be
    closed, too. `error`: the error that closing the task raised; the task is closed even so."""

    task: Task
    stores: TaskStorage | None = None
    error: BaseException | None = None


PREPARE_MS = 1_000
"""The longest time for which a commit waits for caches to be flushed."""


class Loop(Protocol):
    """The loop of a stream thread."""

    def run_once(self, now_ms: int) -> bool:
        """Make a turn."""
        ...

    @property
    def steady(self) -> bool:
        """True if the next turn has no recovery and no rebalance to work on."""
        ...


class CommitGate(Protocol):
    """The calls of processing that a commit needs."""

    def prepare_commit(self, now_ms: int) -> bool:
        """Have the tasks' caches flushed, so that the tasks can be committed. Returns False while the flush isn't
        finished: then call this method once more soon."""
        ...

    def unlock(self) -> None:
        """Let all tasks be processed from now on, because the boundaries of the prepared commit are frozen, or there is
        no commit."""
        ...

    def apply(self, task: Task) -> None:
        """Have the task's confirmed commit written to its engines. Raises `StateError`, here or later in `run_once`."""
        ...


class Processing(CommitGate, Protocol):
    """The part that calls the user code of the tasks, in an order that the part chooses.

    A removed task is *leaving* until `take_removed` gives it back, immediately or at any later time. Work that user
    code does in a leaving task is void. Only `close` waits for leaving tasks.
    """

    def run_turn(self, loop: Loop) -> None:
        """Make one turn of the stream thread's loop, or let another thread make turns for a moment. Raises the errors
        of these turns."""
        ...

    def may_wait_for_kafka(self) -> bool:
        """True if a turn may wait for Kafka: the calling thread has nothing to process, or other threads process."""
        ...

    def take_back_loop(self) -> BaseException | None:
        """Let no other thread make turns until the next `run_turn`. Returns the error of a turn that was under way, if
        it raised one."""
        ...

    def add(self, task: Task) -> None:
        """Take the task over. The task's processors are initialised before its first record."""
        ...

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        """Stop processing the task after its present record, and close it as `close_mode` says. `take_removed` then
        returns it."""
        ...

    def retire(self, task: Task, close_mode: CloseMode) -> None:
        """Close a task that was never added, and give it back as `remove` does."""
        ...

    def take_removed(self) -> list[RemovedTask]: ...

    def places(self) -> Mapping[TaskId, str]:
        """Return the tasks that can't be processed now, each with the reason."""
        ...

    def failing(self) -> Mapping[TaskId, str]:
        """Return the tasks that are retried, each with the error text of its last try."""
        ...

    def take_failed(self) -> Sequence[tuple[TaskId, BaseException]]:
        """Return the tasks that have failed for good since the last call, each with its error. They aren't retried. A
        part that runs user code in the calling thread raises the error in `run_once` instead."""
        ...

    def take_changed(self) -> Collection[Task]:
        """Return the tasks that were added, removed or processed since the last call, and the tasks that are being
        processed now. No other task has made outputs, staged writes or asked for a commit. If a task changes later, a
        later call returns it."""
        ...

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Pause the tasks of these sub-topologies, and no others (KIP-834): no record is processed and no punctuation
        runs. The caches of paused tasks are flushed for commits all the same, and a new task may be initialised."""
        ...

    def hold_all(self, held: bool) -> None:
        """While `held` is True, begin no record and no punctuation, because outputs wait for room in the client, or
        commits fall behind. Caches are still flushed, and commits are still applied."""
        ...

    def hold_tasks(self, tasks: Set[TaskId]) -> None:
        """Begin no record and no punctuation of these tasks, independently of `hold_all`. They are about to be given
        away, or have more uncommitted bytes than their share."""
        ...

    def at_rest(self, tasks: Set[TaskId]) -> bool:
        """True if no thread is processing records of these tasks. A task in a long call of user code may count as
        resting."""
        ...

    def run_once(self, now_ms: int) -> bool:
        """Process for a limited time. Returns True if anything was done. May raise an error of user code for which the
        handler chose to fail: see `take_failed`."""
        ...

    def should_fetch(self, timeout_ms: int) -> bool:
        """True if processing needs more input. Waits up to `timeout_ms` until it does."""
        ...

    def prepare_commit(self, now_ms: int, patience_ms: int = PREPARE_MS, *, final: bool = False) -> bool:
        """Have the tasks' caches flushed, so that the tasks can be committed. Returns False while the flush isn't
        finished: then call this method once more soon. After `patience_ms` it returns True in any case. A task that
        isn't flushed by then isn't `committable`, and the commit leaves the task out. `final`: True if this is the last
        commit of some tasks."""
        ...

    def close(self, timeout_ms: int) -> None:
        """End this part, after every task was removed, and wait at most `timeout_ms` for leaving tasks. If a task comes
        back later, the thread that holds the task closes it."""
        ...

    @property
    def processed(self) -> int:
        """The number of records processed so far."""
        ...

    def wake_up_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until processing needs the stream thread, or None if processing doesn't need this
        thread."""
        ...
