"""Stores of tasks that tests open, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocks import RocksSettings
from milestones.common.state.spec import StoreSpec
from milestones.m6_state_manager.manager import RangeStateManager

COUNTS, SUMS = StoreSpec("counts", "timestamped-key-value"), StoreSpec("sums")
UNLOGGED = StoreSpec("unlogged", logged=False)
VOLATILE = StoreSpec("volatile", persistent=False)
SMALL = RocksSettings(write_buffer_bytes=64 * 1024, all_write_buffers_bytes=1024 * 1024)
"""Memtables that a test fills."""
TASK, NEIGHBOUR, OTHER = TaskId(0, 1), TaskId(0, 2), TaskId(3, 1)


def found(storage: Any, store: str = "counts") -> dict[bytes, bytes]:
    """All entries of a store."""
    return dict(storage.namespace(store).scan(None, None))


def entries(count: int, value: bytes = b"v") -> dict[bytes, bytes | None]:
    return {b"key-%06d" % number: value for number in range(count)}


def reopened(directory: StateDirectory, **changed: Any) -> RangeStateManager:
    """The manager of the next process."""
    return RangeStateManager(directory, changed.get("engines") or open_engines("rocksdict"), "m6")


def offsets(manager: RangeStateManager) -> Mapping[TaskId, Mapping[str, int]]:
    return manager.closed_offsets()
