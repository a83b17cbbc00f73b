"""A parent with workers that do what a test says."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from milestones.workers.parent import WorkersParent
from milestones.workers.place import WorkerPlace

FAKE = Path(__file__).with_name("fake_worker.py")
Plan = list[list[Any]]
STARTS: Plan = [["settings"], ["go"]]
RUNS: Plan = [["ends_of_signals"], *STARTS, ["wait"]]
"""A worker that runs until a signal ends it."""

Run = Callable[..., int]


def fake_command(plans: Mapping[int, Plan], otherwise: Plan, place: WorkerPlace) -> list[str]:
    return [sys.executable, "-S", "-E", str(FAKE), json.dumps(plans.get(place.number, otherwise))]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs a parent: `run({1: plan, 2: plan}, count=3)`; `otherwise`: the plan of the others. Returns the exit code."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]

    def run(plans: Mapping[int, Plan], count: int = 2, otherwise: Plan = RUNS, *, auto: bool = False) -> int:
        parent = WorkersParent(
            lambda place: fake_command(plans, otherwise, place), count, lambda *_: None, auto=auto
        )
        try:
            return parent.run()
        finally:
            assert all(worker._process.returncode is not None for worker in parent._workers.values())
            assert not any(thread.is_alive() for worker in parent._workers.values() for thread in worker._threads)
            assert not parent._lines.is_alive()

    yield run
    assert [signal.getsignal(number) for number in numbers] == before
