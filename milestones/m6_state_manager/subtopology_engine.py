"""The database of one sub-topology: a column family per store, one for the tasks' rows.

    write --> WriteGate --> engine
                | shut, as the database is damaged: later (StateBusyError)
                v
              a copy of what can be read takes the database's place (`mending/mender.py`), and the gate opens

*Guarantees*: a task's entries and its row are written in one atomic step. A row that was written is in `rows`. A write
that the engine can't take for damage is refused as one that is to come later, and nothing of it is lost.
*Assumes*: `open_store` and `close` are one thread's; a range is written by its holder only, so that N threads may
write at once, each its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from milestones.common.clock import SystemClock
from milestones.common.errors import StateBusyError, StateCorruptError, StateError, StateFullError
from milestones.common.state import disk
from milestones.common.state.disk import make_directory
from milestones.common.state.manifest import TaskManifest
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.disk_room import DiskRoom
from milestones.m6_state_manager.mending import database_folder
from milestones.m6_state_manager.mending.database_folder import begin_anew, current, make_current
from milestones.m6_state_manager.mending.gate import WriteGate
from milestones.m6_state_manager.mending.replaced import ReplacedDatabases
from milestones.m6_state_manager.open_ranges import OpenRanges
from milestones.m6_state_manager.range_row import RangeRow, rows_in
from milestones.m6_state_manager.ranges import prefix_of, prefixed, span_of
from milestones.m6_state_manager.snapshots.changed_keys import ChangedKeys
from milestones.m6_state_manager.wiped_spans import NOTES, WipedSpans, notes_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from milestones.common.records import StoreId
    from milestones.common.state.engine import Batch, Engine, Engines, Namespace, Span
    from milestones.common.state.spec import StoreSpec
    from milestones.m6_state_manager.open_ranges import Place
    from milestones.m6_state_manager.wiped_spans import Wiped

log: Final = logging.getLogger(__name__)

ROWS: Final = "/tasks"
"""The column family of the rows; no store has such a name."""

DAMAGED, WAIT = "it is damaged and being mended", "see the log, and that the disk is sound"

LINKING: Final = ("rocksdict",)
"""The engines that can."""


def opened(
    number: int, path: Path, engines: Engines, changed: ChangedKeys | None = None, stores: Collection[str] = ()
) -> SubtopologyEngine:
    """The database in `path`, made with these stores when there is none. The files of a damaged one are kept beside it,
    and it begins empty. No processing thread has to make a column family in it. `StateLockedError`, `StateError`."""
    make_directory(path)
    try:
        disk.sweep(path)
        database_folder.sweep(path)
        database = SubtopologyEngine(number, path, engines, changed=changed, stores=stores)
    except StateCorruptError as error:
        kept = begin_anew(path)
        log.error("the state of sub-topology %s starts empty, its files are kept in %s: %s", path.name, kept, error)
        database = SubtopologyEngine(number, path, engines, changed=changed, stores=stores)
    try:
        database.open_store(NOTES)
    except BaseException:
        database.close()
        raise
    return database


class SubtopologyEngine:
    """*Owns*: the engine. `number`: of the sub-topology; `folder`: where the engine lies; `rows`: by partition, of the
    tasks that have state here; `owners`: by store, those that are open, for errors; `ranges`: those that are read;
    `epoch`: rises when the engine is replaced; `linked`: rises with each step by which something comes into the engine
    beside its log. *Sends* what it writes to `changed`.

    *Concurrency*: `noting` is held while ranges are emptied, and while the engine is replaced."""

    rows: dict[int, RangeRow]
    manifest: TaskManifest | None
    agreed: Sequence[StoreSpec] | None = None
    """The stores that are known to fit: all that the topology has. None before a task was opened."""

    def __init__(
        self,
        number: int,
        path: Path,
        engines: Engines,
        folder: str | None = None,
        owners: dict[str, set[StoreId]] | None = None,
        changed: ChangedKeys | None = None,
        stores: Collection[str] = (),
    ) -> None:
        """Open what lies in `path`; `folder`: in place of the database that counts there; `stores`: those that a new
        database is made with. `StateCorruptError`, `StateLockedError`, `StateError`."""
        self._clock = SystemClock()
        self.manifest = TaskManifest.read(path)
        self.number, self.path, self.engine_name = number, path, engines.name
        self.folder = path / (folder or current(path))
        self.owners: dict[str, set[StoreId]] = {} if owners is None else owners
        self.engine: Engine = engines.open(self.folder, self.owners, [ROWS, NOTES, *stores])
        try:
            self._families: dict[str, Namespace] = {}
            self.rows = rows_in(self.engine.open(ROWS).scan(None, None), number, path)
            noted = NOTES in self.engine.namespaces()
            self.wiped: WipedSpans = WipedSpans(self.engine.open(NOTES).scan(None, None) if noted else ())
        except BaseException:
            self.engine.close()
            raise
        self.unsynced, self.unsynced_since_ms = False, 0
        self.gate = WriteGate(f"the state of sub-topology {number} in {path}")
        self.tell_damage: Callable[[], object] = lambda: None
        """Called when the database proves damaged, by any thread."""
        self.room = DiskRoom()
        self.ranges = OpenRanges(number, self.open_store, lambda: len(self.partitions()), self.damage)
        self.noting = self.ranges.lock
        self.epoch = 0
        self.changed: ChangedKeys = changed or ChangedKeys()
        self.linked, self._linking = 0, threading.Lock()
        self.links: bool = engines.name in LINKING
        """Whether the engine takes files in without reading them."""
        self.replaced = ReplacedDatabases(path, self._clock)

    @property
    def is_full(self) -> bool:
        """Whether its disk had no room for the last write."""
        return self.room.is_full(self.path)

    @property
    def unsynced_ms(self) -> int:
        """Since when something is written that isn't synced; 0 when all is."""
        return max(1, self._clock.monotonic_ms() - self.unsynced_since_ms) if self.unsynced else 0

    # -- stores and ranges

    def stores(self) -> list[str]:
        """The stores that have a column family, opened or not."""
        return [store for store in self.engine.namespaces() if store not in (ROWS, NOTES)]

    def open_store(self, store: str) -> Namespace:
        """The store's column family, made when there is none."""
        family = self._families.get(store)
        if family is None:
            family = self._families[store] = self.engine.open(store)
            self._note_link()
        return family

    def _note_link(self) -> None:
        with self._linking:  # a number that is written twice would hide a step from a checkpoint
            self.linked += 1

    def partitions(self) -> list[int]:
        """Those that have a row, or are open."""
        return sorted({*self.rows, *self._held()})

    def _held(self) -> set[int]:
        """Those that are open."""
        return {store.task.partition for stores in list(self.owners.values()) for store in list(stores)}

    # -- writes

    def ready(self, partition: int, stores: Collection[str]) -> int:
        """See that these stores of the task can be written; the epoch in which they can. `StateCorruptError` when one
        is lost, `StateBusyError` when it isn't emptied yet, `StateError`."""
        epoch = self.epoch
        if not self.ranges.ready(partition, stores):
            self._empty(partition)
        return epoch

    def write(
        self,
        partition: int,
        batches: Mapping[str, Batch],
        row: RangeRow | None = None,
        *,
        wait: bool = True,
        epoch: int | None = None,
    ) -> None:
        """Write entries by store, and the row, in one atomic step. `wait` as in `Engine.apply`, but that no write waits
        for damage to be mended; `epoch`: the write is from this one. `StateBusyError`, `StateError`."""
        prefix, changes = prefix_of(partition), self.changed.range(self.number, partition)
        for store, batch in batches.items():
            self.changed.note(changes, store, batch)
        written = {store: prefixed(batch, prefix) for store, batch in batches.items()}
        if row is not None:
            written[ROWS] = {prefix: row.encode()}
        with self._writing(epoch, waits=False):
            self.engine.apply(written, {}, wait=wait)
            self._wrote(partition, row)

    def wipe(self, partition: int, stores: Collection[str], row: RangeRow | None, *, wait: bool = True) -> None:
        """Empty these stores of the task, and write its row, or remove that, in one atomic step. `wait` as in `write`.
        `StateBusyError`, `StateError`."""
        span = span_of(partition)
        data = None if row is None else row.encode()
        with self._writing():
            for store in stores:
                self.open_store(store)
            self.changed.emptied(self.number, partition, stores)
            reach("wipe.begun")
            self._delete(dict.fromkeys(stores, span), {ROWS: {span[0]: data}}, wait=wait)
            self.changed.emptied(self.number, partition, stores)  # a checkpoint in between has what they had
            reach("wipe.made")
            if row is None:
                self.rows.pop(partition, None)
            self._wrote(partition, row)

    def empty(self, partition: int, stores: Collection[str], row: RangeRow) -> None:
        """Have these stores of the task empty, with this row: on the disk now, or as soon as that is possible. No
        reader sees what they had from now on, and no write passes before. `StateError`."""
        self.changed.emptied(self.number, partition, stores)
        with self.noting:
            self.ranges.empty(partition, stores)
            self.rows[partition] = row
            with suppress(StateBusyError):
                self._empty(partition)

    def _empty(self, partition: int) -> None:
        with self.noting:
            places = {place for place in self.ranges.to_empty if place[0] == partition}
            self.wipe(partition, [store for _, store in places], self.rows.get(partition), wait=False)
            self.ranges.emptied(places)

    def keep(self, partition: int, row: RangeRow) -> None:
        """Have this row, with nothing that was written: on the disk now, or at the latest with the next write of the
        task. `StateError`."""
        with self.noting:
            self.rows[partition] = row
            with suppress(StateBusyError):
                self.write(partition, {}, row, wait=False)

    def settle(self) -> None:
        """Empty what is to be emptied, if that is possible now, of tasks that no thread has: a holder does it with its
        next write, and may be writing its row now. `StateError`."""
        with self.noting:
            for partition in {partition for partition, _ in self.ranges.to_empty} - self._held():
                with suppress(StateBusyError):
                    self._empty(partition)

    def expire(self, partition: int, store: str, spans: Collection[Span]) -> None:
        """Delete what no reader asks for any more. It never waits: `StateBusyError`, `StateError`."""
        prefix = prefix_of(partition)
        self.changed.expired(self.changed.range(self.number, partition), store, spans)
        for first, beyond in spans:
            with self._writing():
                self._delete({store: (prefix + first, prefix + beyond)}, {}, wait=False)

    def _delete(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool) -> None:
        """As `Engine.wipe`, with a note of what was deleted in the same step."""
        self.open_store(NOTES)
        notes = notes_of(spans)
        self.engine.wipe(spans, {**batches, NOTES: notes}, wait=wait)
        self.wiped.add(notes)

    def link(self, partition: int, store: str, files: Sequence[Path]) -> None:
        """Link sorted table files of the partition's keys into the store, which is empty. No such write waits:
        `StateBusyError`, and the files are where they were. `StateCorruptError` when one is damaged, `StateError`."""
        epoch = self.ready(partition, [store])
        self.changed.emptied(self.number, partition, [store])
        damaged: StateCorruptError | None = None
        reach("snapshot.linking")
        with self._writing(epoch, waits=False):
            self.open_store(store)
            self._note_link()
            try:
                for _ in self.engine.ingest(store, files):
                    pass
            except StateCorruptError as error:  # of a file, not of the database
                damaged = error
            finally:
                self._note_link()
            self.unsynced = True
        if damaged is not None:
            raise damaged

    def compact(self, wiped: Wiped) -> None:
        """Give back the room of what was deleted. May take long. `StateError`."""
        if wiped.store not in self.stores():
            return
        engine = self.engine
        try:
            engine.open(wiped.store)
            engine.compact(wiped.store, wiped.span)
        except StateCorruptError as error:
            with self.noting:
                if engine is self.engine:  # or what was met is in one that counts no more
                    self.damage(str(error))
            raise

    def remove_notes(self) -> None:
        """Remove the notes of what was wiped whose room is given back. `StateBusyError`, `StateError`."""
        if done := self.wiped.done():
            with self._writing():
                self.open_store(NOTES)  # the database may have been replaced since
                self.engine.apply({NOTES: dict.fromkeys(done)}, {}, wait=False)
            self.wiped.removed(done)

    def sync(self) -> None:
        """Have all that was written on the disk. `StateBusyError` when the database proves damaged, `StateError`."""
        self.unsynced = False
        with self._writing():
            self.engine.sync()

    @contextmanager
    def _writing(self, epoch: int | None = None, *, waits: bool = True) -> Iterator[None]:
        """The block writes. `waits`: as in `DiskRoom.refused`. `StateBusyError`, `DecidedError`."""
        with self.gate.passed():
            if epoch not in (None, self.epoch):
                raise self.gate.busy()
            try:
                yield
            except StateBusyError as busy:
                if busy.full:
                    busy.told = True
                    self.room.refused(self.path, waits=waits)
                raise
            except StateFullError as error:  # of a call that no engine refuses, such as a column family's making
                self.room.refused(self.path, waits=waits)
                raise self.room.busy(self.path) from error
            except StateCorruptError as error:
                self.damage(str(error))
                raise self.gate.busy() from error
            except StateError as error:
                if self.is_full:
                    raise self.room.busy(self.path) from error
                raise
            if self.is_full:
                self.room.written(self.path)

    def _wrote(self, partition: int, row: RangeRow | None) -> None:
        if not self.unsynced:
            self.unsynced, self.unsynced_since_ms = True, self._clock.monotonic_ms()
        if row is not None:
            self.rows[partition] = row

    def drop_store(self, store: str) -> None:
        """Remove the column family of a store that no task has open, and forget its offsets."""
        self.forget_offsets(store)
        self.remove_family(store)

    def forget_offsets(self, store: str) -> None:
        """Have all tasks begin anew with a store that none has open."""
        for partition, row in list(self.rows.items()):
            if store in row.offsets:
                self.write(partition, {}, row.without(store))
            self.changed.emptied(self.number, partition, [store])

    def remove_family(self, store: str) -> None:
        """Remove the column family of a store that no task has open. `StateBusyError`, `StateError`."""
        with self._writing():
            self._families.pop(store, None)
            self._note_link()
            self.engine.drop(store)
            self._note_link()

    # -- damage

    def look(self) -> None:
        """See whether the database's files are still there, and whether it takes writes again after a full disk."""
        if self.gate.reason:
            return
        if not disk.exists(self.folder / "CURRENT"):
            self.damage(f"{self.folder} was removed, or files of it")
        elif self.room.is_stuck(self.path):
            self.damage(f"{self.folder} takes no write any more since its disk was full")

    def damage(self, why: str) -> None:
        """Note that the database is damaged: no write passes from now on."""
        if self.gate.shut(DAMAGED, WAIT):
            log.error(
                "the state of sub-topology %d is damaged, and mended: reads go on, writes wait: %s", self.number, why
            )
            self.tell_damage()

    def replace_by(self, other: SubtopologyEngine, lost: Mapping[Place, str]) -> list[Place]:
        """Have `other`, a copy, in place of the engine; `lost`: why, by range that it doesn't have, as it can't be
        read. Those of them that aren't emptied anyway. No write is under way. `StateError`."""
        with self.noting:
            for partition, store in self.ranges.to_empty:
                other.wipe(partition, [store], None)
            all_lost = self.ranges.without(lost)
            new = all_lost.keys() - self.ranges.lost.keys()
            rows = dict(self.rows)
            for partition, store in new:
                self.changed.emptied(self.number, partition, [store])
                if partition in rows:
                    rows[partition] = rows[partition].lost(store)
            other.engine.apply({ROWS: {prefix_of(partition): row.encode() for partition, row in rows.items()}}, {})
            other.engine.sync()
            reach("mend.copied")
            make_current(self.path, other.folder.name)
            reach("mend.current")
            self.replaced.add(self.engine, self.folder)
            self.engine, self.folder, self._families = other.engine, other.folder, other._families
            self.rows, self.wiped, self.unsynced = rows, other.wiped, False
            self.epoch += 1
            self.room.written(self.path)
            self.ranges.replaced(all_lost)
            return sorted(new)

    def close(self) -> None:
        self.replaced.let_go(0)
        self.engine.close()
