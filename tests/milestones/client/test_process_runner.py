"""`Streams.run`: signals, logs and exit codes, over a client that does what a test says."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.client import process_runner as running
from milestones.client.client_events import join
from milestones.client.streams import Streams
from milestones.common.config import StreamsConfig
from milestones.common.errors import (
    CloseTimeoutError,
    KafkaUnreachableError,
    MilestonesError,
    ProcessingError,
    StateError,
    TopologyError,
)
from milestones.common.records import TaskId
from tests.milestones.fakes import counting

WAIT_S = 10


class FakeSupervisor:
    """A client that ends when it is asked to, or by itself with an error."""

    def __init__(self) -> None:
        self.stage, self.error, self.told = "baseline", None, False
        self.stopped = threading.Event()
        self.asked: list[bool] = []
        self.while_it_runs: Callable[[], None] = lambda: None

    def wait(self, timeout_s: float) -> bool:
        run, self.while_it_runs = self.while_it_runs, lambda: None
        run()
        return self.stopped.wait(timeout_s)

    def ask_to_close(self, leave_group: bool) -> None:
        self.asked.append(leave_group)
        self.stopped.set()


class Program:
    """Runs a `FakeSupervisor`; `signal` sends this process one."""

    def __init__(self) -> None:
        self.supervisor: Any = FakeSupervisor()
        self.config = StreamsConfig(application_id="app", bootstrap_servers="localhost:1")

    def run(self, start: Callable[[], None]) -> int:
        return running.run(self.supervisor, self.config, start, leave_group=True)

    @staticmethod
    def signal(number: int = signal.SIGINT) -> None:
        os.kill(os.getpid(), number)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(running, "LOOK_S", 0.002)
    yield Program()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(
    ("error", "code"),
    [(KafkaUnreachableError("no broker"), 3), (StateError("locked"), 4), (TopologyError("no topic"), 2)],
)
def test_an_error_of_the_start_is_one_line_and_its_exit_code(
    program: Program, error: MilestonesError, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert program.run(Mock(side_effect=error)) == code
    assert program.supervisor.error is error
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (line.getMessage(), line.exc_info) == (str(error), None)


def test_a_bug_met_while_starting_keeps_its_traceback(program: Program) -> None:
    with pytest.raises(ZeroDivisionError):
        program.run(Mock(side_effect=ZeroDivisionError))


@pytest.mark.parametrize(
    ("error", "told"), [(ProcessingError("user code", TaskId(0, 0)), False), (CloseTimeoutError("it hangs"), True)]
)
def test_an_error_that_ended_the_client_gives_the_exit_code_and_is_the_last_line_of_the_log(
    program: Program, error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def start() -> None:
        program.supervisor.error, program.supervisor.told = error, told
        program.supervisor.stopped.set()

    assert program.run(start) == 1
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert lines == [f"ended with exit code 1: {error}" if told else str(error)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_a_running_client_cleanly(program: Program, number: int, code: int) -> None:
    program.supervisor.while_it_runs = lambda: program.signal(number)
    assert program.run(lambda: None) == code
    assert program.supervisor.asked


def test_a_signal_during_the_start_ends_the_program_before_the_start_has_ended(program: Program) -> None:
    kafka_answers = threading.Event()

    def start() -> None:
        program.signal()
        assert kafka_answers.wait(WAIT_S)

    assert program.run(start) == 130
    assert program.supervisor.asked == []
    kafka_answers.set()
    assert program.supervisor.stopped.wait(WAIT_S)


def test_the_same_signal_at_the_same_moment_counts_once(program: Program) -> None:
    """As `timeout` sends it: to the process, then to its group."""

    def twice() -> None:
        program.signal(signal.SIGTERM)
        program.signal(signal.SIGTERM)

    program.supervisor.while_it_runs = twice
    assert program.run(lambda: None) == 0
    assert program.supervisor.asked == [True]


def test_a_second_signal_ends_the_process_whatever_its_threads_do(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SAME_S", 0)

    class Ended(BaseException):
        pass

    def ended(code: int) -> None:
        raise Ended(code)

    def ask_to_close(leave_group: bool) -> None:
        program.signal()

    monkeypatch.setattr(running.os, "_exit", ended)
    monkeypatch.setattr(running.logging, "shutdown", lambda: None)
    program.supervisor.ask_to_close = ask_to_close
    program.supervisor.while_it_runs = program.signal
    with pytest.raises(Ended, match="130"):
        program.run(lambda: None)


def test_run_outside_the_main_thread_says_what_to_use_instead(program: Program) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            program.run(lambda: None)
        except MilestonesError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT_S)
    assert "start(), wait() and close()" in str(errors[0])


def test_one_line_says_what_runs_where(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    program.run(program.supervisor.stopped.set)
    assert "app runs on localhost:1: stage baseline, at_least_once, state in " in caplog.messages[0]


def test_a_thread_that_is_awaited_is_named_with_the_place_it_is_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=lambda: go_on.wait(WAIT_S), name="app-StreamThread-1")
    thread.start()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            go_on.set()

    monkeypatch.setattr("milestones.client.client_events.SAY_S", 0.01)
    logger = logging.getLogger("milestones.client.client_events")
    heard = Heard()
    logger.addHandler(heard)
    try:
        join(thread)
    finally:
        logger.removeHandler(heard)
    assert not thread.is_alive()
    assert "waiting for app-StreamThread-1 to end" in caplog.messages[0]
    assert "threading.py" in caplog.messages[0]


@pytest.mark.parametrize(("given", "hint"), [("words.py", "make one with a StreamsBuilder"), (counting, "call it")])
def test_what_is_no_topology_is_refused_with_what_to_do(given: Any, hint: str) -> None:
    with pytest.raises(TopologyError, match=hint):
        Streams(given, application_id="app", bootstrap_servers="localhost:1")


def test_an_unreachable_kafka_does_not_hold_up_an_interrupt(tmp_path: Any) -> None:
    streams = Streams(
        counting(), application_id="app", bootstrap_servers="127.0.0.1:1", state_dir=str(tmp_path / "state")
    )
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        while signal.getsignal(signal.SIGINT) is before:
            time.sleep(running.LOOK_S / 100)
        Program.signal()

    threading.Thread(target=interrupt).start()
    assert streams.run() == 130
    assert "start" in {thread.name for thread in threading.enumerate()}, "the start was waited for"


def test_while_a_client_runs_no_garbage_collection_looks_at_what_the_program_had_before(program: Program) -> None:
    frozen: list[int] = []

    def start() -> None:
        frozen.append(gc.get_freeze_count())
        program.supervisor.stopped.set()

    program.run(start)
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_taken_out_of_garbage_collections_itself_stays_so(program: Program) -> None:
    gc.freeze()
    try:
        program.run(program.supervisor.stopped.set)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_while_a_client_runs_garbage_collections_come_more_seldom(program: Program) -> None:
    thresholds: list[tuple[int, int, int]] = []

    def start() -> None:
        thresholds.append(gc.get_threshold())
        program.supervisor.stopped.set()

    before = gc.get_threshold()
    program.run(start)
    assert thresholds == [(running.NEW_OBJECTS, *before[1:])]
    assert gc.get_threshold() == before


def test_thresholds_of_garbage_collections_that_a_program_has_set_stay(program: Program) -> None:
    before, thresholds = gc.get_threshold(), []

    def start() -> None:
        thresholds.append(gc.get_threshold())
        program.supervisor.stopped.set()

    gc.set_threshold(5_000, 20, 20)
    try:
        program.run(start)
        assert thresholds == [(5_000, 20, 20)] == [gc.get_threshold()]
    finally:
        gc.set_threshold(*before)


def test_thresholds_that_a_program_sets_while_it_runs_stay(program: Program) -> None:
    before = gc.get_threshold()

    def start() -> None:
        gc.set_threshold(6_000, 20, 20)
        program.supervisor.stopped.set()

    try:
        program.run(start)
        assert gc.get_threshold() == (6_000, 20, 20)
    finally:
        gc.set_threshold(*before)
