"""Power failures of an instance, by seed: commits of several tasks, synced by the state thread, and logs that are cut.

    commits --steps--> log of the database --every INTERVAL_MS--> disk
    a failure, at any write: the newest log ends at any byte after those that were synced, or says nothing from there on
    the next life opens what is left, replays the changelogs from there, and goes on with it

    python -m tests.milestones.m6_state_manager.power_cuts CUTS [FIRST SEED]
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from milestones.common.records import TaskId
from milestones.common.state.directory import DATABASES, StateDirectory
from milestones.common.state.engines.rocks import RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.spec import StoreSpec
from milestones.common.testing import StepClock
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.database_folder import DATABASE
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint, TornError
from milestones.m6_state_manager.snapshots.maker import NoneMade
from milestones.m6_state_manager.state_thread import StateKeeper
from tests.common.state.opened_beside import NOISES
from tests.milestones.m6_state_manager.states import COUNTS, SUMS, UNLOGGED
from tests.milestones.m6_state_manager.task_lives import TaskLife
from tests.noted import noted

INTERVAL_MS = 1_000
LONGEST_MS = 120
"""Between two writes."""
CALLS = 120
"""Writes and syncs of a life, at most."""
FAILURES = 10
"""Of an instance whose stores are then large."""
SMALL = RocksSettings(write_buffer_bytes=64 * 1024, all_write_buffers_bytes=1024 * 1024)
"""Memtables that are flushed, and logs that are followed by others, in each life."""
TASKS: dict[TaskId, list[StoreSpec]] = {
    **{TaskId(0, partition): [COUNTS, SUMS] for partition in range(3)},
    **{TaskId(1, partition): [COUNTS, UNLOGGED] for partition in range(2)},
}

TAILS: dict[str, Callable[[random.Random, int], bytes]] = {
    "zeros": lambda _, size: bytes(size),
    "ones": lambda _, size: b"\xff" * size,
    "noise": lambda rng, size: rng.choice(NOISES)(rng, size),
}
"""What a log has in place of what wasn't synced."""

WATCHED = {"apply", "wipe", "sync"}
"""Calls of an engine."""


class PowerFailure(Exception):
    """The process is no more."""


