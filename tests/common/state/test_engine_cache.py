"""The block cache keeps what each read needs of a large file, also where the store's entries are small."""

from __future__ import annotations

import random
from pathlib import Path
from typing import cast

import pytest

from milestones.common.state.engines.rocks import MIB, RocksSettings
from milestones.common.state.engines.rocks_namespace import RocksNamespace
from tests.common.state.conftest import ON_DISK, engines_named

ENTRIES, STEP, READS = 600_000, 5_000, 500
SMALL = RocksSettings(block_cache_bytes=8 * MIB)
BLOCKS_BYTES = READS * 2 * 4_096
"""What so many reads take from a file whose filter and index are in the cache."""


def bytes_read() -> int:
    """What this process has asked files for since it began."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("name", ON_DISK)
def test_in_a_full_cache_the_filter_of_a_large_file_is_kept(name: str, tmp_path: Path) -> None:
    engine = engines_named(name, SMALL).open(tmp_path / "engine")
    store = cast("RocksNamespace", engine.open("store"))
    numbers = random.Random(name)
    for first in range(ENTRIES // STEP):  # each over all keys, so that the compaction makes one file of them
        entries = range(first, ENTRIES, ENTRIES // STEP)
        engine.apply({"store": {b"%08d" % number: numbers.randbytes(16) for number in entries}}, {"store": first})
    engine.compact("store", (b"0", b"9"))
    read = list(map(store.get, (b"%08d" % number for number in range(0, ENTRIES, 50))))
    assert None not in read
    before = bytes_read()
    for _ in range(READS):
        store.get(b"%08d" % numbers.randrange(ENTRIES))
    assert bytes_read() - before < BLOCKS_BYTES
    engine.close()


def test_a_small_cache_is_not_cut_and_each_part_of_a_large_one_has_room_for_any_filter() -> None:
    bits = [RocksSettings(block_cache_bytes=size * MIB).block_cache_shard_bits for size in (1, 8, 16, 64, 1_024)]
    assert bits == [0, 0, 1, 3, 7]
