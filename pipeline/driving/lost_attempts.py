"""Decides how a run continues after attempts were lost with their executor, or Spark gave a job up. Pure.

*Guarantees*: a run lasts as long as its jobs make progress, by the committed offsets: only `MAX_FAILURES` jobs in a row
without progress end it. Under `at_least_once` an attempt that only seems dead isn't fenced. So attempts count as
possibly running until a session of the next generation is over. By then, attempts under an older generation have
noticed that it is over.
*Assumes*: attempts check their generation at least once per session, and write nothing when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milestones.common.errors import MilestonesError
from milestones.common.records import TopicPartition
from milestones.pipeline.hosting.ranges import TaskRange

MAX_FAILURES = 4

PAUSE_MS = 1_000
"""The pause before the next job, after a job that lost attempts. It doubles with each job in a row without progress."""


@dataclass
class _Doubt:
    """`generation`: the number of the generation under which attempts were lost. `until_ms`: the end of the doubt, or
    None until the next generation begins.
    """

    generation: int
    until_ms: int | None = None


class LostAttempts:
    """*Owns*: the number of jobs in a row without progress, the offsets at the beginning of the last one, and the
    doubt.
    """

    def __init__(self, *, fenced: bool, session_ms: int) -> None:
        self._fenced, self._session_ms = fenced, session_ms
        self._failures = 0
        self._begins: dict[TopicPartition, int] = {}
        self._error: MilestonesError | None = None
        self._doubt: _Doubt | None = None

    def note(self, ranges: Iterable[TaskRange], error: MilestonesError | None, generation: int) -> None:
        """Note that a job over `ranges` lost attempts. `error`: the reason why Spark gave the job up, or None if it
        didn't. `generation`: the number of generations that the run has seen.
        """
        self._begins = {at: range_.begins.get(at, -1) for range_ in ranges for at in range_.ends}
        self._error = error
        if not self._fenced:
            self._doubt = _Doubt(generation)

    def none(self) -> None:
        """A job lost no attempt."""
        self._failures = 0

    @property
    def pause_ms(self) -> int:
        """Return the time to wait before the next job."""
        return int(PAUSE_MS * 2**self._failures)

    # -- whether the last job made progress

    @property
    def unjudged(self) -> frozenset[TopicPartition]:
        """Return the partitions whose committed offsets would show the progress of the last lost job; none if it is
        known.
        """
        return frozenset(self._begins)

    def judge(self, committed: Mapping[TopicPartition, int]) -> None:
        """Compare the committed offsets with those before the last job. Raises the error that ended the job if neither
        this job nor those before it made progress.
        """
        brought = any(committed.get(at, -1) > begin for at, begin in self._begins.items())
        self._begins = {}
        self._failures = 0 if brought else self._failures + 1
        if self._error is not None and self._failures >= MAX_FAILURES:
            raise self._error

    # -- whether all attempts have ended

    def in_doubt(self, now_ms: int, generation: int) -> bool:
        """True if an attempt may still be running. `generation`: the number of generations that the run has seen."""
        doubt = self._doubt
        if doubt is not None and doubt.until_ms is None and generation > doubt.generation:
            doubt.until_ms = now_ms + self._session_ms
        if doubt is not None and doubt.until_ms is not None and now_ms >= doubt.until_ms:
            self._doubt = None
        return self._doubt is not None
