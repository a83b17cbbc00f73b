"""Before M2, where a task ends alone: what one fails of is told of that task, and the others go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milestones.baseline.isolating_processing import IsolatingProcessing
from milestones.common.testing.clock import StepClock
from milestones.parts import CloseMode
from tests.milestones.work import Work

BAD = ValueError("bad")


class Failing(Work):
    """A task that fails when it is asked to do `at`; `cached`: it has something to flush."""

    def __init__(self, clock: StepClock, at: str) -> None:
        super().__init__(clock, waiting=3, record_ms=0)
        self.at, self.calls = at, 0
        self.cached = at == "flush"
        self.applying = at == "apply"

    def _do(self, what: str) -> None:
        if what == self.at:
            self.calls += 1
            raise BAD
        super()._do(what)

    def process(self, limit: int, now_ms: int) -> int:
        self._do("process")
        return super().process(limit, now_ms)

    def punctuate(self, wall_ms: int) -> bool:
        self._do("punctuate")
        return super().punctuate(wall_ms)

    def flush(self) -> None:
        self._do("flush")
        super().flush()

    def apply(self, *, last: bool = False) -> None:
        self._do("apply")
        super().apply(last=last)


def both(at: str) -> tuple[IsolatingProcessing, Failing, Work]:
    clock = StepClock()
    context: Any = SimpleNamespace(clock=clock)
    part, bad, good = IsolatingProcessing(context), Failing(clock, at), Work(clock, 1, waiting=3, record_ms=0)
    for task in (bad, good):
        part.add(task)  # type: ignore[arg-type]  # as far as it goes
    return part, bad, good


def turn(part: IsolatingProcessing, task: Work) -> None:
    part.run_once(task.clock.monotonic_ms())
    part.prepare_commit(task.clock.monotonic_ms())
    task.clock.advance(100)


@pytest.mark.parametrize("at", ["initialise", "process", "punctuate", "flush"])
def test_a_task_that_fails_is_called_once_and_told_and_the_others_go_on(at: str) -> None:
    part, bad, good = both(at)
    bad.punctuation_ms = 0
    for _ in range(3):
        turn(part, bad)
    assert (list(part.take_failed()), list(part.take_failed())) == ([(bad.id, BAD)], [])
    assert (bad.calls, good.waiting) == (1, 0)
    part.pause(frozenset())
    turn(part, bad)
    assert bad.calls == 1


def test_a_commit_that_cannot_be_written_is_the_tasks_failure() -> None:
    part, bad, _ = both("apply")
    part.apply(bad)  # type: ignore[arg-type]  # as far as it goes
    assert list(part.take_failed()) == [(bad.id, BAD)]


def test_a_task_that_was_removed_and_comes_back_is_called_again() -> None:
    part, bad, _ = both("process")
    turn(part, bad)
    part.remove(bad.id, CloseMode.SUSPEND)
    bad.at = "nothing"
    part.add(bad)  # type: ignore[arg-type]  # as far as it goes
    turn(part, bad)
    assert bad.waiting == 0
