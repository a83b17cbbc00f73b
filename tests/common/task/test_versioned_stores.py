"""Versioned stores beside a dict of all versions, in random lives: records that fail, commits, roll-backs of both
guarantees, restorations, other processes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import (
    SerializationError,
    StateCorruptError,
    StateError,
    TaskCorruptedError,
    TopologyError,
)
from milestones.common.records import Output
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.kinds import changelog_settings
from milestones.common.state.stores.versioned_store import VersionedStore, VersionedValue
from milestones.common.state.stores.versions import NOT_PUT, STILL
from tests.common.task.harness import Harness, processing
from tests.common.task.storemodel.histories import History
from tests.common.task.test_bounded_stores import LOGS, Life, Message
from tests.common.task.test_task_commits import IN

HISTORY_MS, SEGMENT_MS = 100, 30
KEYS = ["", "a", "a\x00", "ab", "b", "\x7f" * 9]


def spec_of(**more: Any) -> StoreSpec:
    chosen = {"retention_ms": HISTORY_MS, "segment_interval_ms": SEGMENT_MS, **more}
    return StoreSpec("s", "versioned", key_serde=serdes.STRING, value_serde=serdes.STRING, **chosen)


class Versioned(Life):
    """A `Life` with a `History`."""

    def __init__(self, spec: StoreSpec, at_commit: bool = False) -> None:
        self.model, self.committed_model = History[str](HISTORY_MS), History[str](HISTORY_MS)
        super().__init__(spec, at_commit)

    def commit(self) -> None:
        super().commit()
        self.committed_model = self.model.copy()

    def roll_back(self) -> None:
        super().roll_back()
        self.model = self.committed_model.copy()

    def roll_back_logged(self, now: int = 5) -> None:
        super().roll_back_logged(now)
        self.model = self.committed_model.copy()

    def restore(self) -> None:
        self.begin_from_changelog()
        self.committed_memory = {}


def check(life: Versioned, chance: random.Random) -> None:
    store: VersionedStore = life.store
    model, key = life.model, chance.choice(KEYS)
    assert store.get(key) == model.at(key, None)
    for _ in range(4):
        time = max(0, model.observed - chance.randrange(2 * HISTORY_MS) + 10)
        assert store.get(key, time) == model.at(key, time)
    first = max(0, model.observed - chance.randrange(HISTORY_MS + 1))
    last = first + chance.randrange(HISTORY_MS)
    assert list(store.versions(key, first, last)) == model.between(key, first, last)
    latest = {key: value for key in model.all_keys() if (value := model.at(key, None)) is not None}
    assert list(store.all()) == sorted(latest.items(), key=lambda row: row[0].encode())


@pytest.mark.parametrize("seed", range(40))
@LOGS
def test_a_versioned_store_does_what_a_dict_of_all_versions_does(at_commit: bool, seed: int) -> None:
    chance, now = random.Random(seed), 1
    life = Versioned(spec_of(segment_interval_ms=chance.choice([1, 7, 30, 500])), at_commit)
    for _ in range(60):
        before = life.model.copy()
        for _ in range(chance.randrange(4)):
            now += chance.choice([0, 1, 1, 5, 20, 150])
            time = max(1, now - chance.choice([0, 0, 0, 3, 40, 99, 180]))
            key, value = chance.choice(KEYS), chance.choice([None, "", "v", "w" * 600])
            former = None if life.model.too_old(time) else life.model.at(key, time)
            if value is None and chance.random() < 0.5:
                assert life.store.delete(key, time) == former
                life.model.put(key, None, time)
            else:
                assert life.store.put(key, value, time) == life.model.put(key, value, time)
        check(life, chance)
        if chance.random() < 0.2:
            life.scope.drop()
            life.stores.forget()
            life.model = before
        else:
            life.done()
        check(life, chance)
        for happens, share in ((life.commit, 0.25), (life.roll_back, 0.07), (life.restore, 0.05), (life.go_on, 0.05)):
            if chance.random() < share:
                happens()
                break
        check(life, chance)


def batches(chance: random.Random) -> list[list[tuple[str, str | None, int]]]:
    """What is put between one commit and the next."""
    now, made = 1, []
    for number in range(12):
        made.append([])
        for _ in range(chance.randrange(5)):
            now += chance.choice([0, 1, 5])
            time = max(1, now - chance.choice([0, 0, 3, 20]))
            made[-1].append((chance.choice("ab"), chance.choice([None, "v", f"{number}"]), time))
    return made


def put_all(life: Versioned, batch: list[tuple[str, str | None, int]]) -> None:
    for key, value, time in batch:
        life.model.put(key, value, time)
        life.store.put(key, value, time)
        life.done()


def values(life: Versioned) -> dict[tuple[str, int], Any]:
    """What holds at each time of the history."""
    times = range(max(0, life.model.observed - HISTORY_MS), life.model.observed + 2)
    return {(key, time): found.value for key in "ab" for time in times if (found := life.store.get(key, time))}


@pytest.mark.parametrize("seed", range(40))
@LOGS
def test_a_changelog_that_keeps_rolled_back_versions_restores_the_values_that_held(at_commit: bool, seed: int) -> None:
    """At least once. The times from which on values hold may be others, the values at each time aren't."""
    chance = random.Random(seed)
    life = Versioned(spec_of(), at_commit)
    *before, last = batches(chance)
    for batch in before:
        put_all(life, batch)
        life.commit()
    expected = values(life)
    for _ in range(chance.randrange(1, 3)):
        put_all(life, [(key, value, time) for key, value, time in last if time <= life.model.observed])
        life.roll_back_logged()
    assert values(life) == expected
    life.commit()
    life.restore()
    assert values(life) == expected


