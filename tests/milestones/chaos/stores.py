"""Stores in memory that fail when a test says so, and know which of them are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from milestones.common.errors import StateCorruptError, StateError, StateLockedError
from milestones.common.records import StoreId, TaskId
from milestones.common.state.engine import Batch, Namespace
from milestones.common.state.spec import StoreSpec
from milestones.common.task.task import TaskStorage
from milestones.shared_parts.state import TaskOwnedState
from tests.milestones.chaos.windows import AGAIN, PARTITIONS
from tests.milestones.fakes import FakeState, FakeTaskStorage, World

DISK_FULL = StateError("disk full")


class ChaosState(FakeState):
    """`broken`: by task, the call of its stores that fails ("open", "write", "corrupt", "close"); `live`: storages that
    are open; `orphans`: those of them that no polling thread waits for any more, `orphaned` says it of the next one;
    `wrong`: what was done to a storage that mustn't be; `meanwhile`: what other threads do during a call."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.broken: dict[TaskId, str] = {}
        self.live: dict[ChaosStorage, TaskId] = {}
        self.orphans: set[ChaosStorage] = set()
        self.orphaned: Callable[[], bool] = lambda: False
        self.wrong: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.closes = self.failed_writes = self.refused = 0

    @property
    def _owned(self) -> TaskOwnedState:
        return self.ownership(self._world.context, lambda topic: PARTITIONS if topic == AGAIN else 1)

    def open(
        self, id: TaskId, specs: Iterable[StoreSpec], transactional_id: str | None = None, owner: str | None = None
    ) -> TaskStorage:
        self.meanwhile()
        if self.broken.get(id) == "open":
            raise DISK_FULL
        if id in self.locked | self.held:
            raise StateLockedError(f"task {id} is held by a test")
        self.held.add(id)
        self.opens += 1
        storage = ChaosStorage(
            self, id, specs, self.stores.setdefault(id, {}), self.changelog_ids.setdefault(id, {}), lambda: None
        )
        storage.busy, storage.writes = self.busy, self.writes
        self.live[storage] = id
        if self.orphaned():
            self.orphans.add(storage)
        self.meanwhile()
        return storage


class ChaosStorage(FakeTaskStorage):
    """The open stores of one task."""

    def __init__(self, state: ChaosState, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._state = state

    __hash__ = object.__hash__

    def _call(self, name: str) -> None:
        """A call begins; other threads do something in its midst."""
        if self not in self._state.live:
            self._state.wrong.append(f"{name} of a closed store of {self.task}")
        self._state.meanwhile()

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        self._call("write")
        match self._state.broken.get(self.task):
            case "write":
                self._state.failed_writes += 1
                raise DISK_FULL
            case "corrupt":
                del self._state.broken[self.task]
                self._state.failed_writes += 1
                raise StateCorruptError("damaged", [StoreId(self.task, store) for store in self.stores])
        self._state.refused += self.busy[self.task] > 0
        super().apply(batches, offsets)

    def clear(self, store: str, reason: object | None = None) -> Namespace:
        self._call("clear")
        return super().clear(store, reason)

    def close(self) -> None:
        self._call("close")
        self._state.closes += 1
        self._state.closed[self.task] = sum(offset or 0 for offset in self.offsets().values())
        self._state.live.pop(self, None)
        self._state.held.discard(self.task)
        if self._state.broken.get(self.task) == "close":
            raise DISK_FULL
