"""The open global stores of an instance. As a task's stores, each has a folder and an engine. In addition, each has its
positions: one offset for every partition of its topic.

*Guarantees*: a batch's entries and positions are written in one atomic step. So after a crash a store has the content
and the positions of the same batch. The other guarantees are those of `task_storage.py`.
*Assumes*: as `task_storage.py`. Any thread may read a namespace during the writes of the thread that has the storage.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from milestones.common.records import GLOBAL
from milestones.common.state.engine import Batch, Engine, Namespace
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.spec import StoreSpec
from milestones.common.state.store_engine import EnginePerStore, StoreEngine
from milestones.common.state.task_storage import LocalTaskStorage

_POSITIONS: Final = " positions"
"""The end of the name of the namespace with a store's positions. No store's name contains a space."""

_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


class GlobalStoreEngine(StoreEngine):
    """A global store's engine. `positions`: the offset up to which (exclusive) each partition of the topic is in the
    store. `offset`: the sum of all positions."""

    def __init__(self, spec: StoreSpec, engine: Engine) -> None:
        self._positions_name = spec.name + _POSITIONS
        super().__init__(spec, engine)
        self._open_positions()

    def _open_positions(self) -> None:
        written = self.engine.open(self._positions_name).scan(None, None)
        self.positions = {_PARTITION.unpack(key)[0]: _OFFSET.unpack(value)[0] for key, value in written}

    def write_at(self, batch: Batch, positions: Mapping[int, int]) -> None:
        """Write entries and positions in one atomic step. `positions` is keyed by partition of the topic."""
        known = {**self.positions, **positions}
        if not batch and known == self.positions:
            return
        moved = {_PARTITION.pack(at): _OFFSET.pack(offset) for at, offset in positions.items()}
        name, total = self.spec.name, sum(known.values())
        self.engine.apply({name: batch, self._positions_name: moved}, {name: total})
        self.positions, self.offset = known, total

    def empty(self) -> Namespace:
        """Drop positions and entries, and return the new, empty namespace.

        The positions are dropped first: after a crash in between, the store must not have positions without their
        entries."""
        self.engine.drop(self._positions_name)
        emptied = super().empty()
        self._open_positions()
        return emptied


class GlobalEnginePerStore(EnginePerStore):
    """The methods of a `storage.GlobalStorage` in which each store has an engine of its own."""

    store_engine = GlobalStoreEngine

    def positions(self, store: str) -> Mapping[int, int]:
        return self._global(store).positions

    def write_at(self, batches: Mapping[str, Batch], positions: Mapping[str, Mapping[int, int]]) -> None:
        for store, at in positions.items():
            self._global(store).write_at(batches.get(store, {}), at)

    def _global(self, store: str) -> GlobalStoreEngine:
        engine = self.stores[store]
        assert isinstance(engine, GlobalStoreEngine)  # by `store_engine`
        return engine


class LocalGlobalStorage(GlobalEnginePerStore, LocalTaskStorage):
    """A `storage.GlobalStorage` on disk. Stores that aren't persistent are in memory."""


class MemoryGlobalStorage(GlobalEnginePerStore, MemoryTaskStorage):
    """A `storage.GlobalStorage` in memory."""

    def __init__(self, specs: tuple[StoreSpec, ...]) -> None:
        super().__init__(GLOBAL, specs)
