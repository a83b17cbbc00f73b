"""Instances that are forks of one process that has imported all: they are processes like those of new interpreters."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compat_tests.harness.forks import SERVERS, Forks
from compat_tests.harness.instance import FORKS, ROOT, Instance

PROBE = "tests.compat.fork_probe"
WAIT_S = 60.0

pytestmark = pytest.mark.skipif(FORKS.fresh, reason="this system has no process handles")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks(ROOT, PROBE)
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    made = tmp_path / "log"
    made.write_text("what was there\n")
    return made


def fresh(log: Path, *arguments: str) -> int:
    with log.open("ab") as output:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", PROBE, *arguments], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True, timeout=WAIT_S, check=False,
        ).returncode  # fmt: skip


def test_a_fork_finds_what_a_new_interpreter_finds(forks: Forks, log: Path) -> None:
    assert fresh(log, "facts", "3") == 3
    assert forks.start(["facts", "3"], {**os.environ, "PYTHONUNBUFFERED": "1"}, log).wait(WAIT_S) == 3
    before, of_its_own, of_a_fork = log.read_text().splitlines()
    assert before == "what was there"
    assert json.loads(of_a_fork) == json.loads(of_its_own)
    assert json.loads(of_a_fork)["objects"] == 1


def test_a_fork_has_the_environment_that_was_asked_for_and_nothing_else(forks: Forks, log: Path) -> None:
    forks.start(["facts"], {"ONLY": "this"}, log).wait(WAIT_S)
    assert json.loads(log.read_text().splitlines()[-1])["environment"] == {"ONLY": "this", "PYTHONPATH": str(ROOT)}


def test_forks_that_run_at_once_differ_in_the_seed_of_their_hashes(forks: Forks, log: Path) -> None:
    for _ in range(SERVERS):
        forks.start(["hash"], os.environ, log).wait(WAIT_S)
    assert len(set(log.read_text().splitlines()[1:])) == SERVERS


def test_a_fork_lives_until_a_signal_ends_it_and_that_is_its_exit_code(forks: Forks, log: Path) -> None:
    process = forks.start(["wait"], os.environ, log)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(WAIT_S) == process.poll() == -signal.SIGKILL
    process.send_signal(signal.SIGKILL)  # to nobody


def test_a_fork_outlives_its_server(log: Path) -> None:
    forks = Forks(ROOT, PROBE)
    process = forks.start(["wait"], os.environ, log)
    handle = os.pidfd_open(process.pid)
    forks.close()
    assert not select.select([handle], [], [], 0)[0]
    os.kill(process.pid, signal.SIGKILL)
    assert select.select([handle], [], [], WAIT_S)[0]
    os.close(handle)


def test_a_fault_is_armed_in_the_fork_that_is_to_have_it_only(forks: Forks, log: Path) -> None:
    struck = forks.start(["reach"], {**os.environ, "MILESTONES_FAULT": "restore.batch:kill"}, log)
    spared = forks.start(["reach"], os.environ, log)
    assert (struck.wait(WAIT_S), spared.wait(WAIT_S)) == (-signal.SIGKILL, 0)


def test_a_server_with_a_thread_forks_nothing(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    monkeypatch.setenv("STARTS_A_THREAD", "yes")
    with closing(Forks(ROOT, PROBE)) as forks, pytest.raises(AssertionError, match="server of forks has ended with 1"):
        forks.start(["facts"], os.environ, log)


def test_an_instance_of_other_code_is_a_new_interpreter(tmp_path: Path) -> None:
    for of_ours, change in ((True, {}), (False, {"source": tmp_path}), (False, {"entry": ("compat_tests.other",)})):
        instance = Instance("one", "copy", {}, tmp_path)
        vars(instance).update(change)
        assert instance.is_ours is of_ours
