"""Cells hold what operators and stores remember between records. A cell has one immutable value.

    set ---> value ---merge---> merged ---a commit's progress---> what a roll-back returns to
               | the record failed
               +---> merged

*Guarantees*: if a record fails, its changes are undone. A commit contains the values of its boundary. A roll-back
returns to the values of the last commit. A cell outlives the compiled program (the operators) that made it: the program
that is compiled after a roll-back finds the cell by its name.
A *kept* cell is written into the metadata of the committed offsets, and another process reads it from there. A *time*
is a kept cell with the highest time that an operator or a store has seen. A time continues after a restart, after a
move of the task and after a stay on Spark. So a window that has closed stays closed. If there are more times than the
metadata has room for, several share an entry, which has the lowest of them.
*Assumes*: values are immutable. One thread sets and merges; `values` is called under the boundary's lock.

*Why this way*: metadata of committed offsets is the only place that changes in the same step as the offsets
(docs/decisions/0009-committed-times.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milestones.common.state.layers import Staging
from milestones.common.state.times import gathered, is_time
from milestones.common.windowed import FOREVER

UNKNOWN: Final = -1
"""The value of a kept cell that was never committed."""


NOTHING: Final = (UNKNOWN, FOREVER)
"""Values of a kept cell that the metadata leaves out. A time is `FOREVER` if nothing waits for it."""


class Cell:
    """One value. Reading `value` is a plain attribute access, so it is fast."""

    __slots__ = ("_merged", "_touched", "value")

    value: Any

    def __init__(self, value: Any, touched: list[Staging]) -> None:
        self.value = self._merged = value
        self._touched = touched

    @property
    def merged(self) -> Any:
        """The value after the last finished record."""
        return self._merged

    def set(self, value: Any) -> None:
        """Change the value. If the current record fails, the change is undone."""
        if self.value is self._merged:
            self._touched.append(self)
        self.value = value

    def merge(self) -> None:
        self._merged = self.value

    def drop_scope(self) -> None:
        self.value = self._merged

    def back(self, value: Any) -> None:
        """Return to the value of a commit."""
        self.value = self._merged = value


class HighestCell(Cell):
    """The highest number of several cells, and at least the number that was committed. It is computed when it is read,
    so that a record needn't set it. Numbers are positive."""

    __slots__ = ("_cells",)

    def __init__(self, committed: int) -> None:
        super().__init__(committed, [])
        self._cells: list[Cell] = []

    def add(self, cell: Cell) -> None:
        if not any(known is cell for known in self._cells):
            self._cells.append(cell)

    @property
    def merged(self) -> Any:
        highest = max(cell.merged for cell in self._cells)
        return highest if highest > 0 and highest > self._merged else self._merged


