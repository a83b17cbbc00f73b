"""What stores remember: one bound for all of them, the least recently used first."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from milestones.common import serdes
from milestones.common.records import TaskId
from milestones.common.state.cells import Cells
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import ABSENT, StoreLayers
from milestones.common.state.read_cache import ENTRY_OVERHEAD_BYTES, ReadCache, ReadCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import TimestampedKeyValueStore
from milestones.common.state.stores.rows import StoreParts

SPEC = StoreSpec("store")
ROW = ENTRY_OVERHEAD_BYTES + 100
"""Bytes of an entry with a key of ten bytes and a value of ninety."""


def keep(cache: ReadCache, *numbers: int) -> None:
    for number in numbers:
        cache.keep(b"%010d" % number, number, 90)


def look(cache: ReadCache, number: int) -> object:
    """As a store looks."""
    key = b"%010d" % number
    value = cache.values.get(key, ABSENT)
    return cache.find(key) if value is ABSENT else value


def test_what_fits_stays() -> None:
    cache = ReadCache(ReadCaches(100 * ROW))
    keep(cache, *range(100))
    assert [look(cache, number) for number in range(100)] == list(range(100))


def test_what_was_used_least_recently_goes_first() -> None:
    cache = ReadCache(ReadCaches(100 * ROW))
    for number in range(1_000):
        keep(cache, number)
        assert look(cache, 0) == 0, "the hot key stays"
        assert look(cache, number) == number
    assert look(cache, 500) is ABSENT


def test_absence_is_kept_and_becomes_a_value() -> None:
    caches = ReadCaches(10_000)
    cache = ReadCache(caches)
    cache.keep(b"key", None, 0)
    before = cache.memory_bytes()
    cache.keep(b"key", "value", 5)
    assert (cache.values, cache.memory_bytes()) == ({b"key": "value"}, before + 5)


def test_no_bytes_keep_nothing() -> None:
    cache = ReadCache(ReadCaches(0))
    keep(cache, *range(10))
    assert cache.memory_bytes() == 0
    assert all(look(cache, number) is ABSENT for number in range(10))


def test_a_key_that_is_forgotten_is_forgotten_in_both_generations() -> None:
    cache = ReadCache(ReadCaches(10 * ROW))
    keep(cache, *range(30))
    for number in range(30):
        cache.forget(b"%010d" % number)
    assert all(look(cache, number) is ABSENT for number in range(30))


def test_fifty_stores_share_one_bound_whatever_the_order_in_which_they_come() -> None:
    caches, rng = ReadCaches(1_000_000), random.Random(1)
    stores: list[ReadCache] = []
    for number in range(50):
        stores.append(ReadCache(caches))
        for _ in range(2_000):
            keep(rng.choice(stores), rng.randrange(100_000))
        assert caches.memory_bytes() <= caches.max_bytes, f"{number + 1} stores"
    for store in stores[1:]:
        store.leave()
    keep(stores[0], *range(2_000))
    assert caches.max_bytes // 2 < caches.memory_bytes() <= caches.max_bytes, "the last one has all for itself"


def test_stores_that_were_thrown_away_without_leaving_take_no_share() -> None:
    caches = ReadCaches(1_000)
    for _ in range(50):
        ReadCache(caches)
    last = ReadCache(caches)
    assert caches.share == caches.max_bytes
    last.leave()


@given(st.lists(st.tuples(st.sampled_from(["keep", "look", "forget", "join"]), st.integers(0, 20)), max_size=80))
def test_what_is_found_is_what_was_kept_last_and_the_bound_holds(steps: list[tuple[str, int]]) -> None:
    caches = ReadCaches(6 * ROW)
    cache, newest, others = ReadCache(caches), dict[int, object](), list[ReadCache]()
    for version, (step, number) in enumerate(steps):
        key = b"%010d" % number
        if step == "keep":
            cache.keep(key, version, 90)
            newest[number] = version
        elif step == "forget":
            cache.forget(key)
            newest.pop(number, None)
        elif step == "join" and len(others) < 3:
            others.append(ReadCache(caches))
        else:
            assert look(cache, number) in (newest.get(number, ABSENT), ABSENT)
        assert caches.memory_bytes() <= caches.max_bytes


def test_the_bytes_that_are_counted_are_about_those_that_are_taken() -> None:
    caches = ReadCaches(1 << 30)
    engine = MemoryEngines().open(Path())
    cache = ReadCache(caches)
    layers = StoreLayers(engine.open("store"), [], cache)

    class Record:
        timestamp = 1

    work, text = Record(), serdes.STRING
    parts = StoreParts(TaskId(0, 0), layers, cache, text, text, "log", lambda *_: None, work, SPEC, Cells([]))
    store = TimestampedKeyValueStore(parts)
    store.open()
    rows = {b"key-%08d" % n: (n).to_bytes(8, "big") + b"v" * 200 for n in range(20_000)}
    engine.apply({"store": rows}, {})
    tracemalloc.start()
    for number in range(20_000):
        store.get_raw(f"key-{number:08d}")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 * taken < caches.memory_bytes() < 1.5 * taken
