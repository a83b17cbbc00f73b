"""The supervisor: threads and states, over fake threads that do what a test says."""

from __future__ import annotations

import re
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.client.client_events import client_state
from milestones.client.streams import Streams
from milestones.common.errors import KafkaUnreachableError, ProcessingError, StateError
from milestones.common.memory import Account
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.context import ThreadMoved, ThreadReport, UncaughtExceptionResponse
from milestones.instance.states import StreamsState, ThreadState
from milestones.parts import Observer
from tests.milestones.client.fake_threads import WAIT_S, Client, FakeHousekeeper, FakeInstance, FakeThread, faked
from tests.milestones.fakes import A, counting

pytestmark = pytest.mark.usefixtures("fake_threads")

REVOKED, ASSIGNED, RUNNING = ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED, ThreadState.RUNNING
T = ThreadState


@pytest.mark.parametrize(
    ("threads", "state"),
    [
        ({RUNNING}, StreamsState.RUNNING),
        ({RUNNING, ASSIGNED}, StreamsState.REBALANCING),
        ({RUNNING, REVOKED}, StreamsState.REBALANCING),
        ({REVOKED, T.STARTING}, StreamsState.REBALANCING),
        ({RUNNING, T.STARTING}, None),
        (set(), StreamsState.RUNNING),
        ({RUNNING, T.DEAD}, None),
        ({T.CREATED}, None),
    ],
)
def test_a_clients_state_follows_from_its_threads_states(threads: set[ThreadState], state: StreamsState | None) -> None:
    assert client_state(threads) is state


def test_a_client_is_running_once_all_its_threads_are() -> None:
    c = Client(num_stream_threads=2).begin()
    one, two = FakeThread.all
    one.moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    two.moves(T.STARTING, REVOKED, ASSIGNED)
    assert c.settle().states == ["REBALANCING"]
    two.moves(RUNNING)
    assert c.settle().states == ["REBALANCING", "RUNNING"]
    one.moves(REVOKED)
    assert c.settle().states == ["REBALANCING", "RUNNING", "REBALANCING"]
    assert c.end().states[-2:] == ["PENDING_SHUTDOWN", "NOT_RUNNING"]


def test_a_client_shows_its_memory_from_its_start_to_its_end() -> None:
    c = Client().begin()
    (memory,) = c.supervisor.metrics.snapshot()["stream-memory-metrics"]
    assert memory["tags"] == {"client-id": "app-process"}
    assert memory["metrics"]["resident-bytes"] > 1_000_000
    accounts = c.supervisor.metrics.snapshot()["stream-memory-account-metrics"]
    assert [one["tags"]["account"] for one in accounts] == [account.value for account in Account]
    told = c.supervisor.memory()
    assert told is not None
    assert told.resident == told.other + sum(account.bytes for account in told.accounts.values())
    c.end()
    assert not {"stream-memory-metrics", "stream-memory-account-metrics"} & c.supervisor.metrics.snapshot().keys()
    assert c.supervisor.memory() is None


def test_a_client_that_has_not_started_has_no_memory_to_show() -> None:
    assert Client().supervisor.memory() is None


@pytest.mark.parametrize("leave", [True, False])
def test_a_close_stops_and_joins_every_thread_then_gives_the_directory_back(leave: bool) -> None:
    c = Client(num_stream_threads=3).begin()
    c.supervisor.ask_to_close(leave)
    c.ended()
    assert [thread.stopped for thread in FakeThread.all] == [[leave]] * 3
    assert all(thread.joined for thread in FakeThread.all)
    assert FakeHousekeeper.last.did == ["start", "close", "join"]
    assert FakeInstance.closed == 1
    assert c.supervisor.error is None


def test_a_task_in_quarantine_is_shown_with_its_error() -> None:
    c = Client().begin()
    (thread,) = FakeThread.all
    assert c.supervisor.status().failing == {}
    failing = {A: "ValueError: no rates yet"}
    thread.context.notify(ThreadReport(thread.name, {A: "running"}, {}, {}, 0, 1, failing=failing))
    assert c.settle().supervisor.status().failing == failing


def test_a_client_that_has_stopped_shows_no_tasks_and_no_lags_only_what_it_processed() -> None:
    c = Client().begin()
    (thread,) = FakeThread.all
    report = ThreadReport(thread.name, {A: "running"}, {TopicPartition("in", 0): 3}, {}, records=7, generation=2)
    thread.moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    thread.context.notify(report)
    assert c.settle().supervisor.status().tasks == {A: "running"}
    status = c.end().supervisor.status()
    assert (status.tasks, status.lags, status.records) == ({}, {}, 7)
    assert status.threads == {thread.name: T.DEAD}


