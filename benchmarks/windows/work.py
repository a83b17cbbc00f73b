"""Windows, windows kept back until they close, sessions, joins, and the plain count to compare with.

`records_per_s`: records of the input, both topics of a join, by the time from the first output in the log to the last
one; `warm_...`: in the second half of the outputs. The times are the broker's (`LogAppendTime`).

*Guarantees*: a run counts only when the outputs of each key are the ones due, all of them, once each, in order; of the
counts, the changelog too, or its last record of each key where a contender logs no more.
*Assumes*: as `fed.py`. The input's times are the past's, so that no topic's retention counts in them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster import Cluster, Row
from benchmarks.contenders import CHANGELOG, OUTPUT, Contender
from benchmarks.count.work import FIGURES, figures
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fed
from benchmarks.job import COMMIT_INTERVAL_MS, Job
from benchmarks.process import Usage
from benchmarks.rows import Figure
from benchmarks.windows import COUNT, HOPPING, JOINS, OTHER, SESSIONS, STORE, TUMBLING, WINDOW_MS
from benchmarks.windows.data import Input, Output, Outputs, last_of, packed, value_of

_SEQUENCE: Final = {COUNT: 0, TUMBLING: 4, HOPPING: 4, SESSIONS: 0}
"""The bytes of a changelog's key behind those of the output's."""


class Windows(Fed):
    """Windows, sessions and joins, and the plain count beside them."""

    figures: Sequence[Figure] = FIGURES

    def __init__(
        self, cluster: Cluster, directory: Path, kind: str, records: int, keys: int, seed: int,
        commit_interval_ms: int = int(COMMIT_INTERVAL_MS),
    ) -> None:  # fmt: skip
        super().__init__(cluster, directory)
        self.name = f"windows-{kind}"
        self.asked: Mapping[str, str] = {"work": kind, "commit_interval_ms": str(commit_interval_ms)}
        self._kind, self._records, self._keys, self._seed = kind, records, keys, seed
        self._inputs: dict[float, Input] = {}
        self._expected: dict[tuple[float, bool, bool], Outputs] = {}

    @property
    def title(self) -> str:
        return f"{self._records:,} records, {self._keys:,} keys"

    def records(self, size: float) -> int:
        return round(self._records * size)

    def topics(self, size: float, topic: str) -> Mapping[str, int]:
        given = self.given(size)
        everything, others = given.first + given.records, given.others()
        joins = self._kind in JOINS
        return {topic: everything - others, topic + OTHER: others} if joins else {topic: everything}

    def given(self, size: float) -> Input:
        """The input of this size; it ends now, and begins with a window."""
        if size not in self._inputs:
            begins = int(time.time() * 1000) - self.records(size) - self._keys
            start = begins // WINDOW_MS * WINDOW_MS
            self._inputs[size] = Input(self._kind, self.records(size), self._keys, self._seed, start)
        return self._inputs[size]

    def rows(self, size: float, topic: str) -> Iterator[Row]:
        given = self.given(size)
        for is_other, key, number in given:
            yield topic + OTHER * is_other, -1, key, value_of(number), given.start_ms + number, None

    def judge(self, contender: Contender, job: Job, usage: Usage) -> dict[str, float]:
        records = self.records(self.size(contender))
        times_ms = sorted(self._check(contender, OUTPUT, job.output, 0))
        if self._kind in _SEQUENCE and not contender.plain:
            self._check(contender, CHANGELOG, f"{job.application_id}-{STORE}-changelog", _SEQUENCE[self._kind])
        share = records / max(1, len(times_ms))
        return {**figures([(at, share) for at in times_ms], usage), **self._produced(contender, job, records)}

    def _check(self, contender: Contender, what: str, topic: str, tail: int) -> list[int]:
        """When the topic's records were written, ms. `BenchmarkError` unless they are the ones due, but for so many
        bytes at the end of the keys; of a thin topic the last one of each key."""
        given, thin = self.given(self.size(contender)), what in contender.thin
        kept = last_of if thin else iter
        times_ms: list[int] = []

        def found() -> Iterator[Output]:
            for message in self._cluster.read(topic):
                times_ms.append(message.timestamp()[1])
                key, value = message.key() or b"", message.value()
                yield packed(self._kind, key, value) if contender.plain else (key[: len(key) - tail], value)

        by_key = what == CHANGELOG
        due = self._due(self.size(contender), thin, by_key)
        if wrong := due.differences(Outputs(given, kept(found()), by_key=by_key)):
            raise BenchmarkError(f"the {what} is wrong: {'; '.join(wrong)}")
        return times_ms

    def outputs(self, size: float) -> int:
        return len(self._due(size, thin=False, by_key=False))

    def _due(self, size: float, thin: bool, by_key: bool) -> Outputs:
        at = size, thin, by_key
        if at not in self._expected:
            given = self.given(size)
            expected = last_of(given.expected()) if thin else given.expected()
            self._expected[at] = Outputs(given, expected, by_key=by_key)
        return self._expected[at]
