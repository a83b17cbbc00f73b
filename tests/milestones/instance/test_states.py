"""The tables of states: Kafka Streams' own."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from milestones.instance.states import (
    ALIVE_THREADS,
    STREAMS_MOVES,
    THREAD_MOVES,
    StreamsState,
    ThreadState,
    moved,
    thread_moved,
)


@pytest.mark.parametrize(
    ("states", "moves", "begin", "ends"),
    [
        (StreamsState, STREAMS_MOVES, StreamsState.CREATED, {StreamsState.NOT_RUNNING, StreamsState.ERROR}),
        (ThreadState, THREAD_MOVES, ThreadState.CREATED, {ThreadState.DEAD}),
    ],
)
def test_every_state_is_in_the_table_can_be_reached_and_has_a_way_to_an_end(
    states: Any, moves: Any, begin: Any, ends: Any
) -> None:
    assert moves.keys() == set(states)
    assert {state for state in states if not moves[state]} == ends
    reached, new = {begin}, {begin}
    while new:
        new = {target for state in new for target in moves[state]} - reached
        reached |= new
    assert reached == set(states)


@pytest.mark.parametrize(
    ("move", "moves", "old", "new"),
    [*((moved, STREAMS_MOVES, *pair) for pair in product(StreamsState, repeat=2)),
     *((thread_moved, THREAD_MOVES, *pair) for pair in product(ThreadState, repeat=2))],
)  # fmt: skip
def test_a_client_and_a_thread_move_only_as_their_tables_say(move: Any, moves: Any, old: Any, new: Any) -> None:
    if new in moves[old]:
        assert move(old, new) is new
    else:
        with pytest.raises(RuntimeError, match=f"{old.value} to {new.value}: this is a bug"):
            move(old, new)


def test_a_thread_runs_only_after_an_assignment() -> None:
    assert {state for state in ThreadState if ThreadState.RUNNING in THREAD_MOVES[state]} == {
        ThreadState.PARTITIONS_ASSIGNED,
        ThreadState.RUNNING,
    }


def test_a_thread_that_is_alive_can_always_be_shut_down() -> None:
    assert all(ThreadState.PENDING_SHUTDOWN in THREAD_MOVES[state] for state in ALIVE_THREADS)


def test_a_client_that_has_ended_stays_so() -> None:
    assert not STREAMS_MOVES[StreamsState.NOT_RUNNING]
    assert not STREAMS_MOVES[StreamsState.ERROR]


@pytest.mark.parametrize(
    ("question", "states"),
    [
        ("has_not_started", {"CREATED"}),
        ("is_running_or_rebalancing", {"RUNNING", "REBALANCING"}),
        ("is_shutting_down", {"PENDING_SHUTDOWN", "PENDING_ERROR"}),
        ("has_completed_shutdown", {"NOT_RUNNING", "ERROR"}),
    ],
)
def test_a_state_says_where_a_client_is_in_its_life(question: str, states: set[str]) -> None:
    assert {state.name for state in StreamsState if getattr(state, question)} == states


def test_a_state_may_become_what_the_table_says() -> None:
    assert StreamsState.CREATED.may_become(StreamsState.REBALANCING)
    assert not StreamsState.ERROR.may_become(StreamsState.RUNNING)
