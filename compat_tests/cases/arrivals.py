"""Committed outputs as they come, by the input that they come of."""

from __future__ import annotations

from compat_tests.oracles.rows import Origin, origin_of
from milestones.testing import TopicTail


class Arrivals:
    """As a reader of committed outputs sees them, so look often."""

    def __init__(self, tail: TopicTail, seen: int = 0) -> None:
        """`seen`: so many rows of the tail aren't told of."""
        self._tail, self._seen = tail, seen

    def new(self) -> list[Origin]:
        """Of those that have come since the last look."""
        self._tail.poll()
        origins = [origin_of(row) for row in self._tail.rows[self._seen :]]
        self._seen = len(self._tail.rows)
        assert None not in origins
        return [origin for origin in origins if origin is not None]
