"""The inputs of windows that close, and what must be emitted of them, once.

*Guarantees*: records are of today: a broker forgets changelog records of windows by its own clock, a day after their
retention. None is late, whatever a process remembers of its predecessor.
*Assumes*: the topology `windows`, or one with the same windows.
"""

from __future__ import annotations

import time
from collections import Counter

from compat_tests.harness.feed import Feed, Sent
from compat_tests.harness.instance import Settings
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.windows import Emitted, once

KEYS, BATCH = 30, 40
WINDOW_MS, GRACE_MS = 50, 10
"""As the topology has them."""
POISON = b"poison"
CONTINUE: Settings = {"processing_exception_handler": "log_and_continue"}


class Closings:
    """The input `in` of a world, and what must come of it."""

    def __init__(self, world: World, partitions: int = 2) -> None:
        self._world, self._next = world, int(time.time() * 1_000)
        self.feed = world.input("in", partitions, out=2)

    def send(self, count: int = BATCH, *, poison: bool = False) -> None:
        """Records a ms apart, on and on; `poison`: some of them fail, after they have closed windows."""
        rng, first = self._world.rng, self._next
        self._next += count
        self.feed.send([
            Sent(
                key=b"k%d" % rng.randrange(KEYS),
                value=POISON if poison and rng.random() < 0.1 else b"v",
                timestamp=first + number,
            )
            for number in range(count)
        ])  # fmt: skip

    def emitted_once(self) -> None:
        """Each window that has closed was emitted, and once."""
        with self._world.outputs() as outputs:
            outputs.to_the_end()
            found = Counter((row.key or b"", row.value or b"") for row in outputs.rows)
        hold(once(wanted(self.feed), found, repeats=not self._world.exactly_once))


def wanted(feed: Feed) -> Emitted:
    """The windows that have closed, by the time of each partition. What failed has closed none."""
    newest: dict[int, int] = {}
    counts: dict[int, Counter[tuple[bytes, int]]] = {}
    for row in feed.rows:
        if row.value == POISON:
            continue
        counts.setdefault(row.partition, Counter())[row.key or b"", row.timestamp // WINDOW_MS * WINDOW_MS] += 1
        newest[row.partition] = max(newest.get(row.partition, 0), row.timestamp)
    return Counter(
        (b"%s@%d" % (key, start), b"%d" % of_window)
        for partition, windows in counts.items()
        for (key, start), of_window in windows.items()
        if start + WINDOW_MS <= newest[partition] - GRACE_MS
    )
