"""Small plans at random.

*Guarantees*: numbers of `rng` decide a plan for good.
*Assumes*: nothing.
"""

from __future__ import annotations

import random
from dataclasses import replace

from compat_tests.random_topologies.plans import ENDS, KEY_STEPS, STATEFUL, STEPS, VALUE_STEPS, Path, Plan
from compat_tests.random_topologies.shapes import (
    HOPPING,
    HOWS,
    JOINED,
    KINDS,
    LATE_MS,
    SESSION,
    SHAPED,
    SKEW_MS,
    SLIDING,
    STREAMS,
    TABLES,
    TO_TABLE,
    WINDOWED,
    Join,
    Windows,
)

SIZES_MS = (5, 10, 20, 50)
PLAIN_ENDS = (*(end for end in ENDS if end not in SHAPED), *STATEFUL, "count", "join-texts")
DRAWN = (PLAIN_ENDS,) * 2 + (WINDOWED, JOINED)
"""The kinds of ends, one as likely as another. (A choice of a list shrinks to its first, and is drawn evenly.)"""


def random_plan(rng: random.Random) -> Plan:
    """A small plan, decided by `rng` for good."""
    sources = rng.choice([1, 1, 2])
    partitions = [rng.randint(1, 5) for _ in range(sources)]
    paths = [_path(rng, sources) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    if any(path.join is not None for path in paths):
        sources = 2
    if any(path.join is not None or _mixes(path) for path in paths):
        partitions = partitions[:1] * sources
    paths = [replace(path, again=partitions[0]) if path.again and path.join is not None else path for path in paths]
    return Plan(tuple(paths), tuple(partitions))


def punctual(plan: Plan) -> Plan:
    """The plan with so much grace that no record of a random case on a broker is late, whatever partitions and topics
    do to each other: what windows come to is known then."""
    return replace(plan, paths=tuple(_punctual(path) for path in plan.paths))


def _punctual(path: Path) -> Path:
    if path.windows is None:
        return path
    mixed = len(path.sources) > 1 or path.again or path.rekeyed
    return replace(path, windows=replace(path.windows, grace=SKEW_MS if mixed else LATE_MS))


def _mixes(path: Path) -> bool:
    """Whether state by key comes straight from several topics."""
    return len(path.sources) > 1 and path.stateful and not (path.again or path.rekeyed)


def _path(rng: random.Random, sources: int) -> Path:
    steps = [rng.choice(STEPS) for _ in range(rng.choice([0, 1, 1, 2, 3, 4]))]
    again = rng.choice([0, 0, rng.randint(1, 5)])
    kind = rng.choice(DRAWN)
    path = Path(
        steps=tuple(steps),
        end=rng.choice(PLAIN_ENDS),
        sources=tuple(rng.sample(range(sources), rng.randint(1, sources))),
        again=again,
        more=tuple(rng.choice(VALUE_STEPS) for _ in range(rng.choice([0, 0, 1, 2]))) if again else (),
        in_memory=rng.random() < 0.4,
        partitions=rng.randint(1, 5),
    )
    if kind is PLAIN_ENDS:
        return path
    path = replace(path, steps=path.steps[: rng.randrange(3)])  # many of them leave little to windows and joins
    return replace(path, end=rng.choice(WINDOWED), windows=_windows(rng)) if kind is WINDOWED else _join(rng, path)


def _windows(rng: random.Random) -> Windows:
    kind, size = rng.choice(KINDS), rng.choice(SIZES_MS)
    # The definition of sliding windows knows no record that is late for some of them only.
    grace = LATE_MS if kind == SLIDING else rng.choice([0, 0, 5, 30])
    size = min(size, 10) if kind == SESSION else size
    advance = rng.choice([size // 2, size // 5, size]) if kind == HOPPING else 0
    return Windows(kind, size, grace, advance, on_close=rng.choice([False, False, True]))


def _join(rng: random.Random, path: Path) -> Path:
    """The path with a join of its first source with the other one at its end."""
    end, source = rng.choice(JOINED), path.sources[0]
    how = rng.choice(HOWS[:2] if end == TO_TABLE else HOWS)
    join = Join(1 - source, how)
    if end == STREAMS:
        join = replace(join, before=rng.choice([0, 5, 50]), after=rng.choice([0, 5, 50]), grace=SKEW_MS)
    rekeyed = any(step in KEY_STEPS for step in path.steps)
    steps = path.steps
    if rekeyed and (end == TABLES or not path.again):
        steps = tuple(step for step in steps if step not in KEY_STEPS)
    return replace(path, end=end, join=join, sources=(source,), steps=steps)
