"""Stores with a time to live beside a dict, in random lives: records that fail, commits, roll-backs, restorations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from milestones import stores
from milestones.common import serdes
from milestones.common.errors import SerializationError, StateError
from milestones.common.records import TopicPartition
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.stores.expiring_store import AT_ONCE, ExpiringStore
from milestones.common.topology import Processor, StreamsBuilder
from milestones.testing import TopologyTestDriver
from tests.common.task.test_bounded_stores import LOGS, Life

TTL_MS = 50
KEYS = ["", "a", "a\x00", "ab", "b", "\x7f" * 9]


class Expiring(Life):
    """A `Life` whose rows are (value, time) by key."""

    def __init__(self, at_commit: bool = False) -> None:
        self.entries: dict[str, tuple[str, int]] = {}
        self.highest = -1
        self.kept: tuple[dict[str, tuple[str, int]], int] = ({}, -1)
        super().__init__(stores.key_value("s", str, str, ttl=TTL_MS), at_commit)

    def begin(self, storage: MemoryTaskStorage, kept: Mapping[str, int] | None = None) -> None:
        super().begin(storage, kept)
        self.record.partition = TopicPartition("in", 0)

    def at(self, time: int) -> None:
        """A record of this time is in work; -1: none is."""
        self.record.offset, self.record.timestamp = (0, time) if time >= 0 else (-1, 10**6)

    def note(self) -> None:
        if self.record.offset >= 0:
            self.highest = max(self.highest, self.record.timestamp)

    def put(self, key: str, value: str | None) -> None:
        self.store.put(key, value)
        self.note()
        time = self.record.timestamp if self.record.offset >= 0 else max(1, self.highest)
        self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = value, time

    def visible(self) -> dict[str, str]:  # type: ignore[override]
        return {key: value for key, (value, time) in self.entries.items() if self.highest - time <= TTL_MS}

    def commit(self) -> None:
        super().commit()
        self.kept = dict(self.entries), self.highest

    def roll_back(self) -> None:
        super().roll_back()
        self.entries, self.highest = dict(self.kept[0]), self.kept[1]

    def restore(self) -> None:
        self.begin_from_changelog(keeps=True)
        # At least once, the changelog may know of a later time, that of a record which comes again.
        self.highest = max([self.highest, *(output.timestamp for output in self.changelog)])
        self.kept = dict(self.entries), self.highest
        self.committed_memory = self.cells.values()

    def roll_back_logged(self, now: int = 10**12) -> None:
        """By a clock far ahead of the changelog."""
        super().roll_back_logged(now)
        self.entries, self.highest = dict(self.kept[0]), self.kept[1]


def check(life: Expiring, chance: random.Random) -> None:
    store: ExpiringStore[str, str] = life.store
    key = chance.choice(KEYS)
    found = store.get(key)
    life.note()
    assert found == life.visible().get(key) or life.highest == life.record.timestamp
    assert store.get(key) == life.visible().get(key)
    every = sorted(life.visible().items(), key=lambda entry: entry[0].encode())
    assert list(store.all()) == every
    assert list(store.reverse_all()) == every[::-1]
    assert list(store.prefix_scan("a")) == [entry for entry in every if entry[0].startswith("a")]
    assert list(store.prefix_scan("a", str.encode)) == [entry for entry in every if entry[0].startswith("a")]
    low, high = sorted(chance.choices(KEYS, k=2), key=str.encode)
    assert list(store.range(low, high)) == [e for e in every if low.encode() <= e[0].encode() <= high.encode()]


@pytest.mark.parametrize("seed", range(30))
@LOGS
def test_a_store_with_a_time_to_live_does_what_a_dict_with_times_does(at_commit: bool, seed: int) -> None:
    chance, now = random.Random(seed), 100
    life = Expiring(at_commit)
    for _ in range(80):
        before = dict(life.entries), life.highest
        now += chance.choice([0, 1, 5, 20, 90])
        life.at(chance.choice([now, now, now - chance.choice([0, 30, 80]), -1]))
        for _ in range(chance.randrange(3)):
            life.put(chance.choice(KEYS), chance.choice([None, "", "v", "w" * 600]))
        check(life, chance)
        if chance.random() < 0.2:
            life.scope.drop()
            life.stores.forget()
            life.entries, life.highest = before
        else:
            life.done()
        life.at(-1)
        check(life, chance)
        for happens, share in ((life.commit, 0.25), (life.roll_back, 0.07), (life.restore, 0.05), (life.go_on, 0.05)):
            if chance.random() < share:
                happens()
                break
        life.at(-1)
        check(life, chance)


@pytest.mark.parametrize("seed", range(20))
@LOGS
def test_a_changelog_that_keeps_rolled_back_writes_restores_the_committed_entries(at_commit: bool, seed: int) -> None:
    chance, now = random.Random(seed), 100
    life = Expiring(at_commit)
    for _ in range(20):
        for _ in range(chance.randrange(4)):
            now += chance.choice([0, 1, 5])
            life.at(now)
            life.put(chance.choice(KEYS), chance.choice([None, "v", "w"]))
            life.done()
        life.at(-1)
        (life.commit if chance.random() < 0.5 else life.roll_back_logged)()
    life.roll_back_logged()
    life.commit()
    life.restore()  # its highest time is that of a record, if of one that was rolled back
    assert life.highest <= now
    assert dict(life.store.all()) == life.visible()


def test_what_is_over_is_deleted_from_store_and_changelog_by_the_writes_that_follow_a_commit() -> None:
    life = Expiring()
    life.at(100)
    for number in range(AT_ONCE + 5):
        life.store.put(f"{number}", "v")
    life.at(100 + TTL_MS + 1)
    assert list(life.store.all()) == []
    life.store.put("new", "u")
    life.done()
    assert all(output.value for output in life.changelog), "a record that comes again may have to see it"
    life.commit()
    life.store.put("new", "v")
    life.done()
    deleted = [output.key for output in life.changelog if output.value is None]
    assert len(deleted) == AT_ONCE
    life.store.put("new", "w")
    life.done()
    life.commit()
    assert len([output for output in life.changelog if output.value is None]) == AT_ONCE + 5
    assert len(list(life.storage.namespace("s").scan(None, None))) == 3, "the entry, its place in time, the time"
    assert life.store.approximate_num_entries() == 1


def test_an_entry_lives_for_the_whole_time_to_live_and_a_read_of_later_ends_it_for_good() -> None:
    life = Expiring()
    life.at(100)
    life.store.put("k", "v")
    life.at(100 + TTL_MS)
    assert life.store.get("k") == "v"
    life.at(100 + TTL_MS + 1)
    assert life.store.get("k") is None
    life.at(100)
    assert life.store.get("k") is None, "the store's time doesn't go back"


def test_what_cannot_be_a_key_or_a_value_is_said_and_changes_nothing() -> None:
    life = Expiring()
    life.at(100)
    for call in (
        lambda: life.store.put("k", 5), lambda: life.store.put(None, "v"), lambda: life.store.get(None),
    ):  # fmt: skip
        with pytest.raises(SerializationError):
            call()
    assert list(life.store.all()) == []
    store = life.store
    life.stores.close_to_user_code()
    for closed in (store.all, lambda: store.get("k"), lambda: store.put("k", "v")):
        with pytest.raises(StateError, match="isn't open"):
            closed()


class Seen(Processor):
    """Passes the first record of a key within the time to live."""

    def process(self, record: Any) -> None:
        seen = self.context.get_state_store("seen")
        if seen.get(record.key) is None:
            self.context.forward(record)
        seen.put(record.key, 1)


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "disk"])
def test_a_topology_forgets_what_it_has_seen(persistent: bool) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", str, int, ttl=TTL_MS))
    builder.stream("in", key=str, value=str).process(Seen, "seen").to("out", key=serdes.STRING, value=serdes.STRING)
    with TopologyTestDriver(builder.build(), persistent=persistent) as driver:
        topic = driver.create_input_topic("in", key=str, value=str)
        for time in (100, 120, 170, 221, 250):
            topic.pipe("k", f"{time}", timestamp=time)
        assert driver.create_output_topic("out", key=str, value=str).read_values() == ["100", "221"]
