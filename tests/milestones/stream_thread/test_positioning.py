"""When tasks are asked about, so that those that come together begin together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.common.records import TopicPartition
from milestones.stream_thread.positioning import GATHER_MS, Positioning
from tests.milestones.fakes import World, passing


class Asking:
    """A part that positions tasks, and which partitions each of its questions is about."""

    def __init__(self) -> None:
        self.questions: list[set[int]] = []
        world = World(passing())
        clients: Any = SimpleNamespace(member=self)
        self.positioning = Positioning(world.context, clients)
        self.tasks: list[Any] = []

    def joining(self) -> bool:
        return False

    def fetch_offsets(self, _number: int, partitions: frozenset[TopicPartition], _answers: object) -> None:
        self.questions.append({partition.partition for partition in partitions})

    def open(self, *numbers: int) -> None:
        for number in numbers:
            task = SimpleNamespace(partitions=frozenset({TopicPartition("in", number)}))
            self.tasks.append(_Entry(task))

    def turn(self, now_ms: int, *, opening: bool) -> list[set[int]]:
        self.positioning.run_once(self.tasks, now_ms, opening=opening)
        return self.questions


class _Entry:
    def __init__(self, task: Any) -> None:
        self.id, self.active_task, self.rolled_back = task, task, False


def test_tasks_whose_stores_are_opened_one_after_the_other_are_asked_about_in_one_question() -> None:
    a = Asking()
    a.open(0, 1)
    assert a.turn(0, opening=True) == []
    a.open(2)
    assert a.turn(GATHER_MS - 1, opening=False) == [{0, 1, 2}]


def test_a_task_does_not_wait_for_one_whose_stores_take_long_to_open() -> None:
    a = Asking()
    a.open(0)
    assert a.turn(0, opening=True) == []
    assert a.turn(GATHER_MS, opening=True) == [{0}]
    a.open(1)
    assert a.turn(GATHER_MS, opening=True) == [{0}, {1}]
