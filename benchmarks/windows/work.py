"""Tumbling windows, sessions, a stream joined with a table and with a stream, and the plain count beside them.

`records_per_s`: records of the input, both topics of a join, by the time from the first output in the log to the last
one; `warm_...`: in the second half of the outputs. The times are the broker's (`LogAppendTime`).

*Guarantees*: a run counts only when the outputs of each key are the ones due, all of them, once each, in order; of the
counts, the changelog too.
*Assumes*: as `fed.py`. The input's times are the past's, so that no topic's retention counts in them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster import Cluster, Row
from benchmarks.contenders import Contender
from benchmarks.count.work import FIGURES, figures
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fed
from benchmarks.job import Job
from benchmarks.process import Usage
from benchmarks.rows import Figure
from benchmarks.windows import COUNT, OTHER, SESSIONS, STORE, STREAM_JOIN, TABLE_JOIN, TUMBLING, WINDOW_MS
from benchmarks.windows.data import Input, Output, Outputs, value_of

_SEQUENCE: Final = {COUNT: 0, TUMBLING: 4, SESSIONS: 0}
"""The bytes of a changelog's key behind those of the output's."""


class Windows(Fed):
    """Windows, sessions and joins, and the plain count beside them."""

    figures: Sequence[Figure] = FIGURES

    def __init__(self, cluster: Cluster, directory: Path, kind: str, records: int, keys: int, seed: int) -> None:
        super().__init__(cluster, directory)
        self.name = f"windows-{kind}"
        self.asked: Mapping[str, str] = {"work": kind}
        self._kind, self._records, self._keys, self._seed = kind, records, keys, seed
        self._inputs: dict[int, Input] = {}
        self._expected: dict[int, Outputs] = {}

    @property
    def title(self) -> str:
        return f"{self._records:,} records, {self._keys:,} keys"

    def records(self, size: int) -> int:
        return self._records * size

    def topics(self, size: int, topic: str) -> Mapping[str, int]:
        given = self.given(size)
        everything, others = given.first + given.records, given.others()
        joins = self._kind in {TABLE_JOIN, STREAM_JOIN}
        return {topic: everything - others, topic + OTHER: others} if joins else {topic: everything}

    def input(self, contender: Contender, run: str) -> str:
        return f"{self._kind}-{super().input(contender, run)}"

    def given(self, size: int) -> Input:
        """The input of this size; it ends now, and begins with a window."""
        if size not in self._inputs:
            begins = int(time.time() * 1000) - self.records(size) - self._keys
            start = begins // WINDOW_MS * WINDOW_MS
            self._inputs[size] = Input(self._kind, self.records(size), self._keys, self._seed, start)
        return self._inputs[size]

    def rows(self, size: int, topic: str) -> Iterator[Row]:
        given = self.given(size)
        for is_other, key, number in given:
            yield topic + OTHER * is_other, -1, key, value_of(number), given.start_ms + number, None

    def judge(self, job: Job, size: int, usage: Usage) -> dict[str, float]:
        if size not in self._expected:
            self._expected[size] = Outputs(self.given(size), self.given(size).expected())
        times_ms = sorted(self._check(size, "output", job.output, 0))
        if self._kind in _SEQUENCE:
            self._check(size, "changelog", f"{job.application_id}-{STORE}-changelog", _SEQUENCE[self._kind])
        return figures(times_ms, usage, self.records(size))

    def _check(self, size: int, what: str, topic: str, tail: int) -> list[int]:
        """When the topic's records were written, ms. `BenchmarkError` unless they are the ones due, but for so many
        bytes at the end of the keys."""
        times_ms: list[int] = []

        def found() -> Iterator[Output]:
            for message in self._cluster.read(topic):
                times_ms.append(message.timestamp()[1])
                key = message.key() or b""
                yield key[: len(key) - tail], message.value()

        if wrong := self._expected[size].differences(Outputs(self.given(size), found())):
            raise BenchmarkError(f"the {what} is wrong: {'; '.join(wrong)}")
        return times_ms
