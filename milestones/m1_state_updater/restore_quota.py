"""Whose records are read next: restoring active tasks first, standbys in proportion.

*Guarantees*: while active tasks have much to restore, standbys that have something to read get one record for `weight`
of theirs, up to a quantum; else all tasks read.
*Assumes*: told of all records that were taken.
"""

from __future__ import annotations

QUANTUM = 50_000
"""Records that standbys may take in one turn. A turn's end throws away what was prefetched for them, 20,000 and more of
each, so it isn't short; at the usual 300,000 records/s standbys wait two thirds of a second for theirs."""

MOST_TURNS = 5
"""The most quanta that standbys may be owed when their turn comes. Prefetched records of active tasks come first."""


class RestoreQuota:
    """*Owns*: how many records standbys are owed."""

    def __init__(self, weight: int, quantum: int = QUANTUM) -> None:
        self._weight, self._quantum = weight, quantum
        self._owed = 0.0
        self._turn = False

    def took(self, *, active: int = 0, standby: int = 0) -> None:
        """Note that this number of records was taken."""
        most = self._quantum * (MOST_TURNS if self._turn else 1)
        self._owed = min(most, self._owed + active / self._weight) - standby

    def standbys_read(self, *, contended: bool) -> bool:
        """Whether standbys read now. `contended`: active tasks have much to restore."""
        if not contended:
            self._owed, self._turn = 0.0, False
            return True
        self._turn = self._owed > 0 if self._turn else self._owed >= self._quantum
        return self._turn
