"""The workers' lines: whole, labelled, and never a reason for a worker to wait for ever."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from milestones.workers.line_pump import LONGEST, LinePump
from tests.milestones.workers.conftest import STARTS, Run


def test_each_line_of_both_outputs_goes_to_the_same_output_with_the_workers_place(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run({1: [["say", "a\nb\n"], ["complain", "c\n"], *STARTS, ["end", 0]]}, count=1)
    printed = capfd.readouterr()
    assert printed.out == "[1/1] a\n[1/1] b\n[1/1] goes on None\n"
    assert printed.err == "[1/1] c\n"


def test_a_line_without_an_end_is_passed_on_when_its_worker_ends(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run({1: [*STARTS, ["say", "half "], ["say", "a line"], ["end", 0]]}, count=1)
    assert capfd.readouterr().out.splitlines()[-1] == "[1/1] half a line"


class ToStderr(logging.Handler):
    """Writes the parent's lines to where its workers' lines go."""

    def emit(self, record: logging.LogRecord) -> None:
        os.write(2, f"{record.getMessage()}\n".encode())


def test_the_last_words_of_a_worker_come_before_the_parents_line_about_its_end(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = ToStderr()
    logging.getLogger("milestones.workers").addHandler(handler)
    try:
        assert run({2: [["complain", "what went wrong\n" * 5_000], ["end", 2]]}) == 2
    finally:
        logging.getLogger("milestones.workers").removeHandler(handler)
    *words, first, last = capfd.readouterr().err.splitlines()
    assert words == ["[2/2] what went wrong"] * 5_000
    assert first == "worker 2/2 has failed, exit code 2; the others end"
    assert last == "ended with exit code 2: worker 2/2 has failed"


def test_lines_of_workers_that_print_at_the_same_time_stay_whole(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    long = "x" * 5_000
    prints = [*STARTS, ["say", f"{long}\n{long[:100]}\n", 500], ["end", 0]]
    assert run({}, count=3, otherwise=prints) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "goes on" not in line]
    assert len(lines) == 3 * 1_000
    assert set(lines) == {f"[{i}/3] {long[:n]}" for i in (1, 2, 3) for n in (100, 5_000)}


def test_an_event_in_json_that_names_its_worker_stays_json(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    event = '{"worker":"1/1","message":"m"}'
    run({1: [["complain", f"{event}\nplain\n"], *STARTS, ["end", 0]]}, count=1)
    assert capfd.readouterr().err == f"{event}\n[1/1] plain\n"


def test_a_process_that_a_worker_leaves_behind_doesnt_keep_the_command(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run({1: [*STARTS, ["leave_a_process_behind"], ["say", "rest"], ["end", 0]]}, count=1) == 0
    printed = capfd.readouterr().out
    assert printed.endswith("[1/1] rest\n")
    os.kill(int(printed.partition("left ")[2].split()[0]), signal.SIGKILL)


class Pumped:
    """A pump from a pipe to a pipe."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe(), os.pipe()
        self.pump = LinePump(lambda error: None)
        self.pump.start()
        self.pump.add(self.source[0], "[1/2]", self.sink[1])

    def close(self) -> None:
        os.close(self.source[1])
        self.pump.close()
        assert not self.pump.is_alive()


def test_a_line_that_never_ends_is_cut_and_takes_no_memory_without_bound() -> None:
    pumped = Pumped()
    received = bytearray()
    reader = threading.Thread(target=lambda: [received.extend(data) for data in iter(
        lambda: os.read(pumped.sink[0], 65536), b"")])  # fmt: skip
    reader.start()
    os.write(pumped.source[1], b"x" * 100)
    for _ in range(40):
        os.write(pumped.source[1], b"x" * 65536)
    pumped.close()
    os.close(pumped.sink[1])
    reader.join()
    lines = bytes(received).splitlines()
    assert {line[:6] for line in lines} == {b"[1/2] "}
    assert max(map(len, lines)) == LONGEST + 6
    assert sum(len(line) - 6 for line in lines) == 40 * 65536 + 100


def test_a_worker_goes_on_printing_when_nobody_reads_the_commands_output_any_more() -> None:
    pumped = Pumped()
    os.close(pumped.sink[0])
    for _ in range(100):  # more than a pipe holds
        os.write(pumped.source[1], b"line\n" * 10_000)
    pumped.close()
    os.close(pumped.sink[1])


def test_lines_that_wait_are_written_when_settling_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    pass_on, go_on, seen = LinePump._pass_on, threading.Event(), list[bytes]()

    def held_back(pump: LinePump, fd: int, source: Any) -> bool:
        go_on.wait()
        return pass_on(pump, fd, source)

    monkeypatch.setattr(LinePump, "_pass_on", held_back)
    pumped = Pumped()

    def settle() -> None:
        pumped.pump.settle()
        os.set_blocking(pumped.sink[0], False)
        with suppress(BlockingIOError):
            seen.append(os.read(pumped.sink[0], 100))

    os.write(pumped.source[1], b"last words\n")
    settling = threading.Thread(target=settle)
    settling.start()
    settling.join(0.1)  # it would be over if it waited for nothing
    go_on.set()
    settling.join()
    assert seen == [b"[1/2] last words\n"]
    pumped.close()
    for fd in pumped.sink:
        os.close(fd)


def test_an_output_that_takes_nothing_for_a_while_holds_up_only_the_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("milestones.workers.line_pump.SETTLE_S", 0.1)
    pumped = Pumped()
    os.set_blocking(pumped.source[1], False)
    with suppress(BlockingIOError):  # until it is full
        while True:
            os.write(pumped.source[1], b"line\n" * 1_000)
    pumped.pump.settle()  # comes back although nothing can be written
    pumped.pump.close()
    assert pumped.pump.is_alive()
    os.close(pumped.source[1])
    os.set_blocking(pumped.sink[0], False)
    while pumped.pump.is_alive():
        with suppress(BlockingIOError):
            os.read(pumped.sink[0], 65536)
    for fd in pumped.sink:
        os.close(fd)

