"""Cells hold what operators and stores remember between records. A cell has one immutable value.

    set ---> value ---merge---> merged ---a commit's progress---> what a roll-back returns to
               | the record failed
               +---> merged

*Guarantees*: if a record fails, its changes are undone. A commit has the values of its boundary. A roll-back returns to
the values of the last commit. A cell outlives the program that asked for it: the next program finds it by its name.
A *kept* cell goes into the metadata of the committed offsets, and comes back from there in another process. So does a
*time*, which an operator or a store has seen: it continues after a restart, a move, a stay on Spark, and a window that
has closed stays closed. Of more times than the metadata has room for, several share the lowest of them.
*Assumes*: values are immutable. One thread sets and merges; `values` is called under the boundary's lock.
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
"""Values of a kept cell that the metadata needn't contain. A time is `FOREVER` if nothing waits for it."""


class Cell:
    """One value. Reading `value` is a plain attribute access, so it is fast."""

    __slots__ = ("_merged", "_touched", "value")

    value: Any

    def __init__(self, value: Any, touched: list[Staging]) -> None:
        self.value = self._merged = value
        self._touched = touched

    @property
    def merged(self) -> Any:
        """The value as of the last finished record."""
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


class Cells:
    """*Owns*: the cells of one task, by name. `touched`: as in `RecordScope`."""

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
        """The cell of this name. The first call for a name makes the cell, with the value `initial`."""
        if name not in self._cells:
            self._initial[name] = initial
            self._cells[name] = Cell(initial, self._touched)
        return self._cells[name]

    def begin(self, name: str, value: Any) -> None:
        """Have the cell of this name begin with `value`. A roll-back before the first commit returns to it, too."""
        self.cell(name, value).back(value)
        self._initial[name] = value

    def kept(self, name: str) -> Cell:
        """The kept cell of this name, a number of 64 bits. It begins with the committed number, or with `UNKNOWN`."""
        self._kept.add(name)
        return self.cell(name, self.others(name))

    def time(self, name: str, least: int = UNKNOWN) -> Cell:
        """The kept cell of a time. `name` is made by `times.time_name`. The cell begins with `least` if that is later
        than the committed time: the caller knows from elsewhere that this time has passed."""
        cell = self.kept(name)
        if cell.merged < least:
            self.begin(name, least)
        return cell

    def others(self, name: str) -> int:
        """The number of a kept cell that another process has committed last, `UNKNOWN` without."""
        return self._others.get(name, UNKNOWN)

    def kept_number(self, name: str) -> int | None:
        """The number of a kept cell as of the last finished record, None when there is no such cell."""
        return self._cells[name].merged if name in self._kept else None

    def take_commit(self, committed: Mapping[str, int], *, exact: bool) -> None:
        """`know` the numbers of the task's last commit. `exact`: that commit has them all, so that a time without a
        number has seen nothing yet."""
        self.know(committed)
        self._exact = exact

    @property
    def exact(self) -> bool:
        """True if each time is exactly that of the last commit. Then rows with a later time aren't committed."""
        return self._exact and not self.share

    @property
    def share(self) -> bool:
        """True if times share entries of the metadata."""
        return self._most_times is not None

    def known_time(self, name: str) -> int:
        """The time of that name: its cell's, or, of a task that has no such cell, the committed one."""
        return int(self._cells[name].merged) if name in self._kept else self.others(name)

    def know(self, committed: Mapping[str, int]) -> None:
        """Take the numbers that the committed offsets carry. One that is higher than this process's is another's."""
        for name, number in committed.items():
            cell = self._cells[name] if name in self._kept else None
            if cell is None or number > cell.merged:
                self._others[name] = number
                if cell is not None:
                    cell.back(number)

    def note_committed(self, values: Mapping[str, Any]) -> None:
        """Take the values of the last commit that Kafka has confirmed. Any thread may call this."""
        self._committed = values

    def confirmed_time(self, name: str) -> int:
        """The time of that name in the last commit that Kafka has confirmed, `UNKNOWN` without one."""
        return int(self._committed.get(name, UNKNOWN))

    def values(self) -> Mapping[str, Any]:
        """By name, as of the last finished record."""
        return {name: cell.merged for name, cell in self._cells.items()}

    def back(self, values: Mapping[str, Any]) -> None:
        """Return to the values of a commit. Cells that were made after that commit return to their initial values."""
        for name, cell in self._cells.items():
            cell.back(values.get(name, self._initial[name]))

    def to_keep(self, values: Mapping[str, Any]) -> dict[str, int]:
        """Of the values of a commit, those that its metadata has: no name is new since `make_room`."""
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
        """The names of the times."""
        return frozenset(filter(is_time, self._kept))

    @property
    def kept_names(self) -> frozenset[str]:
        """The names of the other kept cells."""
        return frozenset(self._kept) - self.times

    def make_room(self, most: int) -> bool:
        """Let the metadata carry at most `most` times. Returns whether times have to share entries. Call it when all
        cells are made: those that share an entry begin with what another process has committed."""
        times = self.times
        self._most_times = None if len(times) <= most else most
        shared = sum(is_time(name) and name not in times for name in self._others)
        for entry, names in gathered(times, shared).items():
            if entry not in times:
                for name in names:
                    self.time(name, self.others(entry))
        return self.share
