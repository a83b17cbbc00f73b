"""Windows that are emitted when they close, by themselves or by suppress: each once, whatever ends a process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from compat_tests.cases.steps import commit_steps_of
from compat_tests.harness.feed import Feed, Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.windows import Emitted, once
from milestones.testing import Not

KEYS, BATCH = 30, 40
WINDOW_MS, GRACE_MS = 50, 10
"""As the topology has them."""


def in_time(world: World, clock: Iterator[int]) -> list[Sent]:
    """Records a ms apart, on and on: none is late, whatever a process remembers of its predecessor."""
    return [
        Sent(key=b"k%d" % world.rng.randrange(KEYS), value=b"v", timestamp=next(clock)) for _ in range(BATCH)
    ]


def wanted(feed: Feed) -> Emitted:
    """The windows that have closed, by the time of each partition."""
    newest: dict[int, int] = {}
    counts: dict[int, Counter[tuple[bytes, int]]] = {}
    for row in feed.rows:
        counts.setdefault(row.partition, Counter())[row.key or b"", row.timestamp // WINDOW_MS * WINDOW_MS] += 1
        newest[row.partition] = max(newest.get(row.partition, 0), row.timestamp)
    return Counter(
        (b"%s@%d" % (key, start), b"%d" % of_window)
        for partition, windows in counts.items()
        for (key, start), of_window in windows.items()
        if start + WINDOW_MS <= newest[partition] - GRACE_MS
    )


@pytest.mark.parametrize("topology", ["windows", "suppressed"])
@pytest.mark.parametrize("step", commit_steps_of("commit.after-flush", "commit.after-commit"))
def test_each_window_is_emitted_once_over_kills_at_any_step_of_a_commit(
    world: World, step: str, topology: str
) -> None:
    # Of today: a broker forgets changelog records of windows by its own clock, a day after their retention.
    feed, clock = world.input("in", 2, out=2), count(int(time.time() * 1_000))
    app = world.instance(topology, num_stream_threads=1)

    def fed_until_it_dies() -> object:
        feed.send(in_time(world, clock))
        return not app.running or Not("it runs")

    for number in range(3):
        app.start(fault=f"{step}:kill:{1 + 3 * number}")
        world.wait(fed_until_it_dies, "the fault strikes")
        app.dies(-9)
    app.start()
    feed.send(in_time(world, clock))
    world.processed()
    with world.outputs() as outputs:
        outputs.to_the_end()
        found = Counter((row.key or b"", row.value or b"") for row in outputs.rows)
    hold(once(wanted(feed), found, repeats=not world.exactly_once))
    end_and_judge(world, crashed=True)
