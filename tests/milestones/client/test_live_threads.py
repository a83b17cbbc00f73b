"""Threads that come and go while a client runs, over fake threads that do what a test says."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from milestones.client.streams import Streams
from milestones.common.errors import MilestonesError, ProcessingError, TimeoutExceededError
from milestones.instance.context import ThreadReport, UncaughtExceptionResponse
from milestones.instance.states import StreamsState, ThreadState
from tests.milestones.client.fake_threads import WAIT_S, Client, FakeThread, faked
from tests.milestones.fakes import A, counting

pytestmark = pytest.mark.usefixtures("fake_threads")

T = ThreadState
UP = (T.STARTING, T.PARTITIONS_REVOKED, T.PARTITIONS_ASSIGNED, T.RUNNING)


class Changing(Client):
    """A client whose threads, once up, end when they are asked to."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add, self.thread_registry = self.supervisor.add_thread, self.supervisor.thread_registry

    def up(self) -> Changing:
        self.begin()
        for thread in FakeThread.all:
            self.obeys(thread)
        self.settle()
        return self

    def obeys(self, thread: FakeThread) -> None:
        thread.on_stop = lambda: thread.moves(T.PENDING_SHUTDOWN, T.DEAD)
        thread.moves(*UP)

    def remove(self, name: str | None = None, timeout_s: float = WAIT_S) -> str:
        return self.supervisor.remove_thread(name, timeout_s)

    @property
    def threads(self) -> list[str]:
        return sorted(name.rpartition("-")[2] for name in self.supervisor.status().threads)


def test_a_thread_is_added_under_the_lowest_free_number_and_the_client_runs_again_once_it_does() -> None:
    c = Changing(num_stream_threads=2).up()
    name = c.add()
    assert name == "app-process-StreamThread-3"
    c.until(lambda: len(FakeThread.all) == 3)
    new = FakeThread.all[-1]
    assert (new.name, new.started) == (name, True)
    assert c.supervisor.state is StreamsState.RUNNING
    new.moves(*UP[:2])
    assert c.settle().supervisor.state is StreamsState.REBALANCING
    new.moves(*UP[2:])
    assert c.settle().supervisor.state is StreamsState.RUNNING
    c.end()
    assert all(thread.joined for thread in FakeThread.all)


def test_a_removed_thread_leaves_the_group_although_it_is_static_and_its_records_go_on_counting() -> None:
    c = Changing(num_stream_threads=2, group_instance_id="me").up()
    second = FakeThread.all[1]
    second.context.notify(ThreadReport(second.name, {}, {}, {}, 40, 1))
    assert c.remove() == second.name
    assert second.stopped == [True]
    assert second.joined
    assert c.threads == ["1"]
    assert c.supervisor.status().records == 40
    assert c.supervisor.state is StreamsState.RUNNING
    assert c.thread_registry.threads == 1


def test_a_thread_can_be_removed_by_its_name_and_its_number_is_used_again() -> None:
    c = Changing(num_stream_threads=3).up()
    first = FakeThread.all[0].name
    assert c.remove(first) == first
    assert c.threads == ["2", "3"]
    assert c.add() == first
    assert c.settle().threads == ["1", "2", "3"]


def test_a_client_goes_on_without_threads_and_takes_new_ones() -> None:
    c = Changing(num_stream_threads=1).up()
    c.remove()
    assert (c.threads, c.supervisor.state) == ([], StreamsState.RUNNING)
    with pytest.raises(MilestonesError, match="all have been removed"):
        c.remove()
    c.add()
    c.until(lambda: len(FakeThread.all) == 2)
    c.obeys(FakeThread.all[-1])
    assert c.settle().states[-2:] == ["REBALANCING", "RUNNING"]


def test_removing_the_thread_that_still_restores_makes_the_client_running() -> None:
    c = Changing(num_stream_threads=2).up()
    FakeThread.all[1].moves(T.PARTITIONS_REVOKED)
    assert c.settle().supervisor.state is StreamsState.REBALANCING
    c.remove(FakeThread.all[1].name)
    assert c.settle().supervisor.state is StreamsState.RUNNING


def test_a_removed_thread_that_takes_long_is_said_and_its_number_is_kept_until_it_ends() -> None:
    c = Changing(num_stream_threads=2).up()
    slow = FakeThread.all[1]
    slow.on_stop = lambda: slow.moves(T.PENDING_SHUTDOWN)
    with pytest.raises(TimeoutExceededError, match="hasn't ended within"):
        c.remove(timeout_s=0.01)
    assert c.supervisor.state is StreamsState.RUNNING
    assert c.add().endswith("-3")
    with pytest.raises(MilestonesError, match=r"or it is being removed; there are app-process-StreamThread-1, .*-3"):
        c.remove(slow.name)
    slow.moves(T.DEAD)
    c.settle().settle()
    assert c.threads == ["1", "3"]
    assert c.add() == slow.name


