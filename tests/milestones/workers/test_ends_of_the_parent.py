"""What a parent in a process of its own does to its workers when it is killed, and what a terminal's Ctrl-C does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milestones.common.testing.waiting import until
from tests.milestones.workers.conftest import FAKE, RUNS, STARTS, Plan

PROGRAM = """
import json, sys
from milestones.workers.parent import WorkersParent

fake, count, plans = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
command = lambda place: [sys.executable, "-S", "-E", fake, json.dumps(plans.get(str(place.number), plans["0"]))]
sys.exit(WorkersParent(command, count, lambda *_: None).run())
"""


class CommandProcess:
    """A parent in a process and a process group of its own."""

    def __init__(self, count: int, plans: dict[int, Plan], output: Path) -> None:
        self._output = output
        arguments = [sys.executable, "-c", PROGRAM, str(FAKE), str(count), json.dumps(plans)]
        with output.open("w") as stdout:
            self.process = subprocess.Popen(arguments, stdout=stdout, start_new_session=True)

    @property
    def printed(self) -> list[str]:
        return self._output.read_text().splitlines()

    def workers(self) -> list[int]:
        """The processes whose parent this is, after they have started."""
        until(lambda: sum("goes on" in line for line in self.printed) == 3, "all workers go on")
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


@contextmanager
def running(plans: dict[int, Plan], tmp_path: Path) -> Iterator[CommandProcess]:
    command = CommandProcess(3, plans, tmp_path / "output")
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_no_worker_lives_on_when_the_parent_is_killed(tmp_path: Path) -> None:
    with running({0: [*STARTS, ["wait_for_parent"]]}, tmp_path) as command:
        workers = command.workers()
        assert len(workers) == 3
        assert all(map(lives, workers))
        command.process.kill()
        until(lambda: not any(map(lives, workers)), "the workers are gone", timeout_s=10)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_ctrl_c_at_the_terminal_reaches_each_worker_once(tmp_path: Path) -> None:
    with running({0: RUNS}, tmp_path) as command:
        workers = command.workers()
        assert [os.getpgid(pid) for pid in workers] == workers  # a second SIGINT would kill them
        os.killpg(command.process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
        assert command.process.wait(60) == 130
        got = sorted(line for line in command.printed if "got" in line)
        assert got == [f"[{i}/3] {i}/3 got SIGINT" for i in (1, 2, 3)]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_kill_of_the_parents_group_leaves_no_worker(tmp_path: Path) -> None:
    with running({0: [*STARTS, ["wait_for_parent"]]}, tmp_path) as command:
        workers = command.workers()
        os.killpg(command.process.pid, signal.SIGKILL)
        until(lambda: not any(map(lives, workers)), "the workers are gone", timeout_s=10)
