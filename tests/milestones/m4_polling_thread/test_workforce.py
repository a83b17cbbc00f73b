"""A client with one polling thread: processing threads that come and go, over a fake polling thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milestones import wiring
from milestones.client.client_events import RemoveThread
from milestones.common.errors import MilestonesError, ProcessingError
from milestones.instance.context import ProcessingThreadMoved, ThreadReport, UncaughtExceptionResponse
from milestones.instance.states import StreamsState, ThreadState
from milestones.m4_polling_thread.workforce import PollingWorkforce
from tests.milestones.client import fake_threads
from tests.milestones.client.fake_threads import WAIT_S, Client, FakeThread
from tests.milestones.fakes import A

pytestmark = pytest.mark.usefixtures("fake_threads")

T = ThreadState
UP = (T.STARTING, T.PARTITIONS_REVOKED, T.PARTITIONS_ASSIGNED, T.RUNNING)


class FakePolling(PollingWorkforce):
    def make(self, context: Any) -> Any:
        return FakeThread(context)


class Polling(Client):
    """A client whose polling thread is up, and has told of its processing threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        instance = replace(
            wiring.BASELINE.instance, workforce=FakePolling, state_manager=lambda *_: None, observers=()  # type: ignore[arg-type,return-value]
        )
        monkeypatch.setattr(fake_threads, "parts", lambda *_: replace(wiring.BASELINE, instance=instance))
        super().__init__(**settings)
        self.supervisor.begin()
        self.until(lambda: len(FakeThread.all) == 1)
        self.obeys(*self.supervisor.thread_registry.numbers())

    def obeys(self, *numbers: int) -> None:
        """The newest polling thread is up, with these threads, and ends when it is asked to."""
        polling = FakeThread.all[-1]
        polling.on_stop = lambda: polling.moves(T.PENDING_SHUTDOWN, T.DEAD)
        polling.moves(*UP)
        for number in numbers:
            self.tells(number, T.RUNNING)
        self.settle()

    def tells(self, number: int, state: ThreadState, serial: int | None = None) -> None:
        serial = self.supervisor.thread_registry.serial(number) if serial is None else serial
        polling = FakeThread.all[-1]
        name = f"app-process-ProcessingThread-{number}"
        polling.context.notify(ProcessingThreadMoved(polling.name, name, serial, state.value))

    def take(self, event: Any) -> Any:
        """The polling thread tells of a thread that has left until its number is free."""
        taken = super().take(event)
        if isinstance(event, RemoveThread) and not FakeThread.all[-1].stopped:
            self.tells(event.number, T.DEAD)
        return taken

    @property
    def threads(self) -> dict[str, str]:
        return {
            name.removeprefix("app-process-"): state.value for name, state in self.supervisor.status().threads.items()
        }


def test_the_status_shows_the_polling_thread_and_its_processing_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Polling(monkeypatch, num_processing_threads=2)
    assert c.threads == {
        "PollingThread": "RUNNING", "ProcessingThread-1": "RUNNING", "ProcessingThread-2": "RUNNING",
    }  # fmt: skip
    assert [thread.name for thread in FakeThread.all] == ["app-process-PollingThread"]
    assert c.supervisor.state is StreamsState.RUNNING


def test_the_threads_are_as_many_as_stream_threads_unless_something_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(Polling(monkeypatch, num_stream_threads=3).threads) == 1 + 3


def test_a_thread_is_added_without_another_one_that_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Polling(monkeypatch)
    assert c.supervisor.add_thread() == "app-process-ProcessingThread-2"
    c.settle()
    assert len(FakeThread.all) == 1
    assert c.supervisor.thread_registry.numbers() == [1, 2]
    assert c.supervisor.state is StreamsState.RUNNING


def test_a_removal_returns_once_the_thread_has_ended_and_the_polling_thread_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Polling(monkeypatch, num_processing_threads=3)
    assert c.supervisor.remove_thread("app-process-ProcessingThread-2", WAIT_S).endswith("ProcessingThread-2")
    assert c.settle().threads == {
        "PollingThread": "RUNNING", "ProcessingThread-1": "RUNNING", "ProcessingThread-3": "RUNNING",
    }  # fmt: skip
    assert FakeThread.all[0].stopped == []
    assert c.supervisor.add_thread() == "app-process-ProcessingThread-2"


