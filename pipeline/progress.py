"""The progress of a run on Spark, for users.

*Guarantees*: values are immutable and replaced as a whole, so that any thread can read them at any time.
*Assumes*: one thread records the events.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome

KEPT = 100
"""The number of rounds that are remembered."""

COUNTS = ("records", "restored", "commits", "dropped", "punctuations")
"""The counters that tasks, rounds and the run have under the same names."""


class RunState(enum.Enum):
    """The state of a run. COMPLETE: a batch has come to its end. STOPPED: the run was asked to end."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Round:
    """One Spark job, in which each task of some sub-topologies processes a range.

    `records`: the number of committed records. `dropped`: the number of skipped records and of outputs that were left
    out. `punctuations`: the number of punctuation calls. `restored`: the number of changelog records that were read.
    `planned`: the number of offsets in the ranges. `stale`: the number of tasks that weren't done when the group's next
    generation began. `error`: the reason if Spark gave the job up.
    """

    number: int
    subtopologies: tuple[int, ...]
    tasks: int
    planned: int
    seconds: float
    records: int = 0
    restored: int = 0
    commits: int = 0
    dropped: int = 0
    punctuations: int = 0
    stale: int = 0
    error: str | None = None

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Progress:
    """The whole run so far. `rounds`: the last `KEPT` of them, oldest first.

    `tasks`: the number of tasks that the group gave to this run. `elsewhere`: the number of tasks that other members
    have. `lag`: the number of offsets that were unread at the last look. `generations`: the number of generations that
    the run has seen. Counts include only Spark tasks that have ended: records that a lost Spark task had committed
    aren't counted.
    """

    state: RunState = RunState.STARTING
    mode: str = ""
    rounds: tuple[Round, ...] = ()
    tasks: int = 0
    elsewhere: int = 0
    generations: int = 0
    jobs: int = 0
    failed_jobs: int = 0
    records: int = 0
    restored: int = 0
    commits: int = 0
    dropped: int = 0
    punctuations: int = 0
    lag: int = 0

    def after(self, done: Round) -> Progress:
        counts: dict[str, Any] = {name: getattr(self, name) + getattr(done, name) for name in COUNTS}
        return replace(
            self,
            rounds=(*self.rounds, done)[-KEPT:],
            jobs=self.jobs + 1,
            failed_jobs=self.failed_jobs + (done.error is not None),
            lag=max(0, self.lag - done.records),
            **counts,
        )


def round_of(begun: Round, outcomes: Sequence[RangeOutcome], seconds: float, error: str | None) -> Round:
    """Return the `Round` of a job that has ended."""
    counts: dict[str, Any] = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in COUNTS}
    stale = sum(outcome.end is not RangeEnd.DONE for outcome in outcomes)
    return replace(begun, seconds=seconds, stale=stale, error=error, **counts)
