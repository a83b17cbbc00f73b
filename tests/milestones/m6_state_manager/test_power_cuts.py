"""A power failure costs what was committed since the last sync, which is replayed; no commit is ever half there.

The last thing that a store without changelog was given is there, too. 200 failures: `power_cuts.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from milestones.common.state.engines.log_tails import USED_AGAIN
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint
from tests.common.state.opened_beside import opened
from tests.milestones.m6_state_manager.power_cuts import play

FAILURES, STORES, HEADER = 6, ("counts", "sums"), 7


@pytest.mark.parametrize("seed", range(2))
def test_after_a_power_failure_each_task_is_as_after_one_of_its_commits_and_is_restored_from_there(
    seed: int, tmp_path: Path
) -> None:
    """Others: `python -m tests.milestones.m6_state_manager.power_cuts 200 SEED`."""
    instance = play(seed, FAILURES, tmp_path)
    assert instance.happened["failures that cost something"]
    assert instance.happened["several logs"]


class TwoLogs:
    """A database whose column families have two logs, as the power fails before a table file takes the place of the
    first one's. `WRITES` numbers, each in both stores, are in each of them; `ends`: where they end in the first one."""

    WRITES = 50

    def __init__(self, directory: Path) -> None:
        engine = RocksDictEngines().open(directory / "database")
        self.folder = directory / "left"
        checkpoint = Checkpoint(directory / "database", self.folder)
        for store in STORES:
            engine.open(store)
        checkpoint.begin()
        self.ends = []
        for number in range(2 * self.WRITES):
            if number == self.WRITES:
                engine.flush(STORES[0])
            engine.apply({store: {b"%05d" % number: b"v"} for store in STORES}, {})
            if number < self.WRITES:
                (log,) = (directory / "database").glob("*.log")
                self.ends.append(log.stat().st_size)
        checkpoint.cut()
        checkpoint.finish()
        engine.close()
        self.first, _ = sorted(self.folder.glob("*.log"))

    def numbers(self) -> list[list[int]]:
        """What each store has."""
        engine = RocksDictEngines().open(self.folder)
        found = [[int(key) for key, _ in engine.open(store).scan(None, None)] for store in STORES]
        engine.close()
        return found


@pytest.mark.parametrize("beyond", [1, HEADER - 1, HEADER, HEADER + 10])
def test_of_two_logs_the_second_one_counts_no_more_when_the_first_one_ends_in_a_write(
    tmp_path: Path, beyond: int
) -> None:
    logs = TwoLogs(tmp_path)
    os.truncate(logs.first, logs.ends[29] + beyond)
    assert logs.numbers() == [[*range(30)]] * 2


def test_of_two_logs_the_second_one_counts_no_more_when_the_first_one_has_noise_between_two_writes(
    tmp_path: Path,
) -> None:
    logs = TwoLogs(tmp_path)
    with logs.first.open("r+b") as file:
        file.seek(logs.ends[29])
        file.write(HEADER * bytes([min(USED_AGAIN)]))
    assert opened("rocksdict", [logs.folder]) == ["opened"]
    assert logs.numbers() == [[*range(30)]] * 2


@pytest.mark.parametrize("cut", [lambda logs: os.truncate(logs.first, logs.ends[29]), lambda logs: logs.first.unlink()])
def test_where_the_first_one_ends_between_two_writes_the_library_notices_nothing(
    tmp_path: Path, cut: Callable[[TwoLogs], object]
) -> None:
    """Which is why a log that is followed by another one has to be on the disk before: the library syncs it when it
    writes the first log's table file, the state thread both logs, in their order."""
    logs = TwoLogs(tmp_path)
    cut(logs)
    first, second = logs.numbers()
    assert first == second
    assert {*range(50, 100)} <= {*first}
    assert {*range(30, 50)}.isdisjoint(first)