class Cells:
    """*Owns*: the cells of one task, by name. `touched`: the list of buffers that the current record has written to, as
    in `RecordScope`."""

    def __init__(self, touched: list[Staging]) -> None:
        self._touched = touched
        self._cells: dict[str, Cell] = {}
        self._initial: dict[str, Any] = {}
        self._kept: set[str] = set()
        self._others: dict[str, int] = {}
        self._most_times: int | None = None
        self._exact = False
        self._committed: Mapping[str, Any] = {}

    def cell(self, name: str, initial: Any) -> Cell:
        """Return the cell of this name. The first call for a name makes the cell, with the value `initial`."""
        if name not in self._cells:
            self._initial[name] = initial
            self._cells[name] = Cell(initial, self._touched)
        return self._cells[name]

    def begin(self, name: str, value: Any) -> None:
        """Let the cell of this name begin with `value`. A roll-back before the first commit returns to `value`, too."""
        self.cell(name, value).back(value)
        self._initial[name] = value

    def kept(self, name: str) -> Cell:
        """Return the kept cell of this name, a number of 64 bits. A new cell begins with the committed number, or with
        `UNKNOWN` if there is none."""
        self._kept.add(name)
        return self.cell(name, self.others(name))

    def keep_highest(self, name: str, cell: Cell) -> None:
        """Keep the highest number of all cells that are given with this `name`."""
        highest = self._cells.get(name)
        if not isinstance(highest, HighestCell):
            self._initial[name] = self.others(name)
            self._kept.add(name)
            self._cells[name] = highest = HighestCell(self.others(name))
        highest.add(cell)

    def time(self, name: str, least: int = UNKNOWN) -> Cell:
        """Return the kept cell of a time. `name` is made by `times.time_name`.

        The cell begins with the committed time, or with `least` if `least` is later. A caller gives `least` when it
        knows from other data that this time has been reached."""
        cell = self.kept(name)
        if cell.merged < least:
            self.begin(name, least)
        return cell

    def others(self, name: str) -> int:
        """Return the number that another process has committed last for a kept cell, `UNKNOWN` if there is none."""
        return self._others.get(name, UNKNOWN)

    def kept_number(self, name: str) -> int | None:
        """Return the number of a kept cell after the last finished record, None if there is no such cell."""
        return self._cells[name].merged if name in self._kept else None

    def take_commit(self, committed: Mapping[str, int], *, exact: bool) -> None:
        """Take over the numbers of the task's last commit (see `know`).

        `exact`: that commit has all numbers. So a time that has no number there had seen nothing yet."""
        self.know(committed)
        self._exact = exact

    @property
    def exact(self) -> bool:
        """True if each time is exactly that of the last commit. In this case, rows with a later time weren't part of
        that commit."""
        return self._exact and not self.share

    @property
    def share(self) -> bool:
        """True if several times share one entry of the metadata."""
        return self._most_times is not None

    def known_time(self, name: str) -> int:
        """Return the time of that name: the cell's value, or the committed one if the task has no such cell."""
        return int(self._cells[name].merged) if name in self._kept else self.others(name)

    def know(self, committed: Mapping[str, int]) -> None:
        """Take over the numbers that the metadata of the committed offsets contains. A number that is higher than that
        of this process was committed by another process, and replaces it."""
        for name, number in committed.items():
            cell = self._cells[name] if name in self._kept else None
            if cell is None or number > cell.merged:
                self._others[name] = number
                if cell is not None:
                    cell.back(number)

    def note_committed(self, values: Mapping[str, Any]) -> None:
        """Remember the values of the last commit that Kafka has confirmed. Any thread may call this."""
        self._committed = values

    def confirmed_time(self, name: str) -> int:
        """Return the time of that name in the last commit that Kafka has confirmed, `UNKNOWN` if it has none."""
        return int(self._committed.get(name, UNKNOWN))

    def values(self) -> Mapping[str, Any]:
        """Return all values after the last finished record, keyed by the cell's name."""
        return {name: cell.merged for name, cell in self._cells.items()}

    def back(self, values: Mapping[str, Any]) -> None:
        """Return to the values of a commit. Cells that were made after that commit return to their initial values."""
        for name, cell in self._cells.items():
            cell.back(values.get(name, self._initial[name]))

    def to_keep(self, values: Mapping[str, Any]) -> dict[str, int]:
        """Choose the values of a commit that go into the metadata of its offsets.

        No time may have been added since `make_room`, which divides the room among the times."""
        if self._most_times is None:
            known = ((name, values.get(name, UNKNOWN)) for name in self._kept)
            return {name: value for name, value in known if value not in NOTHING}
        numbers = {name: values.get(name, UNKNOWN) for name in self._kept if not is_time(name)}
        for entry, names in gathered(self.times, self._most_times).items():
            shared = [value for name in names if (value := values.get(name, UNKNOWN)) != FOREVER]
            numbers[entry] = min(shared, default=UNKNOWN)
        return numbers

    @property
    def times(self) -> frozenset[str]:
        """The names of all times of the task."""
        return frozenset(filter(is_time, self._kept))

    @property
    def kept_names(self) -> frozenset[str]:
        """The names of the kept cells that aren't times."""
        return frozenset(self._kept) - self.times

    def make_room(self, most: int) -> bool:
        """Let the metadata contain at most `most` times. Returns True if several times have to share an entry.

        Call this once all cells are made. A time that shares an entry begins with the number that another process has
        committed for the entry."""
        times = self.times
        self._most_times = None if len(times) <= most else most
        shared = sum(is_time(name) and name not in times for name in self._others)
        for entry, names in gathered(times, shared).items():
            if entry not in times:
                for name in names:
                    self.time(name, self.others(entry))
        return self.share
