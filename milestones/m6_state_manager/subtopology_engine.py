"""The database of one sub-topology: a column family per store, one for the tasks' rows.

*Guarantees*: a task's entries and its row are written in one atomic step. A row that was written is in `rows`.
*Assumes*: `open_store` and `close` are one thread's; a range is written by its holder only, so that N threads may
write at once, each its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateCorruptError
from milestones.common.state.disk import explained, make_directory, remove_tree
from milestones.m6_state_manager.range_row import RangeRow
from milestones.m6_state_manager.ranges import partition_of, prefix_of, prefixed, span_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from milestones.common.records import StoreId
    from milestones.common.state.engine import Batch, Engine, Engines, Namespace, Span
    from milestones.common.state.spec import StoreSpec

log: Final = logging.getLogger(__name__)

ROWS: Final = "/tasks"
"""The column family of the rows; no store has such a name."""
DATABASE: Final = "rocksdb"
CORRUPT: Final = "corrupt"


def opened(number: int, path: Path, engines: Engines) -> SubtopologyEngine:
    """The database in `path`, made when there is none. The files of a damaged one are kept beside it, and it begins
    empty. `StateLockedError`, `StateError`."""
    make_directory(path)
    try:
        return SubtopologyEngine(number, path, engines)
    except StateCorruptError as error:
        kept = set_aside(path, path.with_name(f"{path.name}-{CORRUPT}"))
        log.error("the state of sub-topology %s starts empty, its files are kept in %s: %s", path.name, kept, error)
        make_directory(path)
        return SubtopologyEngine(number, path, engines)


def set_aside(path: Path, kept: Path) -> Path:
    """Keep damaged files, in place of those that were kept there before; where they are then. `StateError`."""
    remove_tree(kept)
    make_directory(kept.parent)
    with explained("move aside", path):
        path.rename(kept)
    return kept


class SubtopologyEngine:
    """*Owns*: the engine. `number`: of the sub-topology; `rows`: by partition, of the tasks that have state here;
    `owners`: by store, those that are open, for errors."""

    rows: dict[int, RangeRow]
    agreed: Sequence[StoreSpec] = ()
    """The stores that are known to fit."""

    def __init__(self, number: int, path: Path, engines: Engines) -> None:
        """Open what lies in `path`. `StateCorruptError`, `StateLockedError`, `StateError`."""
        self.number, self.path, self.engine_name = number, path, engines.name
        self.owners: dict[str, tuple[StoreId, ...]] = {}
        self.engine: Engine = engines.open(path / DATABASE, self.owners)
        try:
            self._families: dict[str, Namespace] = {}
            found = self.engine.open(ROWS).scan(None, None)
            self.rows = {
                partition_of(key): RangeRow.decode(row, f"the row of task {number}_{partition_of(key)} in {path}")
                for key, row in found
            }
        except BaseException:
            self.engine.close()
            raise
        self.unsynced = False

    def stores(self) -> list[str]:
        """The stores that have a column family, opened or not."""
        return [store for store in self.engine.namespaces() if store != ROWS]

    def open_store(self, store: str) -> Namespace:
        """The store's column family, made when there is none."""
        family = self._families.get(store)
        if family is None:
            family = self._families[store] = self.engine.open(store)
        return family

    def write(
        self, partition: int, batches: Mapping[str, Batch], row: RangeRow | None = None, *, wait: bool = True
    ) -> None:
        """Write entries by store, and the row, in one atomic step. `wait` as of `Engine.apply`. `StateError`."""
        prefix = prefix_of(partition)
        written = {store: prefixed(batch, prefix) for store, batch in batches.items()}
        self.engine.apply(written if row is None else {**written, ROWS: {prefix: row.encode()}}, {}, wait=wait)
        self._wrote(partition, row)

    def wipe(self, partition: int, stores: Collection[str], row: RangeRow | None) -> None:
        """Empty these stores of the task, and write its row, or remove that, in one atomic step. `StateError`."""
        span = span_of(partition)
        data = None if row is None else row.encode()
        for store in stores:
            self.open_store(store)
        self.engine.wipe(dict.fromkeys(stores, span), {ROWS: {span[0]: data}})
        if row is None:
            self.rows.pop(partition, None)
        self._wrote(partition, row)

    def _wrote(self, partition: int, row: RangeRow | None) -> None:
        self.unsynced = True
        if row is not None:
            self.rows[partition] = row

    def expire(self, partition: int, store: str, spans: Collection[Span]) -> list[Span]:
        """Delete what no reader asks for any more; returns the spans of the column family. It never waits:
        `StateBusyError`, `StateError`."""
        prefix = prefix_of(partition)
        gone = [(prefix + first, prefix + beyond) for first, beyond in spans]
        for span in gone:
            self.engine.wipe({store: span}, {}, wait=False)
        return gone

    def sync(self) -> None:
        """Have all that was written on the disk. `StateError`."""
        self.unsynced = False
        self.engine.sync()

    def drop_store(self, store: str) -> None:
        """Remove the column family of a store that no task has open, and forget its offsets."""
        for partition, row in list(self.rows.items()):
            if store in row.offsets:
                self.write(partition, {}, row.without(store))
        self._families.pop(store, None)
        self.engine.drop(store)

    def close(self) -> None:
        self.engine.close()
