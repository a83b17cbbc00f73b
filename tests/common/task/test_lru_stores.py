"""LRU stores beside an ordered dict, in random lives: records that fail, commits, roll-backs, restorations."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from milestones import stores
from milestones.common import serdes
from milestones.common.errors import SerializationError, StateCorruptError, StateError, TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.lru_rows import KEYS as KEYS_OF_USES
from milestones.common.state.stores.lru_rows import NUMBERS
from milestones.common.state.stores.lru_store import LruStore
from milestones.common.topology import Processor, StreamsBuilder
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, processing
from tests.common.task.test_bounded_stores import LOGS, Life, Message

MOST = 3
KEYS = ["", "a", "a\x00", "ab", "b", "\x7f" * 9]


def spec_of(max_entries: int = MOST, **more: Any) -> StoreSpec:
    return StoreSpec("s", "lru", key_serde=serdes.STRING, value_serde=serdes.STRING, max_entries=max_entries, **more)


class Lru(Life):
    """A `Life` whose rows are an ordered dict, the eldest first."""

    def __init__(self, spec: StoreSpec, at_commit: bool = False) -> None:
        self.entries: OrderedDict[str, str] = OrderedDict()
        self.committed_entries = self.entries.copy()
        super().__init__(spec, at_commit)

    def put(self, key: str, value: str | None) -> None:
        self.store.put(key, value)
        if value is None:
            self.entries.pop(key, None)
            return
        if key not in self.entries and len(self.entries) == self.spec.max_entries:
            self.entries.popitem(last=False)
        self.entries[key] = value
        self.entries.move_to_end(key)

    def get(self, key: str) -> None:
        assert self.store.get(key) == self.entries.get(key)
        if key in self.entries:
            self.entries.move_to_end(key)

    def commit(self) -> None:
        super().commit()
        self.committed_entries = self.entries.copy()

    def roll_back(self) -> None:
        super().roll_back()
        self.entries = self.committed_entries.copy()

    def roll_back_logged(self, now: int = 5) -> None:
        super().roll_back_logged(now)
        self.entries = self.committed_entries.copy()

    def restore(self) -> None:
        """The order of use is that of the changelog then."""
        self.begin_from_changelog()
        last = {(output.key or b"").decode(): number for number, output in enumerate(self.changelog)}
        self.entries = OrderedDict(sorted(self.entries.items(), key=lambda entry: last[entry[0]]))
        self.committed_entries, self.committed_memory = self.entries.copy(), {}


def check(life: Lru, chance: random.Random) -> None:
    store: LruStore[str, str] = life.store
    every = sorted(life.entries.items(), key=lambda entry: entry[0].encode())
    assert list(store.all()) == every
    assert list(store.reverse_all()) == every[::-1]
    assert store.approximate_num_entries() == len(every) <= life.spec.max_entries
    low, high = sorted(chance.choices(KEYS, k=2), key=str.encode)
    some = [entry for entry in every if low.encode() <= entry[0].encode() <= high.encode()]
    assert list(store.range(low, high)) == some
    assert list(store.reverse_range(low, high)) == some[::-1]
    assert list(store.range(None, high)) == [entry for entry in every if entry[0].encode() <= high.encode()]
    assert list(store.range(low)) == [entry for entry in every if entry[0].encode() >= low.encode()]
    assert list(store.prefix_scan("a")) == [entry for entry in every if entry[0].startswith("a")]
    assert list(store.prefix_scan("a", str.encode)) == [entry for entry in every if entry[0].startswith("a")]


@pytest.mark.parametrize("seed", range(30))
@LOGS
def test_an_lru_store_does_what_an_ordered_dict_does(at_commit: bool, seed: int) -> None:
    chance = random.Random(seed)
    life = Lru(spec_of(chance.choice([1, 2, 3, 5, 100]), persistent=chance.random() < 0.5), at_commit)
    for _ in range(80):
        before = life.entries.copy()
        for _ in range(chance.randrange(4)):
            key, what = chance.choice(KEYS), chance.random()
            if what < 0.5:
                life.put(key, chance.choice([None, "", "v", "w" * 600]))
            else:
                life.get(key)
        check(life, chance)
        if chance.random() < 0.2:
            life.scope.drop()
            life.stores.forget()
            life.entries = before
        else:
            life.done()
        check(life, chance)
        for happens, share in ((life.commit, 0.25), (life.roll_back, 0.07), (life.restore, 0.05), (life.go_on, 0.05)):
            if chance.random() < share:
                happens()
                break
        check(life, chance)


@pytest.mark.parametrize("seed", range(20))
@LOGS
def test_a_changelog_that_keeps_rolled_back_writes_restores_the_committed_entries(at_commit: bool, seed: int) -> None:
    chance = random.Random(seed)
    life = Lru(spec_of(), at_commit)
    for _ in range(20):
        for _ in range(chance.randrange(4)):
            life.put(chance.choice(KEYS), chance.choice([None, "v", "w"]))
            life.get(chance.choice(KEYS))
            life.done()
        (life.commit if chance.random() < 0.5 else life.roll_back_logged)()
    life.roll_back_logged()
    life.commit()
    life.restore()
    assert dict(life.store.all()) == dict(life.entries)


def test_a_store_whose_rows_were_lost_says_so_and_which_one_it_is() -> None:
    life = Lru(spec_of(2))
    for key in "ab":
        life.put(key, "v")
    life.done()
    life.commit()
    for local, _ in list(life.store._layers.scan(KEYS_OF_USES, NUMBERS)):
        life.store._layers.put(local, None)
    with pytest.raises(StateCorruptError) as caught:
        life.store.put("c", "v")
    said = "store s of task 0_0 counts 2 entries, and has none of their last uses, 0 to 1: rows were lost on disk"
    assert str(caught.value) == said
    assert {(str(task), name) for task, name in caught.value.damaged} == {("0_0", "s")}


def test_the_tail_of_a_changelog_comes_after_what_was_used_since_the_first_restoration() -> None:
    """A commit whose answer was lost, and that Kafka has made, is restored in a task that has been at work."""
    life = Lru(spec_of(3))
    life.put("a", "v")
    life.done()
    life.commit()
    life.restore()
    for key in "bcd":
        life.put(key, "v")
        life.done()
    life.commit()
    life.put("e", "v")
    life.done()
    unanswered = life.changelog[life.logged :]
    life.roll_back()
    life.changelog += unanswered
    life.stores.restore("s", map(Message, unanswered), len(life.changelog))
    life.open_to_user_code()
    life.store.put("f", "v")
    life.store.put("g", "v")
    assert [key for key, _ in life.store.all()] == ["e", "f", "g"]


def test_what_makes_room_is_deleted_from_the_changelog_before_the_new_entry_is_there() -> None:
    life = Lru(spec_of(2))
    life.record.timestamp = 7
    for key in "abc":
        life.store.put(key, "v")
    life.done()
    assert [output[2:5] for output in life.changelog] == [
        (b"a", b"v", 7), (b"b", b"v", 7), (b"a", None, 7), (b"c", b"v", 7),
    ]  # fmt: skip


def test_a_store_that_has_been_made_smaller_makes_room_at_the_next_put() -> None:
    life = Lru(spec_of(5))
    for key in "abcde":
        life.put(key, "v")
    life.done()
    life.commit()
    smaller = Lru(spec_of(2))
    smaller.stores.restore("s", map(Message, life.changelog), 5)
    smaller.open_to_user_code()
    smaller.store.put("f", "v")
    smaller.done()
    assert [key for key, _ in smaller.store.all()] == ["e", "f"]
    assert [output.key for output in smaller.changelog if output.value is None] == [b"a", b"b", b"c", b"d"]


def test_put_if_absent_and_delete_give_the_former_value() -> None:
    store = Lru(spec_of(2)).store
    assert store.put_if_absent("k", "v") is None
    assert store.put_if_absent("k", "w") == "v"
    assert store.delete("k") == "v"
    assert store.delete("k") is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (lambda: spec_of(0), "at least one entry"),
        (lambda: spec_of(cached=True), "can't be cached"),
        (lambda: StoreSpec("s", max_entries=5), "no other store has a limit"),
    ],
)
def test_an_lru_store_says_what_it_cannot_be(spec: Callable[[], StoreSpec], words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        spec()


def test_what_cannot_be_a_key_or_a_value_is_said_and_makes_no_room() -> None:
    life = Lru(spec_of(1))
    life.put("k", "v")
    for call in (
        lambda: life.store.put("new", 5), lambda: life.store.put(None, "v"), lambda: life.store.get(None),
    ):  # fmt: skip
        with pytest.raises(SerializationError):
            call()
    assert list(life.store.all()) == [("k", "v")]
    store = life.store
    life.stores.close_to_user_code()
    for closed in (store.all, lambda: store.get("k"), lambda: store.put("k", "v"), store.approximate_num_entries):
        with pytest.raises(StateError, match="isn't open"):
            closed()


class Latest(Processor):
    def process(self, record: Any) -> None:
        self.context.get_state_store("s").put(record.key, record.value)


@pytest.mark.parametrize("spec", [spec_of(), stores.key_value("s", str, str, ttl=1_000)], ids=lambda spec: spec.kind)
def test_records_that_only_read_are_committed(spec: StoreSpec) -> None:
    """A read is noted in the store, and not in the changelog, so that Kafka confirms no offset of it."""

    def know(context: Any, record: Any) -> None:
        store = context.get_state_store("s")
        if store.get(record.key) is None:
            store.put(record.key, "known")
        else:
            context.forward(record)

    task = Harness(processing(know, [spec])).start()
    task.pipe(("k", "first", 100))
    task.commit()
    task.pipe(("other", "first", 105))
    task.commit()
    for time in (110, 120):
        task.pipe(("k", "again", time))
        task.commit()
    assert [output.timestamp for output in task.sent if output.topic == "out"] == [110, 120]


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "disk"])
def test_an_lru_store_of_a_topology_keeps_the_last_entries(persistent: bool) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(spec_of(persistent=persistent))
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).process(Latest, "s")
    with TopologyTestDriver(builder.build(), persistent=persistent) as driver:
        topic = driver.create_input_topic("in", key=serdes.STRING, value=serdes.STRING)
        for number in range(50):
            topic.pipe(f"{number:02d}", "v")
        assert [key for key, _ in driver.store("s").all()] == ["47", "48", "49"]
