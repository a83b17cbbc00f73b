"""Threads that are added, removed, and that die, by several threads at one moment: the client goes on, and each request
is answered."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from milestones.client.client_events import AddThread, RemoveThread
from milestones.common.errors import MilestonesError, ProcessingError
from milestones.instance.context import ThreadFailed, UncaughtExceptionResponse
from milestones.instance.states import StreamsState, ThreadState
from milestones.testing import until
from tests.milestones.client.fake_threads import WAIT_S, Client, FakeThread
from tests.milestones.fakes import A

pytestmark = pytest.mark.usefixtures("fake_threads")

T = ThreadState
UP = (T.STARTING, T.PARTITIONS_REVOKED, T.PARTITIONS_ASSIGNED, T.RUNNING)
PREEMPTED_S = 0.3


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads are switched as often as it gets."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_a_thread_is_added_before_it_is_removed_although_the_adding_thread_is_preempted() -> None:
    c = Client(num_stream_threads=1).begin()
    told, tell, removers = list[str](), c.supervisor._told, list[threading.Thread]()

    def preempted(event: Any) -> bool:
        if isinstance(event, AddThread):
            removers.append(threading.Thread(target=lambda: c.supervisor.remove_thread(None, WAIT_S)))
            removers[0].start()
            removers[0].join(PREEMPTED_S)
        if isinstance(event, AddThread | RemoveThread):
            told.append(f"{type(event).__name__} {event.number}")
        return tell(event)

    c.supervisor._told = preempted  # type: ignore[method-assign]
    c.supervisor.add_thread()
    c.until(lambda: len(FakeThread.all) == 2)
    added = FakeThread.all[1]
    until(lambda: added.stopped == [True], "the remover's thread has told the supervisor", WAIT_S)
    added.moves(T.STARTING, T.PENDING_SHUTDOWN, T.DEAD)
    removers[0].join(WAIT_S)
    assert not removers[0].is_alive()
    assert told == ["AddThread 2", "RemoveThread 2"]
    assert (c.supervisor.error, c.supervisor.thread_registry.numbers()) == (None, [1])


@pytest.mark.usefixtures("switching")
def test_threads_may_be_added_and_removed_by_several_user_threads_at_once() -> None:
    c = Client(num_stream_threads=1).begin()
    obey = threading.Lock()

    def obeys(thread: FakeThread) -> None:
        with obey:
            if thread.started and len(thread.stopped) == 1:
                thread.moves(T.STARTING, T.PENDING_SHUTDOWN, T.DEAD)

    stop: Any = FakeThread.stop

    def stopped(self: FakeThread, *, leave_group: bool) -> None:
        stop(self, leave_group=leave_group)
        obeys(self)

    def change(call: Callable[[], object]) -> None:
        for _ in range(200):
            with suppress(MilestonesError):
                call()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeThread, "stop", stopped)
        calls = [c.supervisor.add_thread, lambda: c.supervisor.remove_thread(None, WAIT_S)] * 2
        users = [threading.Thread(target=change, args=(call,)) for call in calls]
        for user in users:
            user.start()
        for user in users:
            user.join(WAIT_S)
        assert not any(user.is_alive() for user in users), "each removal is answered"
        c.settle()
        # It is RUNNING if at some moment there was no thread.
        assert c.supervisor.state in (StreamsState.REBALANCING, StreamsState.RUNNING)
        assert c.supervisor.error is None
        assert c.supervisor.thread_registry.leaving == frozenset()
        c.end()


def moves(*states: ThreadState) -> list[Callable[[FakeThread], None]]:
    return [lambda thread, state=state: thread.moves(state) for state in states]  # type: ignore[misc]


def fails(thread: FakeThread) -> None:
    error = ProcessingError("user code", A)
    thread.context.notify(ThreadFailed(thread.name, error, UncaughtExceptionResponse.REPLACE_THREAD))


LIVES: dict[str, list[Callable[[FakeThread], None]]] = {
    "starts and ends": moves(*UP, T.PENDING_SHUTDOWN, T.DEAD),
    "dies while it starts": [*moves(T.STARTING, T.PENDING_SHUTDOWN), fails],
    "dies while it runs": [*moves(*UP, T.PENDING_SHUTDOWN), fails],
}


@pytest.mark.parametrize("life", LIVES)
def test_a_removal_between_any_two_messages_of_a_thread_is_answered(life: str) -> None:
    """Its number is free again then, and another thread gets it."""
    for at in range(1, len(LIVES[life]) + 1):
        c = Client(num_stream_threads=2).begin()
        thread, steps = FakeThread.all[-1], LIVES[life]
        for step in steps[:at]:
            step(thread)
        c.settle()
        asked, tell = threading.Event(), c.supervisor._told

        def told(event: Any, tell: Any = tell, asked: threading.Event = asked) -> Any:
            is_told = tell(event)
            if isinstance(event, RemoveThread):
                asked.set()
            return is_told

        c.supervisor._told = told  # type: ignore[method-assign]
        remover = threading.Thread(target=lambda c=c: c.supervisor.remove_thread(None, WAIT_S))  # type: ignore[misc]
        remover.start()
        assert asked.wait(WAIT_S)
        c.settle()
        for step in steps[at:]:
            step(thread)
        successor = FakeThread.all[-1]
        if successor is not thread:
            successor.moves(T.STARTING, T.PENDING_SHUTDOWN, T.DEAD)
        remover.join(WAIT_S)
        assert not remover.is_alive(), f"the removal is answered after message {at}"
        assert c.settle().supervisor.thread_registry.leaving == frozenset()
        assert c.supervisor.add_thread().endswith("-2")
        c.end()
        FakeThread.all = []
