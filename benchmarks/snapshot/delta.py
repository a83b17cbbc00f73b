"""How large a delta is beside its base: 16-byte keys, 100-byte values, as an instance's helper process writes them.

*Guarantees*: nothing is left.
*Assumes*: nothing.
"""

from __future__ import annotations

import random
from pathlib import Path

from milestones.common.clock import SystemClock
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Batch
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.spec import StoreSpec
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.database_folder import DATABASE
from milestones.m6_state_manager.snapshots.jobs import CheckpointJob, PartitionJob, SnapshotResult
from milestones.m6_state_manager.snapshots.moments import Moments
from milestones.m6_state_manager.snapshots.process import Maker

TASK, STORE = TaskId(0, 0), StoreSpec("totals")
CHANGED = 100
"""One entry of so many."""


def sizes(directory: Path, entries: int, seed: int) -> tuple[int, int]:
    """Bytes of the base, and of the delta."""
    rng = random.Random(seed)
    manager = RangeStateManager(StateDirectory(directory / "delta", "delta"), open_engines("rocksdict"), "m6")
    try:
        storage = manager.open(TASK, [STORE])
        for first in range(0, entries, 2_000):
            batch: Batch = {b"key-%012d" % number: rng.randbytes(100) for number in range(first, first + 2_000)}
            storage.apply({STORE.name: batch}, {STORE.name: first + 2_000})
        found = [_made(directory / "base", manager)]
        changed: Batch = {
            b"key-%012d" % number: rng.randbytes(100) for number in rng.sample(range(entries), entries // CHANGED)
        }
        storage.apply({STORE.name: changed}, {STORE.name: entries + len(changed) + 2_000})
        found.append(_made(directory / "changed", manager))
        storage.close()
    finally:
        manager.release()
    return found[0], found[1]


def _made(directory: Path, manager: RangeStateManager) -> int:
    """Make one more snapshot; bytes of its own files."""
    (database,), url = manager.databases(), f"file://{directory.parent}/delta-snapshots"
    store = PartitionJob.of(
        TASK, STORE, TopicPartition("delta-changelog", 0), changelog_id=None, usable_until_ms=None, leads=False
    )
    taken, jobs = Moments(manager.changed).checkpoint(database, directory / DATABASE, lambda: [store])
    of, changes = taken[store.place]
    keys = frozenset(changes.keys or ()) if changes.on is not None else frozenset()
    job = CheckpointJob(
        directory, 0, "delta", 1, SystemClock().wall_ms(),
        tuple(PartitionJob(**{**vars(one), "on": changes.on, "keys": keys}) for one in jobs), url,
    )  # fmt: skip
    told: list[SnapshotResult] = []
    Maker(job, SnapshotRepository(url, "delta"), SystemClock()).run(told.append)
    manifest = told[0].manifest
    assert manifest is not None, told[0].why
    manager.changed.published(of, STORE.name, changes, manifest)
    return sum(file.bytes for file in manifest.files if not file.folder)
