"""How long commits take, by step."""

from __future__ import annotations

from typing import Any

from milestones.parts import CommitStep
from milestones.stream_thread.commits.timed_commit import TimedCommit


class Stepping:
    """A commit that takes a step with each call."""

    keeps = joins_beside = collects_beside = False

    def __init__(self) -> None:
        self.step: CommitStep | None = None

    def begin(self, _: object) -> None:
        self.step = CommitStep.SENDING

    def run_once(self, _: int) -> dict[Any, Any] | None:
        steps = [*CommitStep, None]
        self.step = steps[steps.index(self.step) + 1]
        return {} if self.step is None else None

    def abandon(self) -> None:
        self.step = None


def timed() -> TimedCommit:
    commit: Any = Stepping()
    return TimedCommit(commit)


def test_each_step_of_a_commit_is_counted_once_it_is_left() -> None:
    commit = timed()
    commit.begin({})
    commit.run_once(0)
    assert {step: time.calls for step, time in commit.steps.items() if time.calls} == {CommitStep.SENDING: 1}
    while commit.run_once(0) is None:
        pass
    assert [time.calls for time in commit.steps.values()] == [1, 1, 1, 1]
    assert sum(time.elapsed_ns for time in commit.steps.values()) <= commit.elapsed_ns


def test_a_commit_has_an_age_while_it_is_under_way() -> None:
    commit = timed()
    assert commit.age_ns == 0
    commit.begin({})
    assert commit.age_ns > 0
    commit.abandon()
    assert commit.age_ns == 0
    assert commit.steps[CommitStep.SENDING].calls == 1
    assert commit.calls == 0