def test_a_late_word_of_the_end_of_a_thread_says_nothing_of_the_next_one_of_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Polling(monkeypatch, num_processing_threads=2)
    registry, before = c.supervisor.thread_registry, c.supervisor.thread_registry.serial(2)
    c.supervisor.remove_thread("app-process-ProcessingThread-2", WAIT_S)
    assert c.supervisor.add_thread() == "app-process-ProcessingThread-2"
    c.settle()
    c.tells(2, T.RUNNING)
    c.tells(2, T.DEAD, before)
    c.settle()
    assert c.threads["ProcessingThread-2"] == "RUNNING"
    monkeypatch.setattr(c, "tells", lambda *_: None)
    with pytest.raises(MilestonesError, match="hasn't ended within"):
        c.supervisor.remove_thread("app-process-ProcessingThread-2", 0.01)
    Polling.tells(c, 2, T.DEAD, before)
    c.settle()
    assert 2 in registry.leaving
    Polling.tells(c, 2, T.DEAD)
    c.until(lambda: 2 not in registry.leaving)


def test_a_stream_thread_of_an_earlier_stage_is_no_thread_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Polling(monkeypatch)
    with pytest.raises(MilestonesError, match=r"no thread is called 'app-process-StreamThread-1'.*-ProcessingThread-1"):
        c.supervisor.remove_thread("app-process-StreamThread-1", WAIT_S)


def test_with_the_last_thread_the_member_leaves_and_with_the_next_one_it_joins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Polling(monkeypatch, group_instance_id="me")
    polling = FakeThread.all[0]
    polling.context.notify(ThreadReport(polling.name, {}, {}, {}, 40, 1))
    c.supervisor.remove_thread(None, WAIT_S)
    assert polling.stopped == [True]
    assert (c.settle().threads, c.supervisor.state) == ({}, StreamsState.RUNNING)
    with pytest.raises(MilestonesError, match="all have been removed"):
        c.supervisor.remove_thread(None, WAIT_S)
    assert c.supervisor.add_thread() == "app-process-ProcessingThread-1"
    c.until(lambda: len(FakeThread.all) == 2)
    c.obeys(1)
    assert c.threads == {"PollingThread": "RUNNING", "ProcessingThread-1": "RUNNING"}
    assert c.supervisor.status().records == 40


def test_a_thread_that_is_added_while_the_member_leaves_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Polling(monkeypatch)
    first = FakeThread.all[0]
    first.on_stop = lambda: first.moves(T.PENDING_SHUTDOWN)
    with pytest.raises(MilestonesError, match="hasn't ended within"):
        c.supervisor.remove_thread(None, 0.01)
    c.supervisor.add_thread()
    assert len(FakeThread.all) == 1
    first.moves(T.DEAD)
    c.settle().settle().until(lambda: len(FakeThread.all) == 2)
    assert FakeThread.all[1].started


def test_the_last_thread_may_be_replaced_by_an_added_one_before_the_supervisor_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Polling(monkeypatch)
    registry = c.supervisor.thread_registry
    number = registry.remove()
    removal = RemoveThread(number, registry.serial(number))
    c.supervisor.add_thread()
    c.supervisor._tell(removal)
    assert removal.done.wait(WAIT_S)
    assert c.settle().supervisor.thread_registry.numbers() == [2]
    assert FakeThread.all[0].stopped == []


def test_a_polling_thread_that_dies_is_replaced_as_the_handler_says_with_all_its_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Polling(monkeypatch, num_processing_threads=2, handler=lambda _: UncaughtExceptionResponse.REPLACE_THREAD)
    FakeThread.all[0].fails(ProcessingError("user code", A))
    c.until(lambda: len(FakeThread.all) == 2)
    assert c.threads == {"PollingThread": "CREATED"}
    c.obeys(1, 2)
    assert len(c.threads) == 3
