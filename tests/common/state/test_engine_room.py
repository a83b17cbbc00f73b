"""What has expired gives back its room on the disk, though nothing else has RocksDB look at it again."""

from __future__ import annotations

import os
from pathlib import Path

from milestones.common.records import StoreId, TaskId
from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines

ENTRY_BYTES, ROUND_BYTES, ROUNDS, KEPT = 4_096, 16 * MIB, 16, 4
"""Rounds of writes, of which only the newest ones are kept."""


def size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def test_a_store_of_which_the_oldest_quarter_expires_again_and_again_stays_below_twice_what_is_kept(
    tmp_path: Path,
) -> None:
    engine = RocksDictEngines(RocksSettings()).open(tmp_path, {"store": (StoreId(TaskId(0, 0), "store"),)})
    store = engine.open("store")
    largest = 0
    for number in range(ROUNDS):
        entries = range(ROUND_BYTES // ENTRY_BYTES)
        for first in range(0, len(entries), 512):
            batch = {b"%04d-%06d" % (number, entry): os.urandom(ENTRY_BYTES) for entry in entries[first : first + 512]}
            engine.apply({"store": dict(batch)}, {"store": number})
        engine.expire("store", [(b"", b"%04d" % max(0, number - KEPT + 1))])
        largest = max(largest, size(tmp_path))
    assert len(list(store.scan(None, None))) == KEPT * len(entries)
    engine.close()
    assert largest < 2 * KEPT * ROUND_BYTES
