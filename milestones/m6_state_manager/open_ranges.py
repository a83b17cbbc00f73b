"""`OpenRanges`: what the tasks of a sub-topology read, whichever database it lies in.

    open --> read --replaced by a database that has it--> read there
    open --> read --replaced by one that hasn't--> lost: refused --empty--> to be emptied --emptied--> read: nothing
    a scan that began in the database before ends there

*Guarantees*: a range that no database has is an error to its readers and writers, until it is emptied. One that is to
be emptied has nothing, whatever is on the disk. Damage that a reader meets in a database that was replaced says nothing
of the one in its place: the reader's task begins again at its last commit.
*Assumes*: the caller that empties a range, or replaces the database, holds `lock`; else any thread calls.
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
"""A partition and a store: a range."""


class OpenRanges:
    """*Owns*: the open ranges; `lost`: why, by range whose content is gone; `to_empty`: those that have nothing any
    more, though the disk has.

    *Concurrency*: no read, and no write of entries, takes `lock`, unless it has met damage."""

    def __init__(
        self,
        number: int,
        family: Callable[[str], Namespace],
        ranges: Callable[[], int],
        damage: Callable[[str], object],
    ) -> None:
        """`number`: of the sub-topology. `family`: of a store, in the database that counts; `ranges`: how many one has;
        `damage`: called with what is found in that database."""
        self._number, self._family, self._ranges, self._damage = number, family, ranges, damage
        self.lock = threading.RLock()
        self.lost: dict[Place, str] = {}
        self.to_empty: set[Place] = set()
        self._open: weakref.WeakSet[RangeNamespace] = weakref.WeakSet()

    def open(self, store: str, partition: int, offset: Callable[[], int | None]) -> RangeNamespace:
        """A range of the store, which follows when the database is replaced; one that was lost begins empty. `offset`:
        as in `RangeNamespace`."""
        with self.lock:
            place = partition, store
            self.lost.pop(place, None)
            family = EMPTY if place in self.to_empty else self._family(store)
            opened = RangeNamespace(store, family, partition, offset, partial(self._report_damage, place), self._ranges)
            self._open.add(opened)
        return opened

    def ready(self, partition: int, stores: Collection[str]) -> bool:
        """Whether these stores of the task can be written, or are to be emptied before. `StateCorruptError` when one is
        lost."""
        for store in stores if self.lost else ():
            if why := self.lost.get((partition, store)):
                raise self._corrupt((partition, store), why)
        return not any((partition, store) in self.to_empty for store in stores)

    def empty(self, partition: int, stores: Collection[str]) -> None:
        """Have these stores of the task be emptied."""
        for store in stores:
            self.to_empty.add((partition, store))
            self.lost.pop((partition, store), None)

    def emptied(self, places: Collection[Place]) -> None:
        """Have these read what is in the database: nothing."""
        self.to_empty.difference_update(places)
        self._rebase(places)

    def without(self, lost: Mapping[Place, str]) -> dict[Place, str]:
        """All that is lost, with those of `lost`, by range, which another database doesn't have."""
        return {place: why for place, why in {**self.lost, **lost}.items() if place not in self.to_empty}

    def replaced(self, lost: dict[Place, str]) -> None:
        """Have all read in another database, which has all but `lost`, and in which the others are emptied."""
        self.lost, self.to_empty = lost, set()
        self._rebase(None)

    def _rebase(self, places: Collection[Place] | None) -> None:
        """Have these open ranges (None: all) read what is in the database."""
        for opened in list(self._open):
            place = opened.partition, opened.name
            if places is None or place in places:
                opened.rebase(self._family(opened.name))
                if place in self.lost:
                    opened.lose(self._corrupt(place, self.lost[place]))

    def _report_damage(self, place: Place, error: StateCorruptError, current: Callable[[], bool]) -> MilestonesError:
        """Note damage that a read of this range has met. Returns a `StateCorruptError` that names the range; or a
        `TaskCorruptedError` when the damaged database has been replaced already, and the range isn't lost."""
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
