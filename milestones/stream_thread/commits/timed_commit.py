"""Measures how long commits and their steps take.

*Guarantees*: the measured commit behaves as it would without the measurement.
*Assumes*: the same as `Commit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from milestones.parts.transaction import CommitStage

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.common.task.commit_set import CommitSet
    from milestones.parts import Commit
    from milestones.stream_thread.commits.transaction_register import TransactionRegister

TIMED_AS: Final[Mapping[CommitStage, CommitStage]] = {
    CommitStage.SENDING: CommitStage.SENDING,
    CommitStage.FLUSHING: CommitStage.FLUSHING,
    CommitStage.OFFSETS: CommitStage.OFFSETS,
    CommitStage.ENDING: CommitStage.ENDING,
    CommitStage.RESOLVING: CommitStage.ENDING,
    CommitStage.COMMITTING_OFFSETS: CommitStage.ENDING,
    CommitStage.COMMITTING_OFFSETS_BESIDE: CommitStage.ENDING,
}
"""The step that a stage's time counts for. So both processing guarantees have the same metrics."""


@dataclass
class StepTime:
    """How often commits have left a step, and for how long they were in it."""

    calls: int = 0
    elapsed_ns: int = 0

    def add(self, elapsed_ns: int) -> None:
        self.calls, self.elapsed_ns = self.calls + 1, self.elapsed_ns + elapsed_ns


class TimedCommit:
    """A `Commit` that counts successful commits (`calls`) and their time from beginning to end (`elapsed_ns`). For each
    step, `steps` says how often commits have left it, and how long they were in it."""

    calls: int
    elapsed_ns: int
    moves: int
    """The number of times that a commit has moved to another step."""

    def __init__(self, commit: Commit, register: TransactionRegister) -> None:
        self._commit, self._register = commit, register
        self._began_ns = self.calls = self.elapsed_ns = self.moves = 0
        self.steps: dict[CommitStage, StepTime] = {step: StepTime() for step in TIMED_AS.values()}
        self._step, self._since_ns = self._timed_step(), 0

    @property
    def age_ns(self) -> int:
        """The age of the commit that is under way; 0 without one."""
        return perf_counter_ns() - self._began_ns if self._register.under_way else 0

    def begin(self, commit_set: CommitSet) -> None:
        self._began_ns = self._since_ns = perf_counter_ns()
        self._commit.begin(commit_set)
        self._step = self._timed_step()

    def run_once(self, wait_ms: int) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        try:
            committed = self._commit.run_once(wait_ms)
        finally:
            self._look()
        if committed is not None:
            self.calls += 1
            self.elapsed_ns += perf_counter_ns() - self._began_ns
        return committed

    def abandon(self) -> None:
        self._commit.abandon()
        self._look()

    def _timed_step(self) -> CommitStage | None:
        return TIMED_AS.get(self._register.step)

    def _look(self) -> None:
        """Record that a step was left. If one call takes several steps, their time counts for the first of them."""
        step = self._timed_step()
        if step is not self._step:
            now_ns = perf_counter_ns()
            if self._step is not None:
                self.steps[self._step].add(now_ns - self._since_ns)
            self.moves += 1
            self._step, self._since_ns = step, now_ns
