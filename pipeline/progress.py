"""The progress of a run on Spark, for users.

*Guarantees*: immutable values, swapped whole: any thread reads them at any time.
*Assumes*: one thread notes what happened.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome

KEPT = 100
"""Rounds that are remembered."""

COUNTS = ("records", "restored", "commits", "dropped", "punctuations")
"""What tasks, rounds and the run count under the same names."""


class RunState(enum.Enum):
    """Where a run is in its life. COMPLETE: a batch has come to its end. STOPPED: the run was asked to end."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Round:
    """One Spark job: the tasks of some sub-topologies over a range each.

    `records`: committed by it; `dropped`: records that it skipped, and outputs that it went on without;
    `punctuations` that it called; `restored`: changelog records read for it; `planned`: offsets that its ranges had;
    `stale`: tasks that the group's next generation took before they were done; `error`: why Spark gave it up.
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

    `tasks`: those that the group gave to this run; `elsewhere`: those that other members of the group have. `lag`:
    offsets that were left to read when it was looked at last. `generations` of the group that it has seen. Counts are
    of the Spark tasks that came to an end: what a lost one had committed isn't in them.
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
    """The round when its job has ended."""
    counts: dict[str, Any] = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in COUNTS}
    stale = sum(outcome.end is not RangeEnd.DONE for outcome in outcomes)
    return replace(begun, seconds=seconds, stale=stale, error=error, **counts)
