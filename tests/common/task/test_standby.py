"""A standby, and open stores that go from one role of a task to the other."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.errors import OwnershipError, StateLockedError
from milestones.common.records import TaskId
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import TaskState
from tests.common.task.harness import Harness, a_store, message, processing


def put(context: Any, record: Any) -> None:
    context.get_state_store("store").put(record.key, record.value)


def standby_of(harness: Any, opener: Any = None) -> StandbyTask:
    task = harness.task
    standby = StandbyTask(TaskId(0, 0), task.subtopology, opener or (lambda: harness.state))
    standby.open()
    return standby


@pytest.fixture
def harness() -> Any:
    """A task that puts what it is given into a store."""
    return Harness(processing(put, [a_store()]))


def test_a_standby_takes_changelog_records_and_stands_behind_them(harness: Any) -> None:
    standby = standby_of(harness)
    assert (standby.state, standby.changelog_offsets()) == (TaskState.STANDBY, {"store": None})
    standby.restore("store", [message(0, b"a", b"1", 5), message(1, b"a", None, 5)], 4)
    assert (harness.engine("store"), standby.changelog_offsets(), standby.counters.restored) == ({}, {"store": 4}, 2)
    standby.close()
    standby.close()
    assert (standby.state, harness.state.closed) == (TaskState.CLOSED, 1)


def test_a_standby_whose_directory_is_locked_can_be_asked_to_open_again(harness: Any) -> None:
    def locked() -> Any:
        raise StateLockedError("held")

    standby = StandbyTask(TaskId(0, 0), harness.task.subtopology, locked)
    for _ in range(2):
        with pytest.raises(StateLockedError):
            standby.open()
    standby.close()
    assert standby.state is TaskState.CLOSED


def test_a_standby_without_content_in_a_store_starts_it_from_the_beginning(harness: Any) -> None:
    standby = standby_of(harness)
    standby.restore("store", [message(0, b"a", b"1", 5)], 1)
    standby.clear("store", "a test")
    assert (harness.engine("store"), standby.changelog_offsets()) == ({}, {"store": None})


def test_a_recycled_standby_is_closed_and_its_stores_are_the_active_tasks(harness: Any) -> None:
    standby = standby_of(harness)
    standby.restore("store", [message(0, b"a", b"1", 5)], 1)
    assert standby.recycle() is harness.state
    assert (standby.state, harness.state.closed) == (TaskState.CLOSED, 0)
    standby.close()
    assert harness.state.closed == 0
    with pytest.raises(OwnershipError, match="closed"):
        standby.restore("store", [], 2)
    harness.start()
    assert harness.task.changelog_offsets() == {"store": 1}
    harness.pipe(("b", "2", 6))
    harness.ends["store"] = 1
    assert harness.task.store("store").get("a") == "1"


def test_a_recycled_task_gives_its_stores_away_with_what_is_committed_and_no_more(harness: Any) -> None:
    harness.start()
    harness.pipe(("a", "1", 5))
    harness.commit()
    harness.pipe(("a", "2", 6))
    store = harness.task.store("store")
    standby = standby_of(harness, harness.task.recycle)
    assert (harness.task.state, harness.state.closed) == (TaskState.CLOSED, 0)
    assert harness.engine("store") == {b"a": b"1"}
    assert standby.changelog_offsets() == {"store": 1}
    with pytest.raises(Exception, match="store"):
        store.get("a")


def test_a_task_can_be_recycled_before_it_has_started(harness: Any) -> None:
    closed: list[int] = []
    harness = Harness(processing(put, [a_store()], close=lambda: closed.append(1)))
    harness.task.open()
    standby = standby_of(harness, harness.task.recycle)
    assert (standby.state, closed) == (TaskState.STANDBY, [])


def test_a_processor_that_fails_to_close_while_its_task_is_recycled_closes_the_stores_too() -> None:
    def fails() -> None:
        raise ValueError("user's close")

    harness = Harness(processing(put, [a_store()], close=fails)).start()
    with pytest.raises(ValueError, match="user's close"):
        harness.task.recycle()
    assert (harness.task.state, harness.state.closed) == (TaskState.CLOSED, 1)


def test_a_standby_knows_which_of_its_changelogs_are_inputs() -> None:
    harness = Harness(processing(put, [a_store(source_topic="in"), a_store("other")]))
    standby = StandbyTask(TaskId(0, 3), harness.task.subtopology, lambda: harness.state)
    assert standby.source_changelogs == {("in", 3)}
