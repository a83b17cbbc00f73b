"""Mends a damaged database while its tasks run: all ranges that can be read are copied to a new database.

    damage is met --> the gate shuts: writes are refused and repeated later, reads go on
                      1. wait until no write is under way
                      2. open an empty database
                      3. copy range by range (partition and store); a range that can't be read whole is left out
                      4. write the rows, sync, make the new folder current; after a crash before that, the old one is
                      5. redirect open ranges to it; a range that was left out is an error until it is restored
    the gate opens -->  6. once no scan is open in the damaged database, it is closed, and its files are set aside

*Guarantees*: a range is copied as it was when the gate shut, or it is left out and named in the log. A mending that
fails, or breaks off, leaves the damaged database unchanged. The mending is repeated after a pause that grows.
*Assumes*: the rows are in memory (`SubtopologyEngine.rows`), so that damage doesn't reach them. The disk has room for a
copy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateCorruptError, StateError
from milestones.common.last_words import report
from milestones.common.records import StoreId, TaskId
from milestones.common.state.disk import make_directory, remove_tree, scratch, some
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.manifest import TaskManifest
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.mending.database_folder import aside, current, following, make_current
from milestones.m6_state_manager.ranges import span_of
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.state.engine import Engines
    from milestones.m6_state_manager.open_ranges import Place

log: Final = logging.getLogger(__name__)

WRITES_END_MS: Final = 60_000
LOOK_EVERY: Final = 1_000
"""After this number of entries the mending checks whether the instance ends."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SERIES_MS = 1_000, 60_000, 600_000
"""The pauses before the same database is mended once more. The pause doubles each time, from the first to the longest.
If no mending was needed for `SERIES_MS`, the next pause is the first one."""
GRACE_MS: Final = 2_000
"""A replaced database stays open for this time at least, as a read may be under way."""


class Mending:
    """Mends one database, once. `over` returns True when the instance ends."""

    def __init__(self, database: SubtopologyEngine, engines: Engines, over: Callable[[], bool] = lambda: False) -> None:
        self._database, self._engines, self._over = database, engines, over
        self._lost: dict[Place, str] = {}
        self._ranges = self._entries = 0

    def run(self) -> None:
        """Mend the database, and open its gate. Raises `StateError`, and leaves the database unchanged."""
        database = self._database
        if not database.gate.idle(WRITES_END_MS):
            raise StateError(f"writes to {database.folder} haven't ended for {WRITES_END_MS // 1000} s")
        folder = following(database.folder.name)
        make_directory(database.path)
        remove_tree(database.path / folder)
        if database.manifest is not None and TaskManifest.read(database.path) is None:
            database.manifest.write(database.path)
        stores = database.stores()
        other = SubtopologyEngine(
            database.number, database.path, self._engines, folder, database.owners, stores=stores
        )
        try:
            reach("mend.begun")
            self._copy(other)
            lost = database.replace_by(other, self._lost)
        except BaseException:
            other.engine.close()
            if current(database.path) == folder:  # the change may not be on the disk: a power failure could undo it
                make_current(database.path, database.folder.name)
            remove_tree(other.folder)
            raise
        database.gate.open()
        self._tell(lost)

    def _copy(self, other: SubtopologyEngine) -> None:
        for store in self._database.stores():
            other.open_store(store)
            for partition in self._database.partitions():
                try:
                    self._copy_range(other, store, partition)
                except StateCorruptError as error:
                    self._lost[partition, store] = str(error)
                self._ranges += 1
                reach("mend.range")

    def _copy_range(self, other: SubtopologyEngine, store: str, partition: int) -> None:
        """Copy one range. Raises `StateCorruptError` if it can't be read whole, and copies none of it."""
        directory = scratch(other.folder)
        try:
            writer = SstWriter(directory)
            writer.write(self._entries_of(store, partition))
            for _ in other.engine.ingest(store, list(writer.files)):
                pass
            self._entries += sum(writer.files.values())
        finally:
            remove_tree(directory)

    def _entries_of(self, store: str, partition: int) -> Iterator[tuple[bytes, bytes]]:
        found = self._database.open_store(store).scan(*span_of(partition))
        for count, entry in enumerate(found):
            if count % LOOK_EVERY == 0 and self._over():
                raise StateError(f"the mending of {self._database.folder} is given up, as the instance ends")
            yield entry

    def _tell(self, lost: list[Place]) -> None:
        number = self._database.number
        names = [str(StoreId(TaskId(number, partition), store)) for partition, store in lost]
        log.warning(
            "the state of sub-topology %d is mended, writes go on: %d entries in %d of %d ranges are kept; %s. The "
            "damaged files are kept in %s", number, self._entries, self._ranges - len(self._lost), self._ranges,
            f"to be restored: {some(names)}" if names else "nothing is to be restored", aside(self._database.path),
        )  # fmt: skip


class Mender:
    """Has damaged databases mended, each in a thread of its own. The state thread calls its step function. *Owns*: the
    mending threads; the time before which a database isn't mended once more."""

    def __init__(self, engines: Engines, clock: Clock, name: str) -> None:
        """`name`: the state thread's."""
        self._engines, self._clock, self._name = engines, clock, name
        self._threads: dict[int, MendingThread] = {}
        self._series: dict[int, tuple[int, int]] = {}
        self._over = threading.Event()

    def run_once(self, databases: list[SubtopologyEngine]) -> None:
        """Begin to mend damaged databases, and close replaced ones that nobody reads any more."""
        for database in databases:
            database.replaced.let_go(GRACE_MS)
            thread = self._threads.get(database.number)
            if thread is not None and not thread.is_alive():
                del self._threads[database.number]
                self._note_end(database.number)
            if database.gate.reason and database.number not in self._threads and self._may_begin(database.number):
                self._begin(database)

    def _begin(self, database: SubtopologyEngine) -> None:
        thread = MendingThread(f"{self._name}-mending-{database.number}", database, self._engines, self._over)
        try:
            thread.start()
        except RuntimeError as error:
            log.error("sub-topology %d can't be mended now: %s", database.number, error)
            self._note_end(database.number)
        else:
            self._threads[database.number] = thread

    def _may_begin(self, number: int) -> bool:
        again_ms, _ = self._series.get(number, (0, 0))
        return self._clock.monotonic_ms() >= again_ms

    def _note_end(self, number: int) -> None:
        """Set the pause before the next mending of this database. The pause grows when mendings follow each other."""
        now_ms, (again_ms, pause_ms) = self._clock.monotonic_ms(), self._series.get(number, (0, 0))
        pause_ms = FIRST_PAUSE_MS if now_ms - again_ms > SERIES_MS else min(2 * pause_ms, LONGEST_PAUSE_MS)
        self._series[number] = now_ms + max(pause_ms, FIRST_PAUSE_MS), pause_ms

    def end(self, timeout_s: float) -> None:
        """End the mendings that are under way."""
        self._over.set()
        for thread in self._threads.values():
            thread.join(timeout_s)


class MendingThread(threading.Thread):
    """Mends one database, once."""

    def __init__(self, name: str, database: SubtopologyEngine, engines: Engines, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._database, self._mending = database, Mending(database, engines, over.is_set)

    def run(self) -> None:
        try:
            self._mending.run()
        except StateError as error:
            log.error("sub-topology %d can't be mended now, and its writes wait: %s", self._database.number, error)
        except BaseException as error:
            report(log, "sub-topology %d can't be mended now, and its writes wait", self._database.number, error=error)
