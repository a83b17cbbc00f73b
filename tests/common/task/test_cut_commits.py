"""A crash in the middle of the write of a commit: whatever part of it is on disk, the replay makes the store whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from milestones.common.errors import StateError
from milestones.common.state import steps
from milestones.common.state.memory_storage import MemoryTaskStorage
from tests.common.task.test_bounded_stores import Life, Message
from tests.common.task.test_expiring_stores import Expiring
from tests.common.task.test_expiring_stores import check as check_expiring
from tests.common.task.test_lru_stores import Lru
from tests.common.task.test_lru_stores import spec_of as lru
from tests.common.task.test_versioned_stores import Versioned
from tests.common.task.test_versioned_stores import check as check_versioned
from tests.common.task.test_versioned_stores import spec_of as versioned

KEYS = ["", "a", "a\x00", "ab", "b", "c"]
LIVES = range(60)


def crash_in_commit(life: Life, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write some steps of a commit that Kafka has; then go on in another process, which replays the changelog."""
    monkeypatch.setattr(steps, "STEP_ENTRIES", chance.randrange(1, 4))
    storage = life.storage
    engine: Any = storage.stores["s"].engine
    apply, left = engine.apply, chance.randrange(6)

    def failing(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise StateError("the power is gone")
        left -= 1
        apply(*arguments)

    engine.apply = failing
    life.stores.freeze()
    with suppress(StateError):
        life.stores.applied({"s": len(life.changelog)})
    del engine.apply
    life.logged = len(life.changelog)
    begin_again(life, storage)


def begin_again(life: Life, storage: MemoryTaskStorage) -> None:
    life.stores.abort(logged=False)
    life.stores.release()
    life.begin(storage)
    at = storage.offsets()["s"] or 0
    life.stores.restore("s", map(Message, life.changelog[at:]), len(life.changelog))
    life.open_to_user_code()
    life.committed_memory = {}


@pytest.mark.parametrize("seed", LIVES)
def test_a_versioned_store_has_each_version_after_a_crash_in_a_commit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    life, now = Versioned(versioned()), 100
    for _ in range(8):
        for _ in range(chance.randrange(8)):
            now += chance.choice([0, 3, 40])
            key, value = chance.choice(KEYS), chance.choice([None, "v", "w"])
            time = max(1, now - chance.choice([0, 0, 20, 90]))
            assert life.store.put(key, value, time) == life.model.put(key, value, time)
            life.done()
        if chance.random() < 0.5:
            life.commit()
        else:
            crash_in_commit(life, chance, monkeypatch)
            life.committed_model = life.model.copy()
        for _ in range(10):
            check_versioned(life, chance)


@pytest.mark.parametrize("seed", LIVES)
def test_a_store_with_a_time_to_live_has_each_entry_after_a_crash_in_a_commit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    life, now = Expiring(), 100
    for _ in range(10):
        for _ in range(chance.randrange(8)):
            now += chance.choice([0, 5, 20])
            life.at(max(1, now - chance.choice([0, 0, 30])))
            life.put(chance.choice(KEYS), chance.choice([None, "v", "w"]))
            life.done()
        life.at(-1)
        if chance.random() < 0.5:
            life.commit()
        else:
            crash_in_commit(life, chance, monkeypatch)
            life.kept = dict(life.entries), life.highest
        check_expiring(life, chance)


@pytest.mark.parametrize("seed", LIVES)
def test_an_lru_store_has_each_entry_once_after_a_crash_in_a_commit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    life = Lru(lru(3))
    for _ in range(10):
        for _ in range(chance.randrange(8)):
            use: Callable[[str], None] = life.get if chance.random() < 0.5 else lambda key: life.put(key, "v")
            use(chance.choice(KEYS))
            life.done()
        if chance.random() < 0.5:
            life.commit()
            continue
        crash_in_commit(life, chance, monkeypatch)
        assert dict(life.store.all()) == dict(life.entries)
        assert life.store.approximate_num_entries() == len(life.entries)
        life.entries.clear()
        for new in ("x", "y", "z"):
            life.put(new, "v")  # makes room for each of them, and for nothing else
            life.done()
        assert [key for key, _ in life.store.all()] == ["x", "y", "z"]
        life.entries.clear()
        life.entries.update({"x": "v", "y": "v", "z": "v"})
        life.commit()
