"""How long commits take, and each of their steps.

*Guarantees*: counting changes nothing of the commit that is counted.
*Assumes*: as `Commit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from milestones.parts import CommitStep

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.common.task.commit_set import CommitSet
    from milestones.parts import Commit


@dataclass
class StepTime:
    """How often commits have left a step, and for how long they were in it."""

    calls: int = 0
    elapsed_ns: int = 0

    def left(self, elapsed_ns: int) -> None:
        self.calls, self.elapsed_ns = self.calls + 1, self.elapsed_ns + elapsed_ns


class TimedCommit:
    """A `Commit` that counts the commits that succeeded, and their time from beginning to end; and, by step, how often
    commits have left it, and the time that they were in it (`steps`)."""

    calls: int
    elapsed_ns: int
    moves: int
    """How often a commit has gone on to another step."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self.keeps: bool = commit.keeps
        self._began_ns = self.calls = self.elapsed_ns = self.moves = 0
        self.steps: dict[CommitStep, StepTime] = {step: StepTime() for step in CommitStep}
        self._step, self._since_ns = commit.step, 0

    @property
    def step(self) -> CommitStep | None:
        return self._commit.step

    @property
    def joins_beside(self) -> bool:
        return self._commit.joins_beside

    @property
    def collects_beside(self) -> bool:
        return self._commit.collects_beside

    @property
    def age_ns(self) -> int:
        """The age of the commit that is under way; 0 without one."""
        return 0 if self.step is None else perf_counter_ns() - self._began_ns

    def begin(self, commit_set: CommitSet) -> None:
        self._began_ns = self._since_ns = perf_counter_ns()
        self._commit.begin(commit_set)
        self._step = self._commit.step

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

    def _look(self) -> None:
        """Note the step that was left. Steps that one call takes together count as the first of them."""
        if self._commit.step is not self._step:
            now_ns = perf_counter_ns()
            if self._step is not None:
                self.steps[self._step].left(now_ns - self._since_ns)
            self.moves += 1
            self._step, self._since_ns = self._commit.step, now_ns
