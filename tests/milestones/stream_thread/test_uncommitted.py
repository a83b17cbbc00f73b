"""What isn't committed is known without a look at tasks that nothing was told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.common.records import TaskId
from milestones.stream_thread.uncommitted import Uncommitted


class Task:
    """As far as it is asked; `looks`: how often it was."""

    def __init__(self, partition: int) -> None:
        self.id = TaskId(0, partition)
        self.state = self.outputs = self.looks = 0
        self.asks = self.applying = False

    def uncommitted_bytes(self) -> int:
        self.looks += 1
        return self.state

    def output_bytes(self) -> int:
        return self.outputs

    def commit_requested(self) -> bool:
        return self.asks

    def commit_needed(self) -> bool:
        return bool(self.state or self.outputs)


class Tasks:
    def __init__(self, count: int) -> None:
        self.all = [Task(number) for number in range(count)]
        self.processing = {task.id: task for task in self.all}
        tasks: Any = SimpleNamespace(processing=self.processing)
        self.uncommitted = Uncommitted(tasks)

    def look(self, *told: Any) -> Uncommitted:
        self.uncommitted.tell(told)
        self.uncommitted.look()
        return self.uncommitted


def test_of_sixty_tasks_only_those_are_looked_at_that_were_told_of() -> None:
    t = Tasks(60)
    for _ in range(100):
        t.look(t.all[7], t.all[41])
    assert [task.id.partition for task in t.all if task.looks] == [7, 41]


def test_bytes_are_those_of_each_tasks_last_look() -> None:
    t = Tasks(60)
    for task in t.all:
        task.state, task.outputs = 10, 1
    found = t.look(*t.all)
    assert (found.bytes, found.commit_bytes) == (660, 600)
    t.all[0].state, t.all[0].applying = 100, True
    found = t.look(t.all[0])
    assert (found.bytes, found.commit_bytes) == (750, 590)


def test_a_task_that_left_counts_no_more_and_its_successor_by_itself() -> None:
    t = Tasks(60)
    former = t.all[3]
    former.state, former.asks = 10, True
    assert t.look(former).requested
    latter = t.processing[former.id] = Task(3)
    latter.state = 4
    for told in ((latter, former), (former, latter)):
        found = t.look(*told)
        assert (found.bytes, found.requested, found.needed()) == (4, False, [latter])
    del t.processing[former.id]
    assert (t.look(latter).bytes, bool(t.uncommitted)) == (0, False)


def test_a_task_without_anything_to_commit_is_forgotten_until_it_is_told_of_again() -> None:
    t = Tasks(60)
    t.all[3].state = 10
    assert t.look(*t.all).needed() == [t.all[3]]
    t.all[3].state = 0
    assert (t.uncommitted.needed(), bool(t.uncommitted)) == ([], False)
    t.all[3].state = 10
    assert (t.uncommitted.needed(), t.look(t.all[3]).needed()) == ([], [t.all[3]])
