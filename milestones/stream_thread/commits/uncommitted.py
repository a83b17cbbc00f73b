"""Knows which tasks of a thread have uncommitted work. It never looks at tasks that haven't changed.

*Guarantees*: `Uncommitted` knows each task that has something to commit, or asks for a commit. The only exceptions are
tasks that `note_changed` was called with since the last look. The byte counts are those of the last look at each task.
*Assumes*: after each change of a task `note_changed` is called with it, also when the task has left.
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
        """True if the work of the task since its last commit mustn't be committed."""
        ...


class Uncommitted:
    """*Owns*: the tasks that have changed since they were last found to have nothing to commit; their byte counts.

    `bytes`: the memory of all uncommitted work, including outputs. `commit_bytes`: the memory of the writes that a
    commit would take. While a task's confirmed writes are being applied, the task doesn't count for `commit_bytes`."""

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
        """True if any task may have something to commit."""
        return bool(self._tasks)

    @property
    def requested(self) -> bool:
        """True if a task asks for a commit."""
        return bool(self._asking)

    def note_changed(self, tasks: Iterable[Task]) -> None:
        """Record that these tasks have changed."""
        self._told.update(dict.fromkeys(tasks))

    def look(self) -> None:
        """Look at the tasks that `note_changed` was called with since the last look."""
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
        """Return the tasks that hold more than an equal share of `bytes`. An equal share is `bytes` divided by the
        number of all tasks that process."""
        share = self.bytes // max(1, len(self._thread_tasks.processing))
        return frozenset(id for id, (held, _) in self._counts.items() if held > share)

    def needed(self) -> list[Task]:
        """Return the tasks that have something to commit, and forget the others until they change."""
        processing = self._thread_tasks.processing
        for id, task in list(self._tasks.items()):
            if processing.get(id) is not task or not task.commit_needed():
                self._forget(id)
        return list(self._tasks.values())
