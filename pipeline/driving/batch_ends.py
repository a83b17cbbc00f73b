"""The ends of a batch, while other programs write to its inputs. Pure.

*Guarantees*: a batch ends. Of topics that others write it reads what was there when it first looked. Of those that the
application itself writes it reads what was there when the run's own tasks before them had nothing left to do: live
members of the group, which may feed them for ever, come no further into it.
*Assumes*: a circle of topics comes to an end by itself: what it holds is read until nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from milestones.common.records import TopicPartition
from milestones.pipeline.driving.planning import capped

Offsets = Mapping[TopicPartition, int]


class BatchEnds:
    """*Owns*: the ends that are settled. `circles`: topics that have none."""

    def __init__(self, circles: Collection[str]) -> None:
        self._circles = circles
        self._outer: dict[TopicPartition, int] = {}
        self._inner: dict[TopicPartition, int] = {}

    def ends(self, outer: Offsets, inner: Offsets, *, settled: bool) -> dict[TopicPartition, int]:
        """The batch's ends, from the present ones of what others write and of what the application writes. `settled`:
        nothing is left for the run's own tasks before these."""
        self._outer = {**outer, **self._outer}
        if settled:
            straight = {at: end for at, end in inner.items() if at.topic not in self._circles}
            self._inner = {**straight, **self._inner}
        return capped({**outer, **inner}, {**self._outer, **self._inner})

    def reopen(self) -> None:
        """The run has new tasks: what they write belongs to the batch, too."""
        self._inner.clear()
