"""The states of a task: the picture and the table say the same, and nothing else is possible."""

from __future__ import annotations

import pytest

from milestones.common.errors import OwnershipError
from milestones.common.records import TaskId
from milestones.common.task import lifecycle
from milestones.common.task.lifecycle import MOVES, Lifecycle, TaskState


def at(state: TaskState) -> Lifecycle:
    life = Lifecycle(TaskId(0, 1))
    life.state = state
    return life


def test_a_task_begins_as_created() -> None:
    assert Lifecycle(TaskId(0, 1)).state is TaskState.CREATED


@pytest.mark.parametrize("state", TaskState)
def test_every_move_is_allowed_by_the_table_or_refused_as_a_bug(state: TaskState) -> None:
    for target in TaskState:
        life = at(state)
        if target in MOVES[state]:
            life.move(target)
            assert life.state is target
        else:
            with pytest.raises(OwnershipError, match=rf"task 0_1 is {state.value}: it can't become {target.value}"):
                life.move(target)
            assert life.state is state


def test_every_state_but_closed_leads_to_closing_and_closed_leads_nowhere() -> None:
    last = TaskState.CLOSING, TaskState.CLOSED
    assert all(TaskState.CLOSING in MOVES[state] for state in TaskState if state not in last)
    assert (MOVES[TaskState.CLOSING], MOVES[TaskState.CLOSED]) == ({TaskState.CLOSED}, frozenset())


def test_every_state_can_be_reached() -> None:
    reached, waiting = set(), [TaskState.CREATED]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached.add(state)
            waiting += MOVES[state]
    assert reached == set(TaskState)


def test_the_picture_shows_every_state() -> None:
    assert all(state.name in lifecycle.__doc__ for state in TaskState)


def test_what_needs_a_state_says_which() -> None:
    with pytest.raises(OwnershipError, match=r"it must be ready or running for this"):
        at(TaskState.CREATED).expect(TaskState.READY, TaskState.RUNNING)
