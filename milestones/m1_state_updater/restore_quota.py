"""`RestoreQuota` decides whose records are read next: active tasks that restore come first, and standbys get a share.

*Guarantees*: while active tasks have much to restore, standbys with input get one record for every `weight` records of
active tasks; the difference is one quantum at most. Otherwise all tasks read.
*Assumes*: `took` is called with all records that were taken.
"""

from __future__ import annotations

QUANTUM = 50_000
"""The number of records that standbys may take in one turn. It is large because the end of a turn throws away the
records that were prefetched for standbys, 20,000 and more for each one. At the usual 300,000 records/s standbys wait
two thirds of a second for their turn."""

MOST_TURNS = 5
"""The most quanta that standbys can be owed when their turn comes. They may have to wait, because prefetched records of
active tasks come first."""


class RestoreQuota:
    """*Owns*: the number of records that standbys are owed."""

    def __init__(self, weight: int, quantum: int = QUANTUM) -> None:
        self._weight, self._quantum = weight, quantum
        self._owed = 0.0
        self._turn = False

    def took(self, *, active: int = 0, standby: int = 0) -> None:
        """Note that this number of records was taken."""
        most = self._quantum * (MOST_TURNS if self._turn else 1)
        self._owed = min(most, self._owed + active / self._weight) - standby

    def standbys_read(self, *, contended: bool) -> bool:
        """Return True if standbys read now. `contended`: True while active tasks have much to restore."""
        if not contended:
            self._owed, self._turn = 0.0, False
            return True
        self._turn = self._owed > 0 if self._turn else self._owed >= self._quantum
        return self._turn
