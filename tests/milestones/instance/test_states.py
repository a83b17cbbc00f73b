"""The tables of states: Kafka Streams' own."""

from __future__ import annotations

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


@pytest.mark.parametrize("old", StreamsState)
@pytest.mark.parametrize("new", StreamsState)
def test_a_client_moves_only_as_the_table_says(old: StreamsState, new: StreamsState) -> None:
    if new in STREAMS_MOVES[old]:
        assert moved(old, new) is new
    else:
        with pytest.raises(RuntimeError, match=f"{old.value} to {new.value}: this is a bug"):
            moved(old, new)


@pytest.mark.parametrize("old", ThreadState)
@pytest.mark.parametrize("new", ThreadState)
def test_a_thread_moves_only_as_the_table_says(old: ThreadState, new: ThreadState) -> None:
    if new in THREAD_MOVES[old]:
        assert thread_moved(old, new) is new
    else:
        with pytest.raises(RuntimeError, match=f"{old.value} to {new.value}: this is a bug"):
            thread_moved(old, new)


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
