"""What isn't committed is known without a look at tasks that nothing was told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.common.records import TaskId
from milestones.stream_thread.commits.uncommitted import Uncommitted
from tests.milestones.stream_thread.commits.scheduled import FakeTask


class Tasks:
    def __init__(self, count: int) -> None:
        self.all = [FakeTask(TaskId(0, number), needed=False) for number in range(count)]
        self.processing = {task.id: task for task in self.all}
        tasks: Any = SimpleNamespace(processing=self.processing)
        self.uncommitted = Uncommitted(tasks)

    def look(self, *told: Any) -> Uncommitted:
        self.uncommitted.note_changed(told)
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
        task.bytes, task.outputs = 10, 1
    found = t.look(*t.all)
    assert (found.bytes, found.commit_bytes) == (660, 600)
    t.all[0].bytes, t.all[0].applying = 100, True
    found = t.look(t.all[0])
    assert (found.bytes, found.commit_bytes) == (750, 590)


def test_a_task_that_left_counts_no_more_and_its_successor_by_itself() -> None:
    t = Tasks(60)
    former = t.all[3]
    former.bytes, former.requested = 10, True
    assert t.look(former).requested
    latter = t.processing[former.id] = FakeTask(former.id)
    latter.bytes = 4
    for told in ((latter, former), (former, latter)):
        found = t.look(*told)
        assert (found.bytes, found.requested, found.needed()) == (4, False, [latter])
    del t.processing[former.id]
    assert (t.look(latter).bytes, bool(t.uncommitted)) == (0, False)


def test_a_task_without_anything_to_commit_is_forgotten_until_it_is_told_of_again() -> None:
    t = Tasks(60)
    t.all[3].needed = True
    assert t.look(*t.all).needed() == [t.all[3]]
    t.all[3].needed = False
    assert (t.uncommitted.needed(), bool(t.uncommitted)) == ([], False)
    t.all[3].needed = True
    assert (t.uncommitted.needed(), t.look(t.all[3]).needed()) == ([], [t.all[3]])
