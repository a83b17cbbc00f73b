"""The supervised child: it ends with its owner, whatever the owner's end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milestones.common.kafka.embedded.errors import DataDirInUseError, EmbeddedKafkaError
from milestones.common.kafka.embedded.lock import locked
from milestones.common.kafka.embedded.process import SupervisedProcess

SLEEPER = ["sleep", "600"]
OWNER = """
import os, sys, time
from pathlib import Path
from milestones.common.kafka.embedded.process import SupervisedProcess
process = SupervisedProcess(Path(sys.argv[1]))
process.run(["sleep", "600"], Path(sys.argv[2]))
fork = os.fork() if sys.argv[3] == "fork" else 0
if sys.argv[3] == "alone" or fork:
    print(process.pid, process._supervisor.pid, fork, flush=True)
time.sleep(600)
"""
only_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="watches processes that aren't its own")


@pytest.fixture
def process() -> Iterator[SupervisedProcess]:
    process = SupervisedProcess()
    yield process
    process.close()


@contextmanager
def ends(*pids: int) -> Iterator[None]:
    """These processes, which run now, have ended within ten seconds of the block's end."""
    files = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
        for file in files:
            assert select.select([file], [], [], 10)[0], f"of {pids} one still runs"
    finally:
        for file in files:
            os.close(file)


def test_the_exit_code_and_the_output_of_the_child_are_kept(process: SupervisedProcess, tmp_path: Path) -> None:
    process.run(["sh", "-c", "echo hello; exit 7"], tmp_path / "out")
    assert process.wait(10) == 7
    assert not process.running
    assert (tmp_path / "out").read_text() == "hello\n"


def test_children_run_one_after_the_other(process: SupervisedProcess, tmp_path: Path) -> None:
    for word in ("first", "second"):
        process.run(["echo", word], tmp_path / "out")
        assert process.wait(10) == 0
    assert (tmp_path / "out").read_text() == "first\nsecond\n"
    process.run(SLEEPER, tmp_path / "out")
    with pytest.raises(EmbeddedKafkaError, match="still runs"):
        process.run(SLEEPER, tmp_path / "out")


def test_a_signal_reaches_the_child_and_not_its_successor(process: SupervisedProcess, tmp_path: Path) -> None:
    process.run(SLEEPER, tmp_path / "out")
    process.signal(signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    process.signal(signal.SIGKILL)
    process.run(SLEEPER, tmp_path / "out")
    assert process.wait(0.05) is None
    assert process.running


def test_a_program_that_does_not_exist_is_an_error(process: SupervisedProcess, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match=r"can't be started: .*no-such-program"):
        process.run(["no-such-program"], tmp_path / "out")
    assert not process.running


@only_on_linux
def test_close_ends_the_child_and_deletes_temporary_data(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    process = SupervisedProcess(folder)
    process.run(SLEEPER, tmp_path / "out")
    with ends(process.pid or 0):
        process.close()
    process.close()
    assert not folder.exists()


def test_a_data_directory_belongs_to_one_broker_until_its_process_is_gone(tmp_path: Path) -> None:
    with locked(tmp_path / "lock") as lock:
        process = SupervisedProcess(lock=lock)
    in_use = pytest.raises(DataDirInUseError, match="a running broker uses the data directory")
    with in_use, locked(tmp_path / "lock", patience_s=0):
        pass
    process.close()
    with locked(tmp_path / "lock", patience_s=0):
        pass


@only_on_linux
def test_the_child_of_a_killed_supervisor_dies_too(process: SupervisedProcess, tmp_path: Path) -> None:
    process.run(SLEEPER, tmp_path / "out")
    with ends(process.pid or 0):
        os.kill(process._supervisor.pid, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    assert process.closed
    with pytest.raises(EmbeddedKafkaError, match="supervisor is gone"):
        process.run(SLEEPER, tmp_path / "out")


@only_on_linux
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_kill_9_of_the_owner_ends_the_child_and_deletes_temporary_data(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    argv = [sys.executable, "-c", OWNER, str(folder), str(tmp_path / "out"), how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as owner:
        assert owner.stdout is not None
        child, supervisor, fork = map(int, owner.stdout.readline().split())
        with ends(child, supervisor):
            owner.kill()
        if fork:
            os.kill(fork, signal.SIGKILL)
    assert not folder.exists()
