"""Where tasks change hands between a stream thread and one state updater.

*Guarantees*: a task that was put in comes out once: answered, or, when the updater ends, handed out with its error. A
task that comes too late, because its stream thread has ended, is closed here. No call waits.
*Assumes*: the stream thread puts requests in, the updater takes them and answers.
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
    """One updater's mailboxes, and the tasks that it has.

    *Owns*, on the updater's side: `held`. *Concurrency*: `progress` is an immutable mapping, by the number of a stay,
    swapped whole by the updater and read by the stream thread.
    """

    def __init__(self, name: str, answers: Mailbox[Answer]) -> None:
        self.name = name
        self.requests: Mailbox[Request] = Mailbox(CAPACITY, f"{name} requests")
        self.answers = answers
        self.held: dict[TaskId, tuple[int, Task | StandbyTask]] = {}
        self.progress: Mapping[int, RestoreProgress] = {}

    # -- the stream thread's side

    def put(self, request: Request) -> bool:
        """False: the updater has ended, and won't read it."""
        try:
            if self.requests.try_put(request):
                return True
        except BaseException:  # a closed mailbox raises what its reader died of, whatever that is
            if not self.requests.closed:
                raise
            return False
        raise _overfull(self.name)

    # -- the updater's side

    def take(self) -> list[Request]:
        """What was asked for; all tasks in it are the updater's from now on, whatever becomes of the first of them."""
        return self._hold(self.requests.drain())

    def _hold(self, requests: list[Request]) -> list[Request]:
        for request in requests:
            if isinstance(request, Add | AddStandby):
                self.held[request.task.id] = request.number, request.task
        return requests

    def has(self, number: int, id: TaskId) -> bool:
        """Whether this stay of the task hasn't ended. `held` may have a later one, of the same batch of requests."""
        return id in self.held and self.held[id][0] == number

    def restored(self, task: Task) -> None:
        self._hand_out(task, Restored(task))

    def failed(self, task: Task | StandbyTask, error: BaseException) -> None:
        self._hand_out(task, RestorationFailed(task, error, died=False))

    def removed(self, task: Task | StandbyTask) -> None:
        self._hand_out(task, Removed(task))

    def end(self, error: BaseException | None) -> None:
        """The updater ends: hand out all it has, and what was sent to it in vain."""
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
            log.info("%s: task %s is back after the end of its thread, and closed", self.name, task.id)
            _close(task)

    def _answer(self, answer: Answer) -> bool:
        """False: the stream thread has ended."""
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
