"""Decides where a batch ends, while other programs write to its inputs. Pure.

*Guarantees*: a batch ends. From topics that other programs write, the batch reads the records that were there at its
first look. From topics that the application itself writes, it reads the records that were there when the run's upstream
tasks had finished. Records that live members of the group write to these topics later don't belong to the batch.
*Assumes*: if topics form a circle, the application stops writing to them at some time. They are read until no record is
left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from milestones.common.records import TopicPartition
from milestones.pipeline.driving.planning import capped

Offsets = Mapping[TopicPartition, int]


class BatchEnds:
    """*Owns*: the ends that are final. `circles`: topics that have none."""

    def __init__(self, circles: Collection[str]) -> None:
        self._circles = circles
        self._outer: dict[TopicPartition, int] = {}
        self._inner: dict[TopicPartition, int] = {}

    def ends(self, outer: Offsets, inner: Offsets, *, settled: bool) -> dict[TopicPartition, int]:
        """Return the batch's ends, from the present ends of the topics of other programs and of the application.
        `settled`: True if the run's upstream tasks have finished.
        """
        self._outer = {**outer, **self._outer}
        if settled:
            straight = {at: end for at, end in inner.items() if at.topic not in self._circles}
            self._inner = {**straight, **self._inner}
        return capped({**outer, **inner}, {**self._outer, **self._inner})

    def reopen(self) -> None:
        """Make ends not final, because the run has new tasks whose outputs belong to the batch, too."""
        self._inner.clear()
