"""The golden traces of campaigns: `tests/milestones/golden_trace.py` says what they are for.

    PYTHONHASHSEED=0 python -m tests.milestones.chaos.traces FIRST END [STAGE]

The hash seed is fixed because a few campaigns in ten thousand depend on the order of sets of texts.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.milestones.chaos.campaign import play
from tests.milestones.golden_trace import Line, Trace, digest

AT_ONCE = 100
"""Seeds of one digest."""


def trace_of(seed: int, stage: str) -> list[Line]:
    """The trace of a seed's campaign, with the error that ended it, if one did."""
    with Trace().watching() as trace:
        try:
            play(seed, stage)
        except Exception as error:
            trace.lines.append(Line("", "the end", (), type(error).__name__, ""))
    return trace.lines


def main(first: int, end: int, stage: str = "m4") -> None:
    """Print the digests, and how often which stage met which event, and what was done."""
    logging.disable(logging.CRITICAL)
    met = Counter[Line]()
    for begin in range(first, end, AT_ONCE):
        seeds = range(begin, min(begin + AT_ONCE, end))
        lines = [line for seed in seeds for line in trace_of(seed, stage)]
        met.update(lines)
        print(f"{stage}, seeds {begin} to {seeds[-1]}: {digest(lines)}", flush=True)
    for line, count in sorted(met.items()):
        print(f"{count:8} {line}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