class Instance:
    """The state of an instance over many lives. `happened`: how often what did; `most`: the most that was lost."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng, self._base, self._number = random.Random(seed), directory, 0
        self.clock = StepClock(1_000_000)
        self.happened, self.most = Counter[str](), Counter[str]()
        self._synced: dict[tuple[int, str], int] = {}
        self._calls_left: int | None = None
        self.lives = {task: TaskLife(task, specs, self.rng) for task, specs in TASKS.items()}
        self._begin()

    # -- a life

    def _begin(self) -> None:
        self.directory = StateDirectory(self._base / str(self._number), "words", self.clock)
        self.manager = RangeStateManager(self.directory, RocksDictEngines(SMALL), "m6")
        self.keeper = StateKeeper(self.manager, self.clock, INTERVAL_MS, NoneMade())
        self._synced, self._calls_left = {}, None
        for task, life in self.lives.items():
            life.open(self.manager)
            self._watch(task.subtopology)

    def _watch(self, number: int) -> None:
        """Have each write, and each sync, be one that may never come."""
        (engine,) = (database.engine for database in self.manager.databases() if database.number == number)
        if vars(engine).keys() & WATCHED:
            return
        calls: Any = engine
        calls.apply, calls.wipe = self._failing(engine.apply), self._failing(engine.wipe)
        calls.sync = self._failing(engine.sync, lambda: self._was_synced(number))

    def _failing(self, call: Callable[..., Any], done: Callable[[], object] = lambda: None) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> None:
            if self._calls_left is not None:
                self._calls_left -= 1
                if self._calls_left < 0:
                    raise PowerFailure
            call(*arguments, **named)
            done()

        return called

    def _was_synced(self, number: int) -> None:
        for log in self._logs(self.directory.path / DATABASES / str(number) / DATABASE):
            self._synced[number, log.name] = log.stat().st_size
        for task, life in self.lives.items():
            if task.subtopology == number:
                life.was_synced()

    def run(self) -> None:
        """Work until the power fails."""
        self._calls_left = self.rng.randrange(1, CALLS)
        try:
            while self._calls_left:
                self.rng.choice(list(self.lives.values())).step(self.clock.monotonic_ms())
                self._pass(self.rng.randrange(1, LONGEST_MS))
        except PowerFailure:
            self.happened["in the middle of a write"] += 1
        self._calls_left = None

    def _pass(self, ms: int) -> None:
        """Let time pass; the state thread syncs when it is time to."""
        while (left := self.keeper._left_ms()) <= ms:
            self.clock.advance(left)
            ms -= left
            self.keeper.run_once()
        self.clock.advance(ms)

    # -- a failure

    def fail(self) -> None:
        """The next life begins with what the disk has; each task's row, and all of its stores, are as they were after
        one of its writes, at or after the last sync; replays give them what they had."""
        left = self._base / str(self._number + 1)
        self._copy(left)
        self.close()
        shutil.rmtree(self.directory.path.parent)
        self._number += 1
        for folder in sorted((left / "words" / DATABASES).iterdir()):
            self._cut(int(folder.name), folder / DATABASE)
        self._begin()
        self._judge()

    def _copy(self, target: Path) -> None:
        """The files at this moment, as they would be if the system had written all."""
        ignored = shutil.ignore_patterns(DATABASE, ".lock", ".trash-*")
        shutil.copytree(self.directory.path, target / "words", ignore=ignored)
        for database in self.manager.databases():
            copy = target / "words" / DATABASES / str(database.number) / DATABASE
            while not self._checkpoint(database.folder, copy):
                shutil.rmtree(copy)

    @staticmethod
    def _checkpoint(folder: Path, copy: Path) -> bool:
        checkpoint = Checkpoint(folder, copy)
        try:
            checkpoint.begin()
            checkpoint.cut()
            checkpoint.finish()
        except TornError:
            return False
        return True

    @staticmethod
    def _logs(folder: Path) -> list[Path]:
        """The oldest first."""
        return sorted(folder.glob("*.log"), key=lambda log: int(log.stem))

    def _cut(self, number: int, folder: Path) -> None:
        """Have the newest log end, or be zeros, ones or noise, from a random byte on."""
        logs = self._logs(folder)
        synced, size = self._synced.get((number, logs[-1].name), 0), logs[-1].stat().st_size
        at = self.rng.randint(synced, size)
        how = self.rng.choice(["cut", "cut", "zeros", "ones", "noise"])
        with logs[-1].open("r+b") as opened:
            opened.truncate(at)
            if how != "cut":
                opened.seek(at)
                opened.write(TAILS[how](self.rng, size - at))
        self.happened[f"log: {how}"] += 1
        self.happened["several logs"] += len(logs) > 1
        self.most["bytes of a log"] = max(self.most["bytes of a log"], size - at)

    def _judge(self) -> None:
        now_ms, restored = self.clock.monotonic_ms(), 0
        for life in self.lives.values():
            lost = life.judge()
            self.happened["writes lost"] += len(lost)
            for at_ms in lost:
                assert now_ms - at_ms <= INTERVAL_MS, f"what task {life.task} wrote {now_ms - at_ms} ms ago is lost"
                self.most["ms that are lost"] = max(self.most["ms that are lost"], now_ms - at_ms)
            restored += life.restore(now_ms)
        self.most["records restored"] = max(self.most["records restored"], restored)
        self.happened["failures that cost something"] += restored > 0

    def close(self) -> None:
        """End what still runs, whose writes count no more."""
        for database in self.manager.databases():
            for name in WATCHED:
                vars(database.engine).pop(name)
        self.keeper.end(10)
        for life in self.lives.values():
            life.storage.close()
        self.manager.release()
        self.directory.close()


def play(seed: int, cuts: int, directory: Path) -> Instance:
    """Have the power fail so often; an error names seed and failure."""
    instance = Instance(seed, directory)
    try:
        for cut in range(cuts):
            with noted(f"seed {seed}, failure {cut}"):
                instance.run()
                instance.fail()
    finally:
        instance.close()
    return instance


def main(cuts: int, first: int = 0) -> int:
    """Have the power fail so often, in instances of `FAILURES` failures each, and print what happened."""
    logging.disable(logging.CRITICAL)
    began, most, happened = time.monotonic(), Counter[str](), Counter[str]()
    seeds = range(first, first + -(-cuts // FAILURES))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as directory:
            instance = play(seed, FAILURES, Path(directory))
        most |= instance.most
        happened += sum((life.happened for life in instance.lives.values()), instance.happened)
    taken_s = time.monotonic() - began
    print(f"{FAILURES * len(seeds)} power failures, {taken_s:.0f} s: each was exact after the restoration")
    print("at most: " + ", ".join(f"{count:,} {what}" for what, count in sorted(most.items())))
    print(", ".join(f"{what} {count}" for what, count in sorted(happened.items())))
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
