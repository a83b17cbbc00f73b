"""How long commits take, by step."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.parts.transaction import CommitStage
from milestones.stream_thread.commits.timed_commit import TimedCommit
from milestones.stream_thread.commits.transaction_register import ENDS, TransactionRegister


class Stepping:
    """A commit that takes a step with each call, to this end."""

    def __init__(self, register: TransactionRegister, ending: CommitStage = CommitStage.ENDING) -> None:
        self.register = register
        self.left: list[CommitStage] = []
        self.stages = [CommitStage.FLUSHING, CommitStage.OFFSETS, ending, CommitStage.OPEN]

    def begin(self, _: object) -> None:
        self.register.move(CommitStage.SENDING)
        self.left = list(self.stages)

    def run_once(self, _: int) -> dict[Any, Any] | None:
        self.register.move(self.left.pop(0))
        return None if self.register.under_way else {}

    def abandon(self) -> None:
        self.register.commit_is_over()


def timed(ending: CommitStage = CommitStage.ENDING) -> TimedCommit:
    register = TransactionRegister(lambda task: True, {})
    commit: Any = Stepping(register, ending)
    return TimedCommit(commit, register)


@pytest.mark.parametrize("ending", ENDS)
def test_each_step_of_a_commit_is_counted_once_it_is_left_whatever_its_end_is(ending: CommitStage) -> None:
    commit = timed(ending)
    commit.begin({})
    commit.run_once(0)
    assert {step: time.calls for step, time in commit.steps.items() if time.calls} == {CommitStage.SENDING: 1}
    while commit.run_once(0) is None:
        pass
    assert {step: time.calls for step, time in commit.steps.items()} == dict.fromkeys(
        (CommitStage.SENDING, CommitStage.FLUSHING, CommitStage.OFFSETS, CommitStage.ENDING), 1
    )
    assert sum(time.elapsed_ns for time in commit.steps.values()) <= commit.elapsed_ns


def test_a_commit_has_an_age_while_it_is_under_way() -> None:
    commit = timed()
    assert commit.age_ns == 0
    commit.begin({})
    assert commit.age_ns > 0
    commit.abandon()
    assert commit.age_ns == 0
    assert commit.steps[CommitStage.SENDING].calls == 1
    assert commit.calls == 0


def test_the_time_until_it_is_known_how_a_transaction_ended_counts_for_its_end() -> None:
    register = TransactionRegister(lambda task: True, {})
    stepping: Any = Stepping(register)
    stepping.stages.insert(-1, CommitStage.RESOLVING)
    commit = TimedCommit(stepping, register)
    commit.begin({})
    while register.step is not CommitStage.RESOLVING:
        commit.run_once(0)
    assert commit.steps[CommitStage.ENDING].calls == 0
    commit.run_once(0)
    assert [time.calls for time in commit.steps.values()] == [1, 1, 1, 1]
