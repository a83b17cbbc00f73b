"""The inputs of a random case on a broker: batches of records, decided by the case.

Where a path of the plan looks at time, the inputs come in *rounds*: their time leaps from one to the next, further than
any window and its grace. They are of today, as brokers delete changelog records of windows by their own clock, a day
after their retention; of the past, as brokers refuse records of the future; and no two have the same time, as a join
that was restarted can't tell such records of a key apart.

*Guarantees*: few keys, some records without a key or a value, some late, by less than `LATE_MS`.
*Assumes*: a case has no more than eight rounds.
"""

from __future__ import annotations

import random
import time
from collections import Counter

from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.oracles.rows import Row
from compat_tests.random_topologies.cases import Case
from compat_tests.random_topologies.shapes import LATE_MS, LEAP_MS

LETTERS = "ab"
HOUR_MS = 3_600_000
HOURS_AGO = 6
LAST = "cdefghijklmnopqrstuvwxyz"
"""Values of the records that end a case, which are others than all before: so many that, as keys, they fill each
partition of a topic of up to five."""


class Inputs:
    """`round_of`: in which round a record was sent."""

    def __init__(self, case: Case) -> None:
        self._case, self._rng, self._count = case, random.Random(f"inputs of {case.seed}"), Counter[str]()
        self._taken: set[int] = set()
        self._round = 0
        # By whole hours: windows begin at the same places whenever the case is run.
        self._first = (int(time.time()) // 3_600 - HOURS_AGO) * HOUR_MS if case.plan.shaped else FIRST_TIMESTAMP

    def batch(self) -> dict[str, list[Sent]]:
        """Records for each source."""
        plan, rng = self._case.plan, self._rng
        found: dict[str, list[Sent]] = {f"in{source}": [] for source in plan.used}
        for _ in range(self._case.batch):
            source = rng.choice(plan.used)
            found[f"in{source}"].append(self._record(f"in{source}", plan.sources[source]))
        return found

    def leap(self) -> None:
        """The next round begins."""
        self._round += 1
        self._count.clear()

    def last(self) -> dict[str, list[Sent]]:
        """Records by which the windows of all partitions close, whatever steps they pass; the last ones of a case."""
        plan = self._case.plan
        most = max(*plan.sources, *(path.again for path in plan.paths))
        keys = [b"k%d" % number for number in range(4 * most)]
        records = [(key, letter.encode()) for letter in LAST for key in keys]
        return {
            f"in{source}": [Sent(key, value, self._time("", late=0)) for key, value in records]
            for source in plan.used
        }

    def round_of(self, row: Row) -> int:
        return (row.timestamp - self._first) // LEAP_MS

    def _record(self, name: str, partitions: int) -> Sent:
        rng = self._rng
        late = rng.randrange(50) if rng.random() < 0.1 else 0
        key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(self._case.keys)
        value = None if rng.random() < 0.05 else "".join(rng.choices(LETTERS, k=rng.randrange(5))).encode()
        time = self._time("" if self._case.plan.shaped else name, late)
        return Sent(key, value, time, rng.randrange(partitions) if key is None else None)

    def _time(self, name: str, late: int) -> int:
        """The next time of those that `name` counts."""
        self._count[name] += 1
        if not self._case.plan.shaped:
            return self._first + 1_000 + self._count[name] - late
        found = self._first + self._round * LEAP_MS + LATE_MS + 2 * self._count[name] - late
        while found in self._taken:
            found -= 1
        self._taken.add(found)
        return found
