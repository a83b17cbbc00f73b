"""`SubtopologyEngine` is the database of one sub-topology: a column family per store, and one for the tasks' rows.

    write --> WriteGate --> engine
                | shut, as the database is damaged: StateBusyError, and the caller writes later
                v
              a copy of all readable ranges replaces the database (`mending/mender.py`), and the gate opens

*Why this way* (`docs/decisions/0006-one-database-per-sub-topology.md`):
- Taking a task or giving it away opens and closes no database: 64 tasks of three stores start in 0.7 s, not in 6 s.
- One database for the whole instance was rejected: damage of one file stops all writes of its database.
- A damaged database doesn't end its tasks. Reads go on, and writes wait until a copy has replaced the database.
- A busy write is an error that the caller repeats, so that no processing thread stands still on the disk.

*Guarantees*: a task's entries and its row are written in one atomic step. Once a row is written, `rows` has it. If the
engine can't take a write because of damage, the write is refused with `StateBusyError`. The caller makes it later, and
none of it is lost.
*Assumes*: one thread calls `open_store` and `close`. Only the thread that has a task writes its range, so that several
threads may write at the same time, each in its own range.
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
"""The column family of the rows. No store can have this name."""

DAMAGED, WAIT = "it is damaged and being mended", "check the log, and whether the disk is sound"

LINKING: Final = ("rocksdict",)
"""The engines that can link table files into a database."""


def opened(
    number: int, path: Path, engines: Engines, changed: ChangedKeys | None = None, stores: Collection[str] = ()
) -> SubtopologyEngine:
    """Open the database in `path`. A new database begins with `stores`. The files of a damaged one are kept next to it,
    and the database begins empty. The column family of notes is made here, so that no processing thread has to make it.
    Raises `StateLockedError`, `StateError`."""
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
    """*Owns*: the engine. `number` is the sub-topology's; the engine's files are in `folder`. `rows` has the rows of
    all tasks that have state here, by partition. `owners` has the open stores of tasks, by store name, for errors.
    `ranges` has the open ranges. `epoch` rises when the engine is replaced. `linked` rises whenever a column family or
    a table file may get into the engine without an entry in its log. *Sends* the keys that it writes to `changed`.

    *Concurrency*: `noting` is held while ranges are emptied, and while the engine is replaced."""

    rows: dict[int, RangeRow]
    manifest: TaskManifest | None
    agreed: Sequence[StoreSpec] | None = None
    """The stores of the topology, once they are known to fit what is on the disk. None before a task was opened."""

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
        """Open the database in `path`. `folder`: opened in place of the one that `current` names. `stores`: a new
        database begins with these. Raises `StateCorruptError`, `StateLockedError`, `StateError`."""
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
        """Called by any thread that finds the database damaged."""
        self.room = DiskRoom()
        self.ranges = OpenRanges(number, self.open_store, lambda: len(self.partitions()), self.damage)
        self.noting = self.ranges.lock
        self.epoch = 0
        self.changed: ChangedKeys = changed or ChangedKeys()
        self.linked, self._linking = 0, threading.Lock()
        self.links: bool = engines.name in LINKING
        """True if the engine can link table files without reading them."""
        self.replaced = ReplacedDatabases(path, self._clock)

    @property
    def is_full(self) -> bool:
        """True if the disk had no room for the last write."""
        return self.room.is_full(self.path)

    @property
    def unsynced_ms(self) -> int:
        """The age of the oldest write that isn't synced, in ms; 0 when all writes are synced."""
        return max(1, self._clock.monotonic_ms() - self.unsynced_since_ms) if self.unsynced else 0

    # -- stores and ranges

    def stores(self) -> list[str]:
        """Return the stores that have a column family, opened or not."""
        return [store for store in self.engine.namespaces() if store not in (ROWS, NOTES)]

    def open_store(self, store: str) -> Namespace:
        """Return the store's column family. The column family is made if there is none."""
        family = self._families.get(store)
        if family is None:
            family = self._families[store] = self.engine.open(store)
            self._note_link()
        return family

    def _note_link(self) -> None:
        with self._linking:  # two threads that write the same number would hide a step from a checkpoint
            self.linked += 1

    def partitions(self) -> list[int]:
        """Return the partitions of all tasks that have a row, or are open."""
        return sorted({*self.rows, *self._held()})

    def _held(self) -> set[int]:
        """Return the partitions of the open tasks."""
        return {store.task.partition for stores in list(self.owners.values()) for store in list(stores)}

    # -- writes

    def ready(self, partition: int, stores: Collection[str]) -> int:
        """Check that these stores of the task can be written, and return the epoch in which they can. Raises
        `StateCorruptError` when a store is lost, `StateBusyError` when one must be emptied first, `StateError`."""
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
        """Write entries by store, and the task's row, in one atomic step. `wait` as in `Engine.apply`, except that no
        write waits until damage is mended. `epoch`: the write is refused if the engine was replaced since this epoch.
        Raises `StateBusyError`, `StateError`."""
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
        """Empty these stores of the task, and write the task's row (None: remove the row), in one atomic step. `wait`
        as in `write`. Raises `StateBusyError`, `StateError`."""
        span = span_of(partition)
        data = None if row is None else row.encode()
        with self._writing():
            for store in stores:
                self.open_store(store)
            self.changed.emptied(self.number, partition, stores)
            reach("wipe.begun")
            self._delete(dict.fromkeys(stores, span), {ROWS: {span[0]: data}}, wait=wait)
            self.changed.emptied(self.number, partition, stores)  # a checkpoint between the two has the old entries
            reach("wipe.made")
            if row is None:
                self.rows.pop(partition, None)
            self._wrote(partition, row)

    def empty(self, partition: int, stores: Collection[str], row: RangeRow) -> None:
        """Empty these stores of the task, and give the task this row. If the database is busy, this is written later.
        From now on no reader sees the old entries, and no other write of these stores comes first. Raises
        `StateError`."""
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
        """Give the task this row, without entries. If the database is busy, the row is written later, at the latest
        with the task's next write. Raises `StateError`."""
        with self.noting:
            self.rows[partition] = row
            with suppress(StateBusyError):
                self.write(partition, {}, row, wait=False)

    def settle(self) -> None:
        """Empty the ranges that wait to be emptied, if the database isn't busy. Ranges of open tasks are passed over:
        the thread that has an open task empties the task's ranges with its next write, and may be writing now. Raises
        `StateError`."""
        with self.noting:
            for partition in {partition for partition, _ in self.ranges.to_empty} - self._held():
                with suppress(StateBusyError):
                    self._empty(partition)

    def expire(self, partition: int, store: str, spans: Collection[Span]) -> None:
        """Delete spans of keys that no reader asks for any more. Never waits. Raises `StateBusyError`, `StateError`."""
        prefix = prefix_of(partition)
        self.changed.expired(self.changed.range(self.number, partition), store, spans)
        for first, beyond in spans:
            with self._writing():
                self._delete({store: (prefix + first, prefix + beyond)}, {}, wait=False)

    def _delete(self, spans: Mapping[str, Span], batches: Mapping[str, Batch], *, wait: bool) -> None:
        """Delete as `Engine.wipe` does, and write a note of the deleted spans in the same step."""
        self.open_store(NOTES)
        notes = notes_of(spans)
        self.engine.wipe(spans, {**batches, NOTES: notes}, wait=wait)
        self.wiped.add(notes)

    def link(self, partition: int, store: str, files: Sequence[Path]) -> None:
        """Link sorted table files of the partition's keys into the store, which is empty. Never waits. Raises
        `StateBusyError`, and leaves the files where they are; `StateCorruptError` when a file is damaged;
        `StateError`."""
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
            except StateCorruptError as error:  # a file is damaged, not the database
                damaged = error
            finally:
                self._note_link()
            self.unsynced = True
        if damaged is not None:
            raise damaged

    def compact(self, wiped: Wiped) -> None:
        """Free the disk space of a deleted span. May take long. Raises `StateError`."""
        if wiped.store not in self.stores():
            return
        engine = self.engine
        try:
            engine.open(wiped.store)
            engine.compact(wiped.store, wiped.span)
        except StateCorruptError as error:
            with self.noting:
                if engine is self.engine:  # otherwise the damage is in an engine that was replaced
                    self.damage(str(error))
            raise

    def remove_notes(self) -> None:
        """Remove the notes of deleted spans whose disk space is free. Raises `StateBusyError`, `StateError`."""
        if done := self.wiped.done():
            with self._writing():
                self.open_store(NOTES)  # the database may have been replaced in the meantime
                self.engine.apply({NOTES: dict.fromkeys(done)}, {}, wait=False)
            self.wiped.removed(done)

    def sync(self) -> None:
        """Sync all writes to the disk. Raises `StateBusyError` when the database proves damaged, `StateError`."""
        self.unsynced = False
        with self._writing():
            self.engine.sync()

    @contextmanager
    def _writing(self, epoch: int | None = None, *, waits: bool = True) -> Iterator[None]:
        """Let the block write, and turn the engine's errors into those of this class. `waits`: as in
        `DiskRoom.refused`. Raises `StateBusyError`, `DecidedError`."""
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
            except StateFullError as error:  # of a call that no engine refuses as busy, such as a new column family
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
        """Remove a store's offset from all rows. No task has the store open, and each begins with it empty."""
        for partition, row in list(self.rows.items()):
            if store in row.offsets:
                self.write(partition, {}, row.without(store))
            self.changed.emptied(self.number, partition, [store])

    def remove_family(self, store: str) -> None:
        """Remove the column family of a store that no task has open. Raises `StateBusyError`, `StateError`."""
        with self._writing():
            self._families.pop(store, None)
            self._note_link()
            self.engine.drop(store)
            self._note_link()

    # -- damage

    def look(self) -> None:
        """Check that the database's files still exist, and that the database takes writes once its disk has room."""
        if self.gate.reason:
            return
        if not disk.exists(self.folder / "CURRENT"):
            self.damage(f"{self.folder} was removed, or files of it")
        elif self.room.is_stuck(self.path):
            self.damage(f"{self.folder} takes no write any more since its disk was full")

    def damage(self, why: str) -> None:
        """Note that the database is damaged: all writes are refused from now on, until it is mended."""
        if self.gate.shut(DAMAGED, WAIT):
            log.error(
                "the state of sub-topology %d is damaged, and mended: reads go on, writes wait: %s", self.number, why
            )
            self.tell_damage()

    def replace_by(self, other: SubtopologyEngine, lost: Mapping[Place, str]) -> list[Place]:
        """Replace the engine by that of `other`, a copy. `lost`: the ranges that the copy lacks because they can't be
        read, each with the reason. Returns the ranges that are lost from now on, and weren't lost before. A range that
        waits to be emptied isn't lost. No write is under way. Raises `StateError`."""
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
