"""`OpenRanges` keeps the ranges that a sub-topology's tasks have open, and redirects them to a new database.

    open --> read --replaced by a database that has the range--> read there
    open --> read --replaced by one that lacks it--> lost: refused --empty--> waits to be emptied --emptied--> read
    a scan that began in the replaced database ends there

*Guarantees*: readers and writers of a lost range get an error until the range is emptied. A range that waits to be
emptied reads as empty, whatever is on the disk. If a read meets damage in a database that was replaced in the meantime,
the new database isn't suspected: the reader's task is rolled back to its last commit.
*Assumes*: the caller that empties a range, or replaces the database, holds `lock`. Any thread may make the other calls.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from milestones.common.errors import MilestonesError, StateCorruptError, TaskCorruptedError
from milestones.common.records import StoreId, TaskId
from milestones.common.state.engine import EMPTY
from milestones.m6_state_manager.ranges import RangeNamespace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from milestones.common.state.engine import Namespace

Place = tuple[int, str]
"""A range: a partition and a store's name."""


class OpenRanges:
    """*Owns*: the open ranges. `lost`: the ranges whose content can't be read any more, each with the reason.
    `to_empty`: ranges that count as empty, though the disk still has their entries.

    *Concurrency*: reads, and writes of entries, don't take `lock`, unless they have met damage."""

    def __init__(
        self,
        number: int,
        family: Callable[[str], Namespace],
        ranges: Callable[[], int],
        damage: Callable[[str], object],
    ) -> None:
        """`number`: the sub-topology's. `family` returns a store's column family in the current database. `ranges`
        returns how many ranges a column family has. `damage` is called with damage that a read meets in the current
        database."""
        self._number, self._family, self._ranges, self._damage = number, family, ranges, damage
        self.lock = threading.RLock()
        self.lost: dict[Place, str] = {}
        self.to_empty: set[Place] = set()
        self._open: weakref.WeakSet[RangeNamespace] = weakref.WeakSet()

    def open(self, store: str, partition: int, offset: Callable[[], int | None]) -> RangeNamespace:
        """Open a range of the store. The range is redirected when the database is replaced. A lost range begins empty.
        `offset`: as in `RangeNamespace`."""
        with self.lock:
            place = partition, store
            self.lost.pop(place, None)
            family = EMPTY if place in self.to_empty else self._family(store)
            opened = RangeNamespace(store, family, partition, offset, partial(self._report_damage, place), self._ranges)
            self._open.add(opened)
        return opened

    def ready(self, partition: int, stores: Collection[str]) -> bool:
        """Return True if these stores of the task can be written, False if one must be emptied first. Raises
        `StateCorruptError` when one is lost."""
        for store in stores if self.lost else ():
            if why := self.lost.get((partition, store)):
                raise self._corrupt((partition, store), why)
        return not any((partition, store) in self.to_empty for store in stores)

    def empty(self, partition: int, stores: Collection[str]) -> None:
        """Mark these stores of the task as ranges that wait to be emptied."""
        for store in stores:
            self.to_empty.add((partition, store))
            self.lost.pop((partition, store), None)

    def emptied(self, places: Collection[Place]) -> None:
        """Note that these ranges are empty in the database, so that readers may use the database from now on."""
        self.to_empty.difference_update(places)
        self._rebase(places)

    def without(self, lost: Mapping[Place, str]) -> dict[Place, str]:
        """Return all lost ranges, those of `lost` included. A range that waits to be emptied is left out."""
        return {place: why for place, why in {**self.lost, **lost}.items() if place not in self.to_empty}

    def replaced(self, lost: dict[Place, str]) -> None:
        """Redirect all open ranges to the new database. The new database has all ranges except `lost`, and ranges that
        waited to be emptied are empty there."""
        self.lost, self.to_empty = lost, set()
        self._rebase(None)

    def _rebase(self, places: Collection[Place] | None) -> None:
        """Redirect these open ranges (None: all of them) to the current database."""
        for opened in list(self._open):
            place = opened.partition, opened.name
            if places is None or place in places:
                opened.rebase(self._family(opened.name))
                if place in self.lost:
                    opened.lose(self._corrupt(place, self.lost[place]))

    def _report_damage(self, place: Place, error: StateCorruptError, current: Callable[[], bool]) -> MilestonesError:
        """Note the damage that a read of this range has met. Returns a `StateCorruptError` that names the range. If the
        damaged database has already been replaced, and the range isn't lost, returns a `TaskCorruptedError`."""
        with self.lock:
            if place not in self.lost:
                if not current():
                    return self._outlived(place, error)
                self._damage(str(error))
        return self._corrupt(place, str(error))

    def _outlived(self, place: Place, error: StateCorruptError) -> TaskCorruptedError:
        task, why = TaskId(self._number, place[0]), "in a database that was damaged, and is replaced"
        return TaskCorruptedError(f"task {task} was reading store {place[1]!r} {why}: {error}", [task])

    def _corrupt(self, place: Place, why: str) -> StateCorruptError:
        return StateCorruptError(why, [StoreId(TaskId(self._number, place[0]), place[1])])
