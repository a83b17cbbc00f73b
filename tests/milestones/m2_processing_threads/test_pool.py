"""Processing threads that come and go: real ones."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from milestones.m2_processing_threads.pool import WorkerPool
from milestones.m2_processing_threads.worker import ProcessingThread

WAIT_S = 10


class Busy:
    """A worker that never runs out of work."""

    over = False

    def __init__(self, number: int) -> None:
        self.name = f"busy-{number}"
        self.leaving = self.ended = False
        self.works = threading.Event()

    def run_once(self) -> bool:
        self.works.set()
        return True

    def close(self) -> None:
        self.ended = True


def test_threads_that_are_too_many_end_however_much_there_is_to_do_and_those_that_are_missing_are_started() -> None:
    made: list[Busy] = []
    threads: dict[str, ProcessingThread] = {}

    def make(number: int) -> Any:
        made.append(Busy(number))
        return made[-1]

    def launch(worker: Any) -> ProcessingThread:
        thread = threads[worker.name] = ProcessingThread(worker, nullcontext())
        thread.start()
        return thread

    pool = WorkerPool(make, launch)
    pool.resize(3)
    assert all(worker.works.wait(WAIT_S) for worker in made)
    pool.resize(1)
    for name in ("busy-2", "busy-3"):
        threads[name].join(WAIT_S)
        assert not threads[name].is_alive()
    assert (len(pool), threads["busy-1"].is_alive()) == (1, True)
    pool.resize(2)
    assert [worker.name for worker in made] == ["busy-1", "busy-2", "busy-3", "busy-2"]
    pool.resize(0)
    for thread in threads.values():
        thread.join(WAIT_S)
    assert all(worker.ended for worker in made)


def test_a_thread_that_the_system_does_not_start_is_tried_again_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    started: list[str] = []
    room = 1

    def launch(worker: Any) -> Any:
        if len(started) >= room:
            raise RuntimeError("can't start new thread")
        started.append(worker.name)

    make: Any = Busy
    pool = WorkerPool(make, launch)
    pool.resize(3)
    pool.resize(3)
    assert (started, pool.numbers, str(pool.refused)) == (["busy-1"], {1}, "can't start new thread")
    assert caplog.text.count("busy-2: can't start new thread") == 1
    room = 3
    pool.resize(3)
    assert (started, pool.refused) == (["busy-1", "busy-2", "busy-3"], None)
