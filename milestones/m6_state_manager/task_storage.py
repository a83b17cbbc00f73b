"""`RangeTaskStorage`: the open stores of one task, as ranges of its sub-topology's database or in memory.

*Guarantees*: a commit is written in steps (`steps.py`). The last step has the task's row, with the offsets of all
stores, so that the changelogs repair a write that breaks off. A store that the changelogs couldn't repair is written
whole in the last step, whatever its size: a store without changelog, or of a kind that is `whole`. If a store with a
changelog has offset None when the task is opened, the store is emptied.
*Assumes*: the thread that has the task makes all calls; any thread may call `memory`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milestones.common.errors import StateError
from milestones.common.records import StoreId, TaskId
from milestones.common.state.engine import EngineMemory, summed
from milestones.common.state.engines.memory_engine import MemoryEngine
from milestones.common.state.engines.sst import write_entries
from milestones.common.state.refusals import written
from milestones.common.state.steps import joint_steps
from milestones.common.state.store_engine import StoreEngine
from milestones.common.state.stores.kinds import kind_of
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.range_row import LOST, UNKNOWN, RangeRow
from milestones.m6_state_manager.ranges import RangeNamespace, prefix_of

if TYPE_CHECKING:
    from milestones.common.state.engine import Batch, Namespace, Span
    from milestones.common.state.spec import StoreSpec
    from milestones.common.state.storage import CommitMade
    from milestones.m6_state_manager.snapshots.changed_keys import ChangedKeys, RangeChanges
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

log: Final = logging.getLogger(__name__)


class RangeTaskStorage:
    """See `TaskStorage`. *Owns*: the ranges of the task, until `close`."""

    def __init__(
        self,
        task: TaskId,
        database: SubtopologyEngine | None,
        specs: Sequence[StoreSpec],
        writer: Mapping[str, Any],
        closed: Callable[[], None],
    ) -> None:
        """`database`: None if the task has no persistent store. `writer`: the fields of the task's row that name the
        writer. `closed` frees the task's lock."""
        self.task = task
        self._database, self._writer, self._closed = database, writer, closed
        self._own = writer["process_id"], writer["transactional_id"]
        self._specs = {spec.name: spec for spec in specs if spec.persistent}
        self._ranges: dict[str, RangeNamespace] = {}
        self._in_memory = {
            spec.name: StoreEngine(spec, MemoryEngine({spec.name: (StoreId(task, spec.name),)}))
            for spec in specs
            if not spec.persistent
        }
        self._births = {name: self._row.births.get(name) or uuid.uuid4().hex for name in self._specs}
        self._unlogged = {name for name in self._specs if not self._restorable(name)}
        self._commit: CommitMade | None = None
        for name in self._specs:
            self._open_range(name)
        if database is not None:
            self._changed.follows(self._range)  # another instance may have had the task in the meantime
        self._empty_unfinished()

    @property
    def _engine(self) -> SubtopologyEngine:
        assert self._database is not None  # only persistent stores get here
        return self._database

    @property
    def _changed(self) -> ChangedKeys:
        return self._engine.changed

    @property
    def _range(self) -> RangeChanges:
        return self._changed.range(self._engine.number, self.task.partition)

    @property
    def persistent(self) -> Collection[StoreSpec]:
        """The stores in the database."""
        return self._specs.values()

    @property
    def _row(self) -> RangeRow:
        if self._database is None:
            return RangeRow()
        return self._database.rows.get(self.task.partition, RangeRow(**self._writer))

    def _open_range(self, store: str) -> RangeNamespace:
        opened = self._engine.ranges.open(store, self.task.partition, partial(self._offset, store))
        self._ranges[store] = opened
        return opened

    def _offset(self, store: str) -> int | None:
        return self._row.offsets.get(store)

    def _empty_unfinished(self) -> None:
        """Empty stores in which a first write, or an ingestion, has broken off. A key left there could survive the
        restoration, if the changelog has compacted away even the key's deletion."""
        for name in self._specs:
            if self._restorable(name) and self._offset(name) is None and self._has_entries(name):
                self.clear(name)

    def _restorable(self, store: str) -> bool:
        spec = self._specs[store]
        return spec.logged or spec.source_topic is not None

    def _has_entries(self, store: str) -> bool:
        return any(True for _ in self._ranges[store].scan(None, None))

    def namespace(self, store: str) -> Namespace:
        return self._ranges[store] if store in self._ranges else self._in_memory[store].namespace

    def offsets(self) -> dict[str, int | None]:
        found = {name: store.offset for name, store in self._in_memory.items()}
        return found | {name: self._offset(name) for name in self._ranges}

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        commit, self._commit = self._commit, None  # for this call only: if it fails, no other call writes the number
        for name in self._in_memory.keys() & {*batches, *offsets}:
            self._in_memory[name].write(batches.get(name, {}), offsets.get(name))
        persistent = {name: batch for name, batch in batches.items() if name in self._ranges}
        moved = {name: offset for name, offset in offsets.items() if name in self._ranges}
        if not (any(persistent.values()) or moved or (commit is not None and self._unlogged)):
            return
        engine, partition = self._engine, self.task.partition
        # The number of a commit says that all stores without changelog have this commit, so that all must be writable.
        numbered = self._unlogged if commit is not None else ()
        epoch = engine.ready(partition, {*persistent, *moved, *numbered})
        changes = self._range
        self._changed.begin(changes)
        *first, last = self._cut(persistent)
        for step in first:
            engine.write(partition, step, wait=False, epoch=epoch)
            reach("apply.step")
        engine.write(partition, last, self._next_row().after(moved, commit), wait=False, epoch=epoch)
        self._changed.end(changes, leads=commit is not None)
        if self._unlogged:
            self._engine.sync()

    def write_due_ms(self) -> int | None:
        return None

    def write(self) -> None:
        """Do nothing: no commit waits to be written."""

    def note(self, commit: CommitMade) -> None:
        self._commit = commit

    def commit_number(self) -> int | None:
        """Return the number; None before the first commit, too, if an earlier stage has written the stores."""
        return None if self._database is None or self._row.commit == UNKNOWN else self._row.commit

    def _cut(self, batches: Mapping[str, Batch]) -> list[dict[str, Batch]]:
        """Cut a commit into steps, at least one."""
        cut = list(joint_steps({name: batch for name, batch in batches.items() if self._in_steps(name)}))
        last = cut.pop() if cut else {}
        return [*cut, {**last, **{name: batch for name, batch in batches.items() if not self._in_steps(name)}}]

    def _in_steps(self, store: str) -> bool:
        spec = self._specs[store]
        return spec.logged and not kind_of(spec).whole

    def _next_row(self) -> RangeRow:
        row = self._row
        if (row.process_id, row.transactional_id) == self._own and row.births.items() >= self._births.items():
            return row
        return replace(row, births={**row.births, **self._births}, **self._writer)

    def expire(self, store: str, spans: Collection[Span]) -> None:
        if store in self._in_memory:
            self._in_memory[store].expire(spans)
        else:
            self._engine.expire(self.task.partition, store, spans)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        if reason is not None:
            log.error("%s starts empty: %s", StoreId(self.task, store), reason)
        if store in self._in_memory:
            return self._in_memory[store].empty()
        self._births[store] = uuid.uuid4().hex
        with self._engine.noting:
            row = self._next_row().without(store)
            if reason is not None and not self._restorable(store):
                row = replace(row, commit=LOST)
            self._engine.empty(self.task.partition, [store], row)
        self._ranges.pop(store).close()
        return self._open_range(store)

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        """Ingest table files. The files are linked if the engine can do that, and if their keys begin with this range's
        prefix."""
        if store in self._in_memory:
            return self._in_memory[store].ingest(files, prefix)
        self._changed.begin(self._range)  # ends when `apply` writes the offset
        if prefix == prefix_of(self.task.partition) and self._engine.links:
            return self._link(store, files)
        return write_entries(self._write_step, store, files, prefix)

    def _link(self, store: str, files: Sequence[Path]) -> Iterator[None]:
        while not written(partial(self._engine.link, self.task.partition, store, files)):
            yield
        yield

    def _write_step(self, batches: Mapping[str, Batch]) -> None:
        epoch = self._engine.ready(self.task.partition, batches)
        self._engine.write(self.task.partition, batches, wait=False, epoch=epoch)

    def changelog_ids(self) -> Mapping[str, str]:
        return self._row.changelog_ids

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        if self._database is None:
            return
        self._changed.follows(self._range)  # this may be a standby that took over the open stores of an active task
        own = {store: id for store, id in ids.items() if store in self._ranges}
        with self._engine.noting:
            kept = self._next_row().following(own)
            if kept != self._row:
                self._engine.keep(self.task.partition, kept)

    def memory(self) -> EngineMemory:
        """Return the memory of the stores in memory. The database's memory is counted once, for the sub-topology."""
        found: list[EngineMemory] = []
        for store in list(self._in_memory.values()):
            with suppress(StateError):  # closed in the meantime
                found.append(store.engine.memory())
        return summed(found)

    def close(self) -> None:
        """Close the ranges. The database stays open, so that a task that comes back finds its entries."""
        for opened in self._ranges.values():
            opened.close()
        self._ranges = {}
        in_memory, self._in_memory = self._in_memory, {}
        for store in in_memory.values():
            store.engine.close()
        closed, self._closed = self._closed, _nothing
        closed()


def _nothing() -> None: ...
