"""The register of tasks: one place for each, and no move that isn't in the table."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.errors import OwnershipError
from milestones.common.records import TaskId, TopicPartition
from milestones.stream_thread.task_registry import MOVES, STANDBY, AssignedTask, Phase, Role, TaskRegistry

A = TaskId(0, 0)
ACTIVE = Role(frozenset({TopicPartition("in", 0)}))
WAYS = {
    Phase.WAITING: (),
    Phase.OPENING: (Phase.OPENING,),
    Phase.POSITIONING: (Phase.POSITIONING,),
    Phase.RESTORING: (Phase.POSITIONING, Phase.RESTORING),
    Phase.STARTING: (Phase.POSITIONING, Phase.STARTING),
    Phase.PROCESSING: (Phase.POSITIONING, Phase.STARTING, Phase.PROCESSING),
    Phase.RETURNING: (Phase.POSITIONING, Phase.STARTING, Phase.PROCESSING, Phase.RETURNING),
    Phase.STANDBY: (Phase.STANDBY,),
    Phase.LEAVING: (Phase.LEAVING,),
    Phase.ENDED: (Phase.LEAVING, Phase.ENDED),
    Phase.GONE: (Phase.GONE,),
}


def at(phase: Phase) -> tuple[TaskRegistry, AssignedTask]:
    """A register whose one task has gone the shortest way to that phase."""
    registry = TaskRegistry()
    registry.enter(A, ACTIVE)
    task = registry[A]
    for step in WAYS[phase]:
        registry.move(task, step)
    return registry, task


@pytest.mark.parametrize(("before", "after"), list(product(Phase, Phase)), ids=lambda phase: phase.value)
def test_a_task_moves_as_the_table_says_and_is_in_one_phase(before: Phase, after: Phase) -> None:
    registry, task = at(before)
    if after in MOVES[before]:
        registry.move(task, after)
        now = after
    else:
        with pytest.raises(OwnershipError, match=f"is {before.value}: it can't be {after.value}"):
            registry.move(task, after)
        now = before
    assert registry.places() == ({} if now is Phase.GONE else {A: now})
    assert [phase for phase in Phase if registry.of(phase)] == ([] if now is Phase.GONE else [now])
    assert registry.processing.keys() == ({A} if now is Phase.PROCESSING else set())


def test_every_phase_can_be_reached_and_left_but_gone() -> None:
    assert set(WAYS) == set(MOVES) == set(Phase)
    assert {phase for phase in Phase if not MOVES[phase]} == {Phase.GONE}
    assert set[Phase]().union(*MOVES.values()) == set(Phase)


def test_a_task_that_leaves_takes_along_what_was_known_of_it_and_waits_in_the_role_it_has_then() -> None:
    registry, task = at(Phase.PROCESSING)
    known: Any = SimpleNamespace()
    task.task, task.damage, task.rolled_back = known, {"counts": "a test"}, True
    task.role = STANDBY
    registry.move(task, Phase.LEAVING)
    assert (task.task, task.rolled_back, task.role) == (None, False, STANDBY)
    assert task.damage == {"counts": "a test"}, "the store hasn't been set aside"
    registry.move(task, Phase.WAITING)
    assert registry.places() == {A: Phase.WAITING}


def test_a_task_is_entered_once() -> None:
    registry, _ = at(Phase.STANDBY)
    with pytest.raises(OwnershipError, match="entered twice"):
        registry.enter(A, ACTIVE)


def test_a_look_at_a_phase_costs_as_much_as_there_are_tasks_in_it() -> None:
    registry = TaskRegistry()
    for partition in range(500):
        registry.enter(TaskId(0, partition), ACTIVE)
    for partition in range(50):
        registry.move(registry[TaskId(0, partition)], Phase.OPENING)
    assert [entry.id.partition for entry in registry.of(Phase.OPENING)] == list(range(50))
    assert (len(registry.of(Phase.WAITING)), registry.any(Phase.STANDBY, Phase.LEAVING)) == (450, False)
