"""`TaskHandover` passes tasks between a stream thread and one state updater, in both directions.

*Guarantees*: a task that was put in comes out once: in an answer, or, when the updater ends, with the updater's error.
If a task comes out after its stream thread has ended, it is closed here. No call waits.
*Assumes*: the stream thread puts requests in. The updater takes and answers them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.mailbox import Mailbox, MailboxFullError
from milestones.common.task.lifecycle import TaskState
from milestones.m1_state_updater.messages import (
    CAPACITY,
    Add,
    AddStandby,
    Answer,
    Ended,
    Removed,
    Request,
    RestorationFailed,
    Restored,
)

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.m1_state_updater.messages import RestoreProgress

log: Final = logging.getLogger(__name__)


class TaskHandover:
    """The mailboxes of one updater, and the updater's tasks.

    *Owns*, on the updater's side: `held`. *Concurrency*: `progress` is an immutable mapping, keyed by the number of a
    stay. The updater replaces it as a whole, and the stream thread reads it.
    """

    def __init__(self, name: str, answers: Mailbox[Answer]) -> None:
        self.name = name
        self.requests: Mailbox[Request] = Mailbox(CAPACITY, f"{name} requests")
        self.answers = answers
        self.held: dict[TaskId, tuple[int, Task | StandbyTask]] = {}
        self.progress: Mapping[int, RestoreProgress] = {}

    # -- the stream thread's side

    def put(self, request: Request) -> bool:
        """Send a request to the updater. Returns False if the updater has ended and won't read it."""
        try:
            if self.requests.try_put(request):
                return True
        except BaseException:  # of any type: a closed mailbox raises the error that has killed its reader
            if not self.requests.closed:
                raise
            return False
        raise _overfull(self.name)

    # -- the updater's side

    def take(self) -> list[Request]:
        """Take the requests. All tasks in them belong to the updater from now on, even if the first request fails."""
        return self._hold(self.requests.drain())

    def _hold(self, requests: list[Request]) -> list[Request]:
        for request in requests:
            if isinstance(request, Add | AddStandby):
                self.held[request.task.id] = request.number, request.task
        return requests

    def has(self, number: int, id: TaskId) -> bool:
        """Return True if this stay of the task hasn't ended. `held` may have a later stay of the same task, from the
        same batch of requests."""
        return id in self.held and self.held[id][0] == number

    def restored(self, task: Task) -> None:
        self._hand_out(task, Restored(task))

    def failed(self, task: Task | StandbyTask, error: BaseException) -> None:
        self._hand_out(task, RestorationFailed(task, error, died=False))

    def removed(self, task: Task | StandbyTask) -> None:
        self._hand_out(task, Removed(task))

    def end(self, error: BaseException | None) -> None:
        """End the updater's side. Hands out all tasks of the updater, and the tasks in requests that it hasn't read."""
        self.requests.close(error)
        self._answer(Ended(error))
        if len(self.requests):
            self._hold(self.requests.drain())
        for _, task in list(self.held.values()):
            if error is None:
                self.removed(task)
            else:
                self._hand_out(task, RestorationFailed(task, error, died=True))

    def _hand_out(self, task: Task | StandbyTask, answer: Answer) -> None:
        if task.state not in (TaskState.CLOSED, TaskState.IN_TRANSIT):
            task.lifecycle.move(TaskState.IN_TRANSIT)
        del self.held[task.id]
        if not self._answer(answer):
            log.info("%s: task %s came back after the end of its stream thread, and is closed", self.name, task.id)
            _close(task)

    def _answer(self, answer: Answer) -> bool:
        """Send an answer to the stream thread. Returns False if the stream thread has ended."""
        try:
            if self.answers.try_put(answer):
                return True
        except BaseException:
            if not self.answers.closed:
                raise
            return False
        raise _overfull(self.name)


def _close(task: Task | StandbyTask) -> None:
    try:
        task.close()
    except Exception:
        log.exception("task %s didn't close cleanly", task.id)


def _overfull(name: str) -> MailboxFullError:
    return MailboxFullError(f"{name}: {CAPACITY} messages wait: the thread that is to read them hangs. This is a bug")
