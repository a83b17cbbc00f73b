"""A task's stores in memory. Tests of this project use them, and users' tests of their topologies.

*Guarantees*: as `TaskStorage`, but nothing is on a disk: content, offsets and changelog ids are lost at `close`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from milestones.common.records import StoreId, TaskId
from milestones.common.state.engine import Batch, Engine, Namespace, Span
from milestones.common.state.engines.memory_engine import MemoryEngine
from milestones.common.state.spec import StoreSpec
from milestones.common.state.storage import CommitMade
from milestones.common.state.store_engine import StoreEngine, apply_to_each


class MemoryTaskStorage:
    """A `TaskStorage` without a disk. Its content is lost at `close`."""

    store_engine: ClassVar[type[StoreEngine]] = StoreEngine
    stores: dict[str, StoreEngine]

    def __init__(self, task: TaskId, specs: Iterable[StoreSpec]) -> None:
        self.stores = {spec.name: self.store_engine(spec, self._engine(StoreId(task, spec.name))) for spec in specs}

    def _engine(self, id: StoreId) -> Engine:
        return MemoryEngine({id.store: (id,)})

    def namespace(self, store: str) -> Namespace:
        return self.stores[store].namespace

    def offsets(self) -> dict[str, int | None]:
        return {name: store.offset for name, store in self.stores.items()}

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        apply_to_each(self.stores, batches, offsets)

    def write_due_ms(self) -> int | None:
        return None

    def write(self) -> None:
        """Do nothing, because commits never wait in this storage."""

    def note(self, commit: CommitMade) -> None:
        """Do nothing, because this storage keeps no commit numbers."""

    def commit_number(self) -> int | None:
        return None

    def expire(self, store: str, spans: Collection[Span]) -> None:
        self.stores[store].expire(spans)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        return self.stores[store].empty()

    def ingest(self, store: str, files: Sequence[Path], prefix: bytes = b"") -> Iterator[None]:
        return self.stores[store].ingest(files, prefix)

    def changelog_ids(self) -> Mapping[str, str]:
        return {}

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Do nothing, because the ids would be lost with the stores."""

    def memory_bytes(self) -> int:
        return sum(store.engine.memory_bytes() for store in self.stores.values())

    def close(self) -> None:
        for store in self.stores.values():
            store.engine.close()
