"""Errors by which user code leaves: what no handler is asked about, what is said of the others, and Ctrl-C."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from milestones import ProcessingError, Processor, Record, StreamsBuilder, UserExitError, serdes
from milestones.common.last_words import is_interrupt, named, report
from milestones.common.topology.processor import ProcessorContext
from milestones.testing import TopologyTestDriver


class Half(Processor[str, str, str, str]):
    """Its `init` leaves before it is complete."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        raise ValueError("no connection")

    def process(self, record: Record[str, str]) -> None:
        raise AssertionError("it wasn't initialised")


@pytest.mark.parametrize("handler", ["log_and_continue", "log_and_fail"])
def test_an_error_of_init_ends_the_task_whatever_the_handler_of_errors_of_records_says(handler: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(Half, name="half").to("out", key=str, value=str)
    with pytest.raises(ProcessingError, match=r"node half, in Half\.init: ValueError: no connection") as raised:
        TopologyTestDriver(builder.build(), processing_exception_handler=handler)
    assert "Mend the code. No handler is asked about Processor.init" in str(raised.value)
    assert "processing_exception_handler" not in str(raised.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_ctrl_c_and_an_exit_in_the_main_thread_stay_what_they_are(error: BaseException) -> None:
    """A topology under test runs in the main thread: Python raises Ctrl-C wherever that is."""

    def interrupted(_: str) -> str:
        raise error

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(interrupted).to("out", key=str, value=str)
    driver = TopologyTestDriver(builder.build(), processing_exception_handler="log_and_continue")
    with pytest.raises(type(error)):
        driver.create_input_topic("in", key=serdes.STRING, value=serdes.STRING).pipe("k", "v")


def leave(code: int) -> None:
    raise SystemExit(code)


def caught(call: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as raised:
        call()
    return raised.value


def test_an_exit_is_told_with_the_function_that_called_it_and_what_to_do() -> None:
    error = named(caught(lambda: leave(3)))
    assert isinstance(error, UserExitError)
    assert "left by SystemExit: 3, in " in str(error)
    assert f"{__file__}:" in str(error)
    assert "Streams.close()" in str(error)
    assert isinstance(error.__cause__, SystemExit)
    ours = ValueError("an Exception is told as it is")
    assert named(ours) is ours


def test_only_the_main_thread_is_interrupted_by_ctrl_c() -> None:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(is_interrupt(KeyboardInterrupt())))
    thread.start()
    thread.join()
    assert [is_interrupt(KeyboardInterrupt()), *found, is_interrupt(SystemExit())] == [True, False, False]


class Broken(logging.Handler):
    """A log handler that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit("the log server is gone")


def test_the_last_words_of_a_thread_reach_stderr_when_a_log_handler_raises(capsys: Any) -> None:
    log, handler = logging.getLogger("milestones.test"), Broken()
    log.addHandler(handler)
    report(log, "%s dies", "app-State", error=ValueError("planted"))
    log.removeHandler(handler)
    said = capsys.readouterr().err
    assert "app-State dies (a log handler raised SystemExit: the log server is gone)" in said
    assert "ValueError: planted" in said