@pytest.mark.parametrize("seed", range(40))
@LOGS
def test_a_changelog_of_roll_backs_restores_all_versions_when_the_same_records_come_again(
    at_commit: bool, seed: int
) -> None:
    chance = random.Random(seed)
    life = Versioned(spec_of(), at_commit)
    for batch in batches(chance):
        while chance.random() < 0.4:
            put_all(life, batch[: chance.randrange(len(batch) + 1)])
            life.roll_back_logged()
        put_all(life, batch)
        life.commit()
    expected = values(life)
    life.restore()
    assert values(life) == expected


@pytest.mark.parametrize("error", [StateCorruptError("a block is damaged"), TaskCorruptedError("it was replaced", [])])
def test_a_roll_back_does_not_fail_of_a_store_that_cannot_be_read_and_logs_it_again_once_it_can(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(context: Any, record: Any) -> None:
        context.get_state_store("s").put(record.key, record.value, record.timestamp)

    h = Harness(processing(put, [spec_of()])).start()
    h.pipe(("a", "1", 5))
    h.commit()
    h.outputs()
    h.pipe(("a", None, 6))
    assert h.outputs() == [("app-s-changelog", b"a", None, 6)]

    def unreadable(key: bytes) -> bytes | None:
        raise error

    namespace = h.state.namespace("s")
    with monkeypatch.context() as damaged:
        damaged.setattr(namespace, "get", unreadable)
        h.task.roll_back()
    h.task.start({IN: 1}, {})
    h.go_on()
    again = {(time, value) for _, key, value, time in h.outputs() if key == b"a"}
    assert again == {(5, b"1"), (6, b"1")}, "what holds at the times of both versions"
    assert h.task.store("s").get("a").value == "1"


def test_old_versions_leave_the_disk_with_their_segment_and_the_latest_stays(tmp_path: Path) -> None:
    life = Versioned(spec_of())
    life.store.put("once", "v", 1)
    for time in range(1, 3_000, 10):
        life.store.put("k", "v", time)
        life.done()
        life.commit()
        there = len(list(life.storage.namespace("s").scan(None, None)))
        assert there <= 3 + (HISTORY_MS + 2 * SEGMENT_MS) // 10, "two latest, the time, the history and its segments"
    assert life.store.get("once") == ValueAndTimestamp("v", 1)
    assert life.store.get("once", 50) == ValueAndTimestamp("v", 1), "the latest is never too old"
    assert life.store.get("k", 50) is None


def test_a_versioned_store_on_disk_is_the_same_after_it_was_closed(tmp_path: Path) -> None:
    layout_spec = spec_of()
    life = Versioned(layout_spec)
    for time, value in ((10, "a"), (20, "b"), (15, "between"), (30, None)):
        life.store.put("k", value, time)
    life.done()
    life.commit()
    engine = RocksDictEngines().open(tmp_path)
    engine.open("s")
    engine.apply({"s": dict(life.storage.namespace("s").scan(None, None))}, {})
    engine.close()
    engine = RocksDictEngines().open(tmp_path)
    rows = dict(engine.open("s").scan(None, None))
    assert rows == dict(life.storage.namespace("s").scan(None, None))
    engine.close()


def test_a_put_that_is_older_than_the_history_is_refused_and_logged_as_in_kafka_streams() -> None:
    life = Versioned(spec_of())
    assert life.store.put("k", "new", 1_000) == STILL
    assert life.store.put("k", "old", 1_000 - HISTORY_MS - 1) == NOT_PUT
    assert life.store.put("k", "just", 1_000 - HISTORY_MS) == 1_000
    life.done()
    assert [(output.value, output.timestamp) for output in life.changelog] == [
        (b"new", 1_000), (b"old", 899), (b"just", 900),
    ]  # fmt: skip
    assert list(life.store.versions("k")) == [VersionedValue("just", 900, 1_000), VersionedValue("new", 1_000, None)]


def test_the_changelog_has_the_plain_key_and_value_at_the_time_of_the_version() -> None:
    life = Versioned(spec_of())
    life.record.timestamp = 77
    life.store.put("k", "v", 5)
    life.store.delete("k", 6)
    life.done()
    assert [output[2:5] for output in life.changelog] == [(b"k", b"v", 5), (b"k", None, 6)]


def test_brokers_compact_no_version_away_by_their_clock_unless_the_user_says_so() -> None:
    settings = changelog_settings(spec_of(), {"min.compaction.lag.ms": "7"})
    assert settings["cleanup.policy"] == "compact"
    assert settings["min.compaction.lag.ms"] == settings["max.compaction.lag.ms"] == str(2**63 - 1)
    own = spec_of(changelog_config={"min.compaction.lag.ms": "7"})
    assert changelog_settings(own, {})["min.compaction.lag.ms"] == "7"


@pytest.mark.parametrize(
    ("history_ms", "segment_ms"),
    [(0, 2_000), (3_000, 2_000), (60_000, 20_000), (60_001, 20_000), (300_000, 60_000), (3_600_000, 300_000),
     (86_400_000, 3_600_000)],
)  # fmt: skip
def test_a_history_is_cut_into_segments_as_in_kafka_streams(history_ms: int, segment_ms: int) -> None:
    assert StoreSpec("s", "versioned", retention_ms=history_ms).segment_ms == segment_ms


def test_a_versioned_store_says_what_it_refuses() -> None:
    with pytest.raises(TopologyError, match="neither can be negative"):
        spec_of(retention_ms=-1)
    with pytest.raises(TopologyError, match="can't be cached"):
        spec_of(cached=True)
    life = Versioned(spec_of())
    for call in (lambda: life.store.put(None, "v", 1), lambda: life.store.get(None), lambda: life.store.get(None, 1)):
        with pytest.raises(SerializationError, match="key None"):
            call()
    with pytest.raises(SerializationError, match="a negative time"):
        life.store.put("k", "v", -1)
    with pytest.raises(SerializationError, match="value"):
        life.store.put("k", 5, 1)
    store = life.store
    life.stores.close_to_user_code()
    for closed in (store.all, lambda: store.get("k"), lambda: store.put("k", "v", 1), lambda: store.versions("k")):
        with pytest.raises(StateError, match="isn't open"):
            closed()


def test_records_without_a_key_are_passed_over_by_a_restoration() -> None:
    life = Versioned(spec_of())
    records = [Output("log", 0, key, b"v", time, None, "s") for key, time in ((None, 5), (b"k", 6))]
    life.stores.restore("s", map(Message, records), 2)
    life.open_to_user_code()
    assert list(life.store.all()) == [("k", ValueAndTimestamp("v", 6))]
