"""The parent of workers: signals, exit codes and ends. The workers are fakes without Kafka."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
from contextlib import suppress

import pytest

from milestones.common.errors import ConfigError
from milestones.workers import parent as module
from milestones.workers.line_pump import LinePump
from milestones.workers.place import WorkerPlace
from milestones.workers.process import Events, WorkerEnded, WorkerProcess, WorkerSaid
from tests.milestones.workers.conftest import STARTS, Run, fake_command

TERM, INT, USR1, KILL = int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGUSR1), int(signal.SIGKILL)
READY = [["ends_of_signals"], *STARTS]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


@pytest.mark.parametrize(("number", "code"), [(INT, 130), (TERM, 0)])
def test_a_signal_reaches_every_worker_once_and_the_command_ends_as_one_process_would(
    run: Run, number: int, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run({3: [*READY, ["signal_parent", number], ["wait"]]}, count=3) == code
    name = signal.Signals(number).name
    assert sorted(line for line in capfd.readouterr().out.splitlines() if "got" in line) == [
        f"[{i}/3] {i}/3 got {name}" for i in (1, 2, 3)
    ]


def test_a_signal_that_comes_before_a_worker_has_its_handlers_isnt_a_failure(run: Run) -> None:
    assert run({1: [*STARTS, ["signal_parent", TERM], ["wait"]]}, otherwise=[*STARTS, ["wait"]]) == 0


def test_a_signal_during_the_start_ends_the_workers_that_are_there_and_starts_no_other(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run({1: [["ends_of_signals"], ["signal_parent", INT], ["wait"]]}, count=3) == 130
    assert capfd.readouterr().out == "[1/3] 1/3 got SIGINT\n"


def test_a_worker_that_is_ready_only_after_the_signal_doesnt_go_on(
    run: Run, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    late = [["counts_signals"], ["signal_parent", TERM], ["wait_for_signal"], ["settings"], ["go"], ["wait"]]
    assert run({1: late}) == 0
    assert capfd.readouterr().out == "[1/2] 1/2 got SIGTERM\n"
    assert errors(caplog) == []


def test_a_worker_that_waits_for_the_others_and_misses_the_signal_ends_all_the_same(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert run({1: [["counts_signals"], *STARTS, ["wait"]], 2: [["end", 4]]}) == 4
    assert errors(caplog) == [
        "worker 2/2 has failed, exit code 4; the others end", "ended with exit code 4: worker 2/2 has failed"
    ]


def test_the_second_signal_kills_workers_that_dont_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SAME_S", 0)
    stubborn = [["counts_signals"], *STARTS, ["signal_parent", TERM], ["signal_parent", INT], ["wait"]]
    assert run({2: stubborn}, otherwise=[["counts_signals"], *STARTS, ["wait"]]) == 130
    assert errors(caplog) == ["ended at once, without a last commit: what wasn't committed is processed again"]


def test_the_same_signal_twice_within_a_short_time_counts_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SAME_S", 1_000)
    once = [["counts_signals"], *STARTS, ["signal_parent", TERM], ["wait_for_signal"]]
    assert run({1: [*once, ["signal_parent", TERM], ["end", 0]]}) == 0
    assert errors(caplog) == []


def test_a_request_for_a_profile_reaches_all_workers_and_ends_none(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    ready = [["ends_of_signals"], ["counts_signals", USR1], *STARTS]
    asks = [*ready, ["signal_parent", USR1], ["wait_for_signal"], ["signal_parent", TERM], ["wait"]]
    assert run({1: asks}, count=3, otherwise=[*ready, ["wait"]]) == 0
    got = sorted(line for line in capfd.readouterr().out.splitlines() if "USR1" in line)
    assert got == [f"[{i}/3] {i}/3 got SIGUSR1" for i in (1, 2, 3)]


@pytest.mark.parametrize("code", [1, 2, 3, 4])
def test_the_first_worker_that_fails_ends_the_others_and_gives_its_exit_code(
    run: Run, code: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run({2: [*STARTS, ["end", code]]}, count=3) == code
    assert errors(caplog) == [
        f"worker 2/3 has failed, exit code {code}; the others end",
        f"ended with exit code {code}: worker 2/3 has failed",
    ]
    assert [line for line in sorted(capfd.readouterr().out.splitlines()) if "got" in line] == [
        "[1/3] 1/3 got SIGTERM", "[3/3] 3/3 got SIGTERM"
    ]


def test_a_worker_that_the_system_kills_gives_exit_code_1_and_a_line_with_the_signal(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert run({2: [*STARTS, ["signal_itself", KILL]]}) == 1
    assert errors(caplog) == [
        "worker 2/2 was killed by SIGKILL; the others end", "ended with exit code 1: worker 2/2 was killed by SIGKILL"
    ]


def test_a_worker_that_fails_after_the_first_one_is_named_but_doesnt_change_the_exit_code(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    dies = [["dies_of_signals", int(signal.SIGSEGV)], *STARTS, ["wait"]]
    assert run({1: [*STARTS, ["end", 3]], 2: dies}) == 3
    assert errors(caplog) == [
        "worker 1/2 has failed, exit code 3; the others end",
        "worker 2/2 was killed by SIGSEGV",
        "ended with exit code 3: worker 1/2 has failed",
    ]


def test_a_worker_that_ends_well_leaves_the_others_alone(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert run({1: [*READY, ["end", 0]], 2: [*READY, ["say", "x"], ["end", 0]]}) == 0
    assert errors(caplog) == []


def test_a_worker_that_dies_before_it_reports_ends_the_command_before_others_are_started(
    run: Run, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert run({1: [["complain", "no such file\n"], ["end", 2]]}, count=8) == 2
    assert capfd.readouterr().err == "[1/8] no such file\n"
    assert errors(caplog) == ["ended with exit code 2: worker 1/8 has failed"]


def test_a_later_worker_that_dies_before_it_reports_lets_none_go_on(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run({2: [["end", 1]]}, count=3, otherwise=[["ends_of_signals"], ["settings"], ["go"], ["wait"]]) == 1
    assert "goes on" not in capfd.readouterr().out


def test_workers_that_dont_end_in_time_are_killed_and_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "REST_S", 0.1)
    hangs = [["counts_signals"], ["settings", {"close_timeout_ms": 100}], ["go"], ["wait"]]
    assert run({1: [["settings", {"close_timeout_ms": 100}], ["go"], ["end", 4]], 2: hangs}) == 4
    assert errors(caplog)[1] == "workers that didn't end in time were killed: 2/2"


def test_a_port_that_is_taken_is_one_error_before_any_worker_goes_on(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"metrics_port": taken.getsockname()[1]}
        with pytest.raises(ConfigError, match=r"metrics_port=.*in use"):
            run({1: [["ends_of_signals"], ["settings", settings], ["go"], ["wait"]]}, count=3)
    assert capfd.readouterr().out in ("", "[1/3] 1/3 got SIGTERM\n")


def test_a_program_that_cant_be_started_is_an_error_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = module.WorkersParent(lambda _: ["/no/such/program"], 2, lambda *_: None)
    with pytest.raises(FileNotFoundError):
        parent.run()


def test_auto_starts_as_many_workers_as_partitions_but_not_more_than_cores(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = [*READY, ["end", 0]]
    assert run({0: [["partitions", 2], ["end", 0]]}, count=8, otherwise=ends, auto=True) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[1/2] goes on None", "[2/2] goes on None"]
    assert run({0: [["partitions", 100], ["end", 0]]}, count=3, otherwise=ends, auto=True) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3


def test_a_program_that_ends_before_it_comes_to_its_run_is_a_failure(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert run({1: [["end", 0]]}) == 1
    assert run({0: [["end", 0]]}, auto=True) == 1
    assert errors(caplog) == [
        "ended with exit code 1: worker 1/2 ended before it came to run the application",
        "ended with exit code 1: the process that counts partitions ended before it came to run the application",
    ]


def test_auto_ends_with_the_code_of_the_count_that_failed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert run({0: [["end", 3]]}, count=8, auto=True) == 3
    assert errors(caplog) == ["ended with exit code 3: the process that counts partitions has failed"]



class SlowToListen(WorkerProcess):
    """Reads messages only after the process has ended."""

    def _listen(self) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        super()._listen()


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="this system has no waitid")
def test_the_last_message_of_a_worker_comes_before_its_end() -> None:
    for _ in range(5):
        events: Events = queue.SimpleQueue()
        place = WorkerPlace(1, 1, "a-command")
        worker = SlowToListen(place, fake_command({}, [["partitions", 7]], place), events)
        assert events.get(timeout=60) == WorkerSaid(1, {"partitions": 7})
        assert events.get(timeout=60) == WorkerEnded(1, 0)
        worker.close()
        os.close(worker.stdout)
        os.close(worker.stderr)


@pytest.mark.parametrize(("owner", "name", "thread"), [
    (LinePump, "_take_requests", "lines"), (WorkerProcess, "_listen", "worker-1_listen"),
])  # fmt: skip
def test_a_thread_of_the_command_that_dies_ends_it_with_an_error(
    run: Run, owner: type, name: str, thread: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("planted")

    die.__name__ = name
    monkeypatch.setattr(owner, name, die)
    monkeypatch.setattr(module, "DEFAULT_CLOSE_S", 0.1)
    monkeypatch.setattr(module, "REST_S", 0.5)
    assert run({}, otherwise=[["ends_of_signals"], *STARTS, ["wait"]]) == 1
    assert errors(caplog)[-1].startswith(f"ended with exit code 1: the command's thread {thread} has died of Runtime")


def test_a_command_ends_although_the_end_of_a_worker_is_not_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def _await(_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(WorkerProcess, "_await", _await)
    monkeypatch.setattr(module, "DEFAULT_CLOSE_S", 0.1)
    monkeypatch.setattr(module, "REST_S", 0.3)
    assert run({}, otherwise=[["ends_of_signals"], *STARTS, ["wait"]]) == 1
    assert "worker-1_await" in errors(caplog)[-1]