@pytest.mark.parametrize("decision", list(UncaughtExceptionResponse))
def test_a_thread_that_dies_while_it_is_removed_has_no_successor(decision: UncaughtExceptionResponse) -> None:
    c = Changing(num_stream_threads=2, handler=lambda _: decision).up()
    dying = FakeThread.all[1]
    dying.on_stop = lambda: dying.fails(ProcessingError("user code", A))
    assert c.remove() == dying.name
    if decision is UncaughtExceptionResponse.REPLACE_THREAD:
        assert c.settle().threads == ["1"]
        c.end()
    assert c.ended().states[-1] == ("NOT_RUNNING" if decision is UncaughtExceptionResponse.REPLACE_THREAD else "ERROR")
    assert len(FakeThread.all) == 2


def test_a_close_meanwhile_ends_the_wait_for_a_removed_thread() -> None:
    c = Changing(num_stream_threads=2).up()
    slow, stopping = FakeThread.all[1], threading.Event()
    slow.on_stop = stopping.set
    removed: list[str] = []
    remover = threading.Thread(target=lambda: removed.append(c.remove()))
    remover.start()
    assert stopping.wait(WAIT_S)
    c.end()
    remover.join(WAIT_S)
    assert removed == [slow.name]


def test_threads_change_only_while_the_client_runs() -> None:
    c = Changing()
    for change in (c.add, c.remove):
        with pytest.raises(MilestonesError, match=r"while the client runs .* it is CREATED. Before start\(\) set num"):
            change()
    c.up().end()
    for change in (c.add, c.remove):
        with pytest.raises(MilestonesError, match="it is NOT_RUNNING"):
            change()
    assert len(FakeThread.all) == 1


def test_an_unknown_thread_is_refused_with_the_names_of_those_there_are() -> None:
    c = Changing(num_stream_threads=2).up()
    with pytest.raises(MilestonesError, match=r"'nobody', .*there are app-process-StreamThread-1, app-process-StreamT"):
        c.remove("nobody")


def test_threads_may_be_added_and_removed_in_the_listener_without_waiting_for_itself() -> None:
    c = Changing(num_stream_threads=2)
    changed: list[str] = []

    def listen(new: StreamsState) -> None:
        if new is StreamsState.RUNNING and not changed:
            changed.extend([c.remove(), c.add()])

    c.also = listen
    c.up()
    c.until(lambda: len(FakeThread.all) == 3)
    assert [name[-1] for name in changed] == ["2", "3"]
    assert c.settle().threads == ["1", "3"]


@pytest.mark.parametrize(("change", "threads"), [("add", "123"), ("remove", "12")])
def test_threads_may_be_added_and_removed_before_the_first_ones_have_started(change: str, threads: str) -> None:
    """The listener is told that the client is REBALANCING before its threads are started."""
    c = Changing(num_stream_threads=2)
    changed: list[str] = []

    def listen(new: StreamsState) -> None:
        if new is StreamsState.REBALANCING and not changed:
            changed.append(c.add() if change == "add" else c.remove())

    c.also = listen
    c.up()
    assert [thread.name[-1] for thread in FakeThread.all] == list(threads), "no two with one number"
    assert [thread.name for thread in FakeThread.all if thread.stopped] == changed * (change == "remove")
    c.end()
    assert c.supervisor.error is None


def test_a_handler_in_a_stream_thread_removes_another_one_and_itself_when_it_is_the_last() -> None:
    settings: dict[str, Any] = {"bootstrap_servers": "localhost:1", "num_stream_threads": 2}
    streams = faked(Streams(counting(), application_id="app", **settings))
    removed: list[str] = []

    def handler(_: BaseException) -> UncaughtExceptionResponse:
        removed.append(streams.remove_stream_thread())
        return UncaughtExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    while len(FakeThread.all) < 2:
        streams.wait(0.001)
    one, two = FakeThread.all
    ours = [threading.Thread(target=one.fails, args=(ProcessingError("user code", A),), name=two.name)]
    one.on_stop = lambda: one.moves(T.PENDING_SHUTDOWN, T.DEAD)
    ours[0].start()
    ours[0].join(WAIT_S)
    assert removed == [one.name]
    streams.close(timeout_s=WAIT_S)
