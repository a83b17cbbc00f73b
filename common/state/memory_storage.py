"""A task's stores in memory. Tests of this project use them, and users' tests of their topologies.

*Guarantees*: as `TaskStorage`, but nothing is on a disk: content, offsets and changelog ids are lost at `close`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from milestones.common.records import StoreId, TaskId
from milestones.common.state.engine import Engine, EngineMemory, summed
from milestones.common.state.engines.memory_engine import MemoryEngine
from milestones.common.state.spec import StoreSpec
from milestones.common.state.store_engine import EnginePerStore


class MemoryTaskStorage(EnginePerStore):
    """A `TaskStorage` without a disk. Its content is lost at `close`."""

    def __init__(self, task: TaskId, specs: Iterable[StoreSpec]) -> None:
        self.stores = {spec.name: self.store_engine(spec, self._engine(StoreId(task, spec.name))) for spec in specs}

    def _engine(self, id: StoreId) -> Engine:
        return MemoryEngine({id.store: (id,)})

    def changelog_ids(self) -> Mapping[str, str]:
        return {}

    def keep_changelog_ids(self, ids: Mapping[str, str]) -> None:
        """Do nothing, because the ids would be lost with the stores."""

    def memory(self) -> EngineMemory:
        return summed(store.engine.memory() for store in self.stores.values())

    def close(self) -> None:
        for store in self.stores.values():
            store.engine.close()
