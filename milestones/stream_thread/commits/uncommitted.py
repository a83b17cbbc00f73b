"""What the tasks of a thread have that isn't committed, without a look at those that nothing has happened to.

*Guarantees*: a task that has something to commit, or asks for a commit, is among `tasks`, or was told and not looked at
yet; byte counts are those of each task's last look.
*Assumes*: whatever changes a task is told of once it has happened; a task that left is told of, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task
    from milestones.stream_thread.rollback_metrics import RollBacks


class CommittedTasks(Protocol):
    """The tasks that a schedule commits, and how often they were rolled back."""

    @property
    def processing(self) -> Mapping[TaskId, Task]: ...

    @property
    def roll_backs(self) -> RollBacks: ...

    def is_void(self, task: TaskId) -> bool:
        """Whether what the task has done since its last commit mustn't be committed."""
        ...


class Uncommitted:
    """*Owns*: the tasks that were told of since they were last found without anything to commit; their byte counts.

    `bytes`: memory of what isn't committed, its outputs too; `commit_bytes`: of what a commit would take, without what
    is being applied already."""

    bytes: int
    commit_bytes: int

    def __init__(self, tasks: CommittedTasks) -> None:
        self._thread_tasks = tasks
        self._told: dict[Task, None] = {}
        self._tasks: dict[TaskId, Task] = {}
        self._asking: set[TaskId] = set()
        self._counts: dict[TaskId, tuple[int, int]] = {}
        self.bytes = self.commit_bytes = 0

    def __bool__(self) -> bool:
        """Whether any task may have something to commit."""
        return bool(self._tasks)

    @property
    def requested(self) -> bool:
        """Whether a task asks for a commit."""
        return bool(self._asking)

    def note_changed(self, tasks: Iterable[Task]) -> None:
        """Something has happened to these tasks."""
        self._told.update(dict.fromkeys(tasks))

    def look(self) -> None:
        """Look at the tasks that were told of."""
        told, self._told = self._told, {}
        processing = self._thread_tasks.processing
        for task in told:
            if processing.get(task.id) is task:
                self._look_at(task)
            elif self._tasks.get(task.id) is task:
                self._forget(task.id)

    def _look_at(self, task: Task) -> None:
        self._forget(task.id)
        self._tasks[task.id] = task
        if task.commit_requested():
            self._asking.add(task.id)
        state = task.uncommitted_bytes()
        self._count(task.id, state + task.output_bytes(), 0 if task.applying else state)

    def _count(self, id: TaskId, held: int, to_commit: int) -> None:
        self._counts[id] = held, to_commit
        self.bytes, self.commit_bytes = self.bytes + held, self.commit_bytes + to_commit

    def _forget(self, id: TaskId) -> None:
        self._tasks.pop(id, None)
        self._asking.discard(id)
        held, to_commit = self._counts.pop(id, (0, 0))
        self.bytes, self.commit_bytes = self.bytes - held, self.commit_bytes - to_commit

    def greedy(self) -> frozenset[TaskId]:
        """The tasks that hold more than an equal share of `bytes`, those counted that hold nothing."""
        share = self.bytes // max(1, len(self._thread_tasks.processing))
        return frozenset(id for id, (held, _) in self._counts.items() if held > share)

    def needed(self) -> list[Task]:
        """The tasks that have something to commit. The others are forgotten until they are told of again."""
        processing = self._thread_tasks.processing
        for id, task in list(self._tasks.items()):
            if processing.get(id) is not task or not task.commit_needed():
                self._forget(id)
        return list(self._tasks.values())
