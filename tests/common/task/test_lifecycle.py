"""The states of a task: the picture and the table say the same, and nothing else is possible."""

from __future__ import annotations

import pytest

from milestones.common.errors import OwnershipError
from milestones.common.records import TaskId
from milestones.common.task import lifecycle
from milestones.common.task.lifecycle import MOVES, Lifecycle, State


def at(state: State) -> Lifecycle:
    life = Lifecycle(TaskId(0, 1))
    life.state = state
    return life


def test_a_task_begins_as_created() -> None:
    assert Lifecycle(TaskId(0, 1)).state is State.CREATED


@pytest.mark.parametrize("state", State)
def test_every_move_is_allowed_by_the_table_or_refused_as_a_bug(state: State) -> None:
    for target in State:
        life = at(state)
        if target in MOVES[state]:
            life.move(target)
            assert life.state is target
        else:
            with pytest.raises(OwnershipError, match=rf"task 0_1 is {state.value}: it can't become {target.value}"):
                life.move(target)
            assert life.state is state


def test_every_state_but_closed_leads_to_closing_and_closed_leads_nowhere() -> None:
    assert all(State.CLOSING in MOVES[state] for state in State if state not in (State.CLOSING, State.CLOSED))
    assert (MOVES[State.CLOSING], MOVES[State.CLOSED]) == ({State.CLOSED}, frozenset())


def test_every_state_can_be_reached() -> None:
    reached, waiting = set(), [State.CREATED]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached.add(state)
            waiting += MOVES[state]
    assert reached == set(State)


def test_the_picture_shows_every_state() -> None:
    assert all(state.name in lifecycle.__doc__ for state in State)


def test_what_needs_a_state_says_which() -> None:
    with pytest.raises(OwnershipError, match=r"it must be ready or running for this"):
        at(State.CREATED).expect(State.READY, State.RUNNING)
