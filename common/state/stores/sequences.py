"""`Sequences` numbers the values of a window store of duplicates, which may have several values of one key and time.

*Guarantees*: a new value never replaces another one, because the numbers of a task's store rise. After a roll-back they
continue from the number of the last commit. In another process they continue from the highest number that a commit of
the task has. The first number is 1, as in Kafka Streams. Those of a global store begin at 1 in each process.
*Assumes*: a store has fewer than 2^31 values of one key and time.
"""

from __future__ import annotations

from typing import Any, Final

from milestones.common.state.cells import Cells

LAST_SEQUENCE: Final = 0x7FFFFFFF

HIGHEST: Final = "milestones.sequence:"
"""The name of the kept cell with the highest number of all stores of a task. All stores share it, because Kafka takes
little metadata with an offset."""


class Sequences:
    """The numbers of one store. A new object is made with each compilation of the task's program, once the committed
    numbers are known."""

    __slots__ = ("_begins", "_not_put", "_number")

    def __init__(self, store: str, cells: Cells) -> None:
        name = f"store {store} sequence"
        self._number = cells.cell(name, 0)
        cells.keep_highest(HIGHEST, self._number)
        self._not_put = cells.cell(f"store {store} not put", 0)
        self._begins = max(cells.others(HIGHEST), 0)
        """The highest number that another process has committed."""
        if self._number.value < self._begins:  # each roll-back ends with a new object, which finds this out anew
            cells.begin(name, self._begins)

    def following(self, value: Any) -> int:
        """Return the number of a put. A put of None gets a number, too, although nothing is put."""
        cell, not_put = self._number, self._not_put
        number: int = cell.value + 1
        cell.set(number)
        if value is None:
            not_put.set(not_put.value + 1)
        elif not_put.value:
            not_put.set(0)
        return number & LAST_SEQUENCE

    def last(self) -> int:
        """Return the number of the value that this process has put last. 0 if it has put none."""
        number = int(self._number.value - self._not_put.value)
        return number & LAST_SEQUENCE if number > self._begins else 0