class SlowObserver(Observer):
    """It ends once somebody waits for that."""

    def __init__(self) -> None:
        super().__init__(name="observer")
        self.asked, self.awaited = threading.Event(), threading.Event()

    def run(self) -> None:
        self.asked.wait(WAIT_S)
        self.awaited.wait(WAIT_S)

    def close(self) -> None:
        self.asked.set()

    def join(self, timeout: float | None = None) -> None:
        self.awaited.set()
        super().join(timeout)


def test_a_client_that_has_stopped_has_no_thread_left() -> None:
    before = set(threading.enumerate())
    observer = SlowObserver()
    c = Client(lambda *_: observer).begin()
    assert not c.supervisor.wait(0)
    c.end()
    assert set(threading.enumerate()) <= before


def test_closing_again_changes_nothing() -> None:
    c = Client().begin()
    for _ in range(3):
        c.end()
    c.supervisor.ask_to_close(True)
    assert c.states == ["REBALANCING", "PENDING_SHUTDOWN", "NOT_RUNNING"]


def test_a_client_that_was_never_started_can_be_closed() -> None:
    c = Client()
    assert c.end().states == ["PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert FakeThread.all == []


def test_a_start_that_fails_gives_the_directory_back_and_may_be_tried_again() -> None:
    FakeInstance.prepare_error = KafkaUnreachableError("no broker")
    c = Client()
    with pytest.raises(KafkaUnreachableError):
        c.supervisor.begin()
    assert FakeInstance.closed == 1
    assert c.supervisor.state is StreamsState.CREATED
    FakeInstance.prepare_error = None
    c.begin()


@pytest.mark.parametrize(
    "decision", [UncaughtExceptionResponse.SHUTDOWN_CLIENT, UncaughtExceptionResponse.SHUTDOWN_APPLICATION]
)
def test_a_thread_that_dies_takes_the_client_down_in_state_error(decision: UncaughtExceptionResponse) -> None:
    c = Client(num_stream_threads=2, handler=lambda _: decision).begin()
    error = ProcessingError("user code", A)
    FakeThread.all[1].fails(error)
    assert c.supervisor.status().error is None
    assert c.ended().states == ["REBALANCING", "PENDING_ERROR", "ERROR"]
    assert c.supervisor.error is c.supervisor.status().error is error
    assert FakeThread.all[0].stopped == [True]


def test_a_static_client_that_fails_stays_in_the_group() -> None:
    c = Client(group_instance_id="me").begin()
    FakeThread.all[0].fails(ProcessingError("user code", A))
    c.ended()
    assert FakeThread.all[0].stopped == [False]


@pytest.mark.parametrize("end", ["the client ends", "the thread is removed", "the thread is replaced"])
def test_that_a_member_has_left_the_group_is_noted_by_the_supervisor_before_a_successor_is_made(end: str) -> None:
    c = Client(handler=lambda _: UncaughtExceptionResponse.REPLACE_THREAD).begin()
    first = FakeThread.all[0]
    first.left_group = True
    if end == "the thread is removed":
        first.on_stop = lambda: first.moves(ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)
        c.supervisor.remove_thread(None, WAIT_S)
    elif end == "the thread is replaced":
        first.fails(ProcessingError("user code", A))
        c.until(lambda: len(FakeThread.all) == 2)
    c.end()
    assert FakeInstance.left == [(1, "app-process-supervisor")]


def test_a_member_that_has_not_left_the_group_is_not_noted() -> None:
    Client(num_stream_threads=2).begin().end()
    assert FakeInstance.left == []


def test_a_leave_that_cannot_be_noted_is_logged_and_takes_no_thread_down(caplog: pytest.LogCaptureFixture) -> None:
    FakeInstance.left_error = OSError("no space left on device")
    c = Client().begin()
    FakeThread.all[0].left_group = True
    assert c.end().states == ["REBALANCING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert "StreamThread-1: that its member left the group can't be noted: no space left" in caplog.text


def test_a_thread_that_dies_can_be_replaced_by_one_of_its_number_and_records_go_on_counting() -> None:
    c = Client(num_stream_threads=2, handler=lambda _: UncaughtExceptionResponse.REPLACE_THREAD).begin()
    first, second = FakeThread.all
    second.context.notify(ThreadReport(second.name, {}, {}, {}, 40, 1))
    second.fails(ProcessingError("user code", A))
    c.settle()
    assert [thread.name for thread in FakeThread.all] == [first.name, second.name, second.name]
    assert second.joined
    third = FakeThread.all[2]
    third.context.notify(ThreadReport(third.name, {}, {}, {}, 2, 2))
    assert c.settle().supervisor.status().records == 42
    assert c.states == ["REBALANCING"]
    c.end()
    assert (first.joined, third.joined) == (True, True)


@pytest.mark.parametrize("answer", [None, "replace the thread"])
def test_a_handler_that_answers_nothing_that_we_know_shuts_the_client_down(answer: Any) -> None:
    c = Client(handler=lambda _: answer)
    assert c.supervisor._decide(ProcessingError("user code", A)) is UncaughtExceptionResponse.SHUTDOWN_CLIENT
    c.begin()
    FakeThread.all[0].fails(ProcessingError("user code", A))
    assert c.ended().states[-1] == "ERROR"


@pytest.mark.parametrize("raised", [ValueError("handler"), SystemExit(1)])
def test_a_handler_that_raises_shuts_the_client_down(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    c = Client(handler=Mock(side_effect=raised)).begin()
    error = ProcessingError("user code", A)
    FakeThread.all[0].fails(error)
    assert c.ended().supervisor.error is error
    assert "handler raised" in caplog.text


@pytest.mark.parametrize("raised", [ValueError("listener"), SystemExit(1)])
def test_a_listener_that_raises_changes_nothing(raised: BaseException) -> None:
    c = Client()
    c.also = Mock(side_effect=raised)
    c.begin()
    FakeThread.all[0].moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    c.settle().supervisor.ask_to_close(True)
    assert c.ended().states == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]


def test_the_housekeeper_is_told_whether_the_client_runs() -> None:
    c = Client().begin()
    assert not FakeHousekeeper.last.runs()
    FakeThread.all[0].moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    c.settle()
    assert FakeHousekeeper.last.runs()
    c.end()
    assert not FakeHousekeeper.last.runs()


def test_an_error_of_the_housekeeper_takes_the_client_down() -> None:
    c = Client().begin()
    error = StateError("disk")
    FakeHousekeeper.last.on_error(error)
    assert c.ended().supervisor.error is error
    assert c.states[-1] == "ERROR"


def test_the_first_error_counts() -> None:
    c = Client(num_stream_threads=2).begin()
    first, second = ProcessingError("first", A), ProcessingError("second", A)
    FakeThread.all[0].on_stop = lambda: FakeThread.all[1].fails(second)
    FakeThread.all[0].fails(first)
    assert c.ended().supervisor.error is first


def test_a_thread_that_cannot_be_started_takes_the_client_down_and_those_before_it_are_stopped() -> None:
    FakeThread.start_error = RuntimeError("can't start new thread")
    c = Client(num_stream_threads=2)
    c.supervisor.begin()
    c.ended()
    assert c.states == ["REBALANCING", "PENDING_ERROR", "ERROR"]
    assert FakeThread.all[0].joined
    assert not FakeThread.all[1].joined


def test_an_event_that_the_supervisor_cannot_make_sense_of_does_not_leave_the_client_hanging() -> None:
    c = Client().begin()
    c.supervisor._tell(ThreadMoved("a thread that never was", "RUNNING"))
    assert c.ended().states[-1] == "ERROR"


def test_a_directory_that_cannot_be_given_back_cleanly_does_not_leave_the_client_hanging() -> None:
    FakeInstance.close_error = StateError("disk")
    c = Client().begin()
    assert c.end().states[-1] == "NOT_RUNNING"


def test_the_status_puts_all_threads_together() -> None:
    c = Client(num_stream_threads=2).begin()
    one, two = FakeThread.all
    b, left, right = TaskId(0, 1), TopicPartition("in", 0), TopicPartition("in", 1)
    one.moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    one.context.notify(ThreadReport(one.name, {A: "running"}, {left: 5}, {}, 10, 3))
    two.context.notify(ThreadReport(two.name, {b: "restoring"}, {right: 7}, {b: 100}, 20, 4))
    status = c.settle().supervisor.status()
    assert status.threads == {one.name: RUNNING, two.name: T.CREATED}
    assert (status.tasks, status.lags) == ({A: "running", b: "restoring"}, {left: 5, right: 7})
    assert (status.restoring, status.records, status.generation) == ({b: 100}, 30, 4)
    assert (status.state, status.stage) == (StreamsState.REBALANCING, "baseline")


# -- what hangs, and what of an error is told


@pytest.mark.parametrize("at", [StreamsState.RUNNING, StreamsState.PENDING_SHUTDOWN])
def test_a_state_listener_that_does_not_return_is_named_once_close_timeout_ms_is_over(
    at: StreamsState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("milestones.client.lifetime.LOOK_S", 0.002)
    inside, go_on = threading.Event(), threading.Event()

    def slow(new: StreamsState, _: StreamsState) -> None:
        if new is at:
            inside.set()
            go_on.wait(WAIT_S)

    c = Client(close_timeout_ms=2_000)
    c.supervisor.listener = slow
    c.begin()
    FakeThread.all[0].moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    c.supervisor.ask_to_close(True)
    assert inside.wait(WAIT_S)
    assert not c.supervisor.wait(0.01)
    c.supervisor._clock.advance(2_000)  # type: ignore[attr-defined]
    c.ended()
    assert (c.supervisor.hanging, c.supervisor.told) == (True, True)
    assert re.search(r"close_timeout_ms \(2000\): .*is in slow, .*test_supervisor.py:\d+", str(c.supervisor.error))
    assert str(c.supervisor.error) in caplog.text
    go_on.set()
    assert c.supervisor._thread is not None
    c.supervisor._thread.join(WAIT_S)
    closed = c.supervisor.state, FakeInstance.closed
    assert closed == (StreamsState.NOT_RUNNING, 1), "what is left is closed once the listener comes back"


def test_an_error_after_that_of_a_thread_that_was_replaced_is_still_to_be_told() -> None:
    c = Client(handler=lambda _: UncaughtExceptionResponse.REPLACE_THREAD).begin()
    FakeThread.all[0].fails(ProcessingError("user code", A))
    c.settle()
    FakeHousekeeper.last.on_error(StateError("disk"))
    assert not c.ended().supervisor.told


def test_a_thread_that_hangs_does_not_hide_the_error_that_ended_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milestones.client.client_events.Closing.join", lambda *_: False)
    c = Client().begin()
    error = StateError("disk")
    FakeHousekeeper.last.on_error(error)
    supervisor = c.ended().supervisor
    assert (supervisor.error, supervisor.hanging, supervisor.told) == (error, True, False)


# -- from callbacks


@pytest.fixture
def streams() -> Streams:
    return faked(Streams(counting(), application_id="app", bootstrap_servers="localhost:1"))


@pytest.mark.parametrize("state", [StreamsState.REBALANCING, StreamsState.RUNNING, StreamsState.PENDING_SHUTDOWN])
def test_close_may_be_called_in_the_listener_at_any_state_and_does_not_wait_for_itself(
    streams: Streams, state: StreamsState
) -> None:
    closed: list[bool] = []

    def listen(new: StreamsState, _: StreamsState) -> None:
        if new is state and not closed:
            closed.append(streams.close(timeout_s=WAIT_S))

    streams.set_state_listener(listen)
    began = time.monotonic()
    streams.start()
    supervisor = streams._supervisor
    if state is StreamsState.RUNNING:
        while not FakeThread.all:
            supervisor.wait(0.001)
        FakeThread.all[0].moves(T.STARTING, REVOKED, ASSIGNED, RUNNING)
    elif state is StreamsState.PENDING_SHUTDOWN:
        streams.close(timeout_s=WAIT_S)
    assert streams.wait(WAIT_S)
    assert closed == [False]
    assert time.monotonic() - began < WAIT_S / 2
    assert streams.state is StreamsState.NOT_RUNNING


def test_close_may_be_called_in_the_uncaught_exception_handler(streams: Streams) -> None:
    closed: list[bool] = []

    def handler(_: BaseException) -> UncaughtExceptionResponse:
        closed.append(streams.close(timeout_s=0.001))
        return UncaughtExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    while not FakeThread.all:
        streams.wait(0.001)
    FakeThread.all[0].fails(ProcessingError("user code", A))
    assert streams.wait(WAIT_S)
    assert len(closed) == len(FakeThread.all) == 1


def test_a_stream_thread_and_the_supervisor_itself_do_not_wait_for_the_end_they_ask_for() -> None:
    c = Client().begin()
    supervisor = c.supervisor
    assert not supervisor.is_inside()
    (member,) = supervisor._threads.members.values()
    fake, member.thread = member.thread, threading.current_thread()  # type: ignore[assignment]
    assert supervisor.is_inside()
    member.thread = fake


def test_handlers_are_set_before_the_start_only(streams: Streams) -> None:
    streams.start()
    for late in (
        lambda: streams.set_state_listener(lambda new, old: None),
        lambda: streams.set_uncaught_exception_handler(lambda _: UncaughtExceptionResponse.REPLACE_THREAD),
        streams.start,
    ):
        with pytest.raises(Exception, match="start"):
            late()
    assert streams.close(timeout_s=WAIT_S)


def test_a_client_can_be_used_in_a_with_statement(streams: Streams) -> None:
    with streams:
        assert streams.state is StreamsState.REBALANCING
    assert streams.state is StreamsState.NOT_RUNNING
    assert streams.error is None
