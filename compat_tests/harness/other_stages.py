"""Which other stages an application is moved from, or has beside it.

*Guarantees*: any legal set of flags has them all; some may be the same.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.harness.emitting import COLLECTED
from milestones.flags import STAGES, parse_milestones, stage_name

FLAGS = [stage.flag for stage in STAGES if stage.flag is not None]


def the_one_before(stage: str) -> str:
    """The set of flags that lacks the newest of this one's."""
    flags = parse_milestones(stage)
    return stage_name(flags - set([flag for flag in FLAGS if flag in flags][-1:]))


def the_one_before_that(stage: str) -> str:
    """The set of flags that lacks the newest two of this one's."""
    return the_one_before(the_one_before(stage))


def one_that_rolls_back(stage: str) -> str:
    """The stage itself, or the newest one on which a transaction that fails takes its tasks back."""
    return "m4" if COLLECTED in parse_milestones(stage) else stage


def the_baseline(_: str) -> str:
    """Of every stage the same one."""
    return stage_name(frozenset())


EARLIER: tuple[Callable[[str], str], ...] = (the_one_before, the_one_before_that, the_baseline)
"""All of them, the nearest first."""
