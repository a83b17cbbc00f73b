"""Stores in memory that outlive the process that writes them, as files on a disk do.

*Guarantees*: a store that isn't persistent is empty when it is opened. A crashed process writes nothing.
*Assumes*: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from milestones.common.errors import StateLockedError
from milestones.common.records import StoreId, TaskId
from milestones.common.state.engine import Batch, Namespace, Span
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.spec import StoreSpec
from milestones.common.state.store_engine import StoreEngine
from milestones.stepped.process import SteppedProcess


class KeptTaskStorage(MemoryTaskStorage):
    """A task's open stores. `stores`, and `ids` (the ids of the stores' changelogs), stay when the storage is closed.
    `on_close` frees the task's lock."""

    def __init__(
        self,
        task: TaskId,
        specs: Iterable[StoreSpec],
        stores: dict[str, StoreEngine],
        ids: dict[str, str],
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(task, specs)
        self.task, self.ids, self._on_close = task, ids, on_close
        for name, store in self.stores.items():
            stores.setdefault(name, store)
        self.stores = stores

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        if reason is None:
            return super().clear(store)
        opened = self.stores[store] = StoreEngine(self.stores[store].spec, self._engine(StoreId(self.task, store)))
        return opened.namespace

    def changelog_ids(self) -> dict[str, str]:
        return dict(self.ids)

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        self.ids.update(ids)

    def close(self) -> None:
        self._on_close()


class _ProcessStorage(KeptTaskStorage):
    """The open stores of a task in one process. After a crash of the process, each call that changes them raises
    `ProcessCrashed`."""

    def __init__(
        self,
        task: TaskId,
        specs: Iterable[StoreSpec],
        stores: dict[str, StoreEngine],
        ids: dict[str, str],
        on_close: Callable[[], None],
        process: SteppedProcess,
    ) -> None:
        super().__init__(task, specs, stores, ids, on_close)
        self._process = process

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        self._process.check()
        super().apply(batches, offsets)

    def expire(self, store: str, spans: Collection[Span]) -> None:
        self._process.check()
        super().expire(store, spans)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        self._process.check()
        return super().clear(store, reason)

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        self._process.check()
        return super().ingest(store, files, prefix)

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        self._process.check()
        super().keep_changelog_ids(ids)


class KeptStores:
    """The content of the disk: stores and changelog ids, keyed by task."""

    def __init__(self) -> None:
        self.stores: dict[TaskId, dict[str, StoreEngine]] = {}
        self.changelog_ids: dict[TaskId, dict[str, str]] = {}


class SteppedState:
    """The `StateManager` of one process."""

    def __init__(self, disk: KeptStores, process: SteppedProcess) -> None:
        self._disk, self._process = disk, process
        self._open: set[TaskId] = set()

    def open(
        self, task: TaskId, specs: Sequence[StoreSpec], transactional_id: str | None = None, owner: str | None = None
    ) -> KeptTaskStorage:
        """Open the stores of a task. Raises `StateLockedError` if they are open."""
        if task in self._open:
            raise StateLockedError(f"task {task} is open")
        self._open.add(task)
        stores = self._disk.stores.setdefault(task, {})
        for spec in specs:
            if not spec.persistent:
                stores.pop(spec.name, None)
        ids = self._disk.changelog_ids.setdefault(task, {})
        return _ProcessStorage(task, specs, stores, ids, lambda: self._open.discard(task), self._process)

    def closed_offsets(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, Mapping[str, int]]:
        """Return the changelog offsets of closed stores, keyed by task and store. Tasks in `opening` are included."""
        open_now = self._open.difference(opening)
        return {
            task: {name: store.offset for name, store in stores.items() if store.offset is not None}
            for task, stores in self._disk.stores.items()
            if task not in open_now
        }
