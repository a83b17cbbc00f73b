"""`Sequences`: the numbers by which a window store tells several values of one key and time apart.

*Guarantees*: no value takes another one's place: the numbers of a task's store rise, after a roll-back from where they
were at the commit, in another process from the highest one that a commit of the task has. They begin at 1, as Kafka
Streams', in each process for a global store.
*Assumes*: a store has fewer than 2^31 values of one key and time.
"""

from __future__ import annotations

from typing import Any, Final

from milestones.common.state.cells import Cells

LAST_SEQUENCE: Final = 0x7FFFFFFF

HIGHEST: Final = "milestones.sequence:"
"""The kept cell with the highest number of all stores of a task: one for all, as Kafka takes little metadata."""


class Sequences:
    """Those of one store, for one program: the task makes its stores anew once it knows what is committed."""

    __slots__ = ("_begins", "_highest", "_not_put", "_number")

    def __init__(self, store: str, cells: Cells) -> None:
        self._highest = cells.kept(HIGHEST)
        self._number = cells.cell(f"store {store} sequence", 0)
        self._not_put = cells.cell(f"store {store} not put", 0)
        self._begins = max(cells.others(HIGHEST), 0)
        """What other processes have given out."""

    def following(self, value: Any) -> int:
        """The number of a put. One without a value counts, and puts nothing."""
        number, not_put = max(int(self._number.value), self._begins) + 1, self._not_put
        self._number.set(number)
        if number > self._highest.value:
            self._highest.set(number)
        if value is None:
            not_put.set(not_put.value + 1)
        elif not_put.value:
            not_put.set(0)
        return number & LAST_SEQUENCE

    def last(self) -> int:
        """The number of the value that this process has put last; no value has 0."""
        number = int(self._number.value - self._not_put.value)
        return number & LAST_SEQUENCE if number > self._begins else 0
