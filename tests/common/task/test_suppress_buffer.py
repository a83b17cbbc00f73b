"""Suppress buffers beside a dict, in random lives: records that fail, commits, roll-backs, restorations."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from milestones.common import serdes
from milestones.common.errors import SerializationError, StateError
from milestones.common.records import Output, RecordMetadata, TaskId, TopicPartition, output_of
from milestones.common.state.cells import Cells
from milestones.common.state.changelog import not_logged
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.layers import ABSENT
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches, TaskCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.state.stores.rows import StoreParts
from milestones.common.state.stores.suppress_buffer import Kept, SuppressBuffer
from milestones.common.state.stores.suppress_layout import Context
from milestones.common.task.scope import RecordInWork, RecordScope
from milestones.common.task.task_stores import TaskStores
from milestones.common.testing import StepClock
from milestones.common.topology.nodes import SubTopology
from milestones.common.windowed import FOREVER
from tests.common.task.harness import message

LOG = TopicPartition("log", 2)
SPEC = StoreSpec("s", "suppress", key_serde=serdes.STRING, value_serde=serdes.JSON)
KEYS = ["", "a", "a\x00", "ab", "b", "é"]


class Update(NamedTuple):
    """What the model knows of a key."""

    time: int
    prior: Any
    old: Any
    new: Any
    context: Context


class Life:
    """A buffer of one task, its changelog, and the updates that it must have. `transactional`: what fails is in no
    changelog."""

    def __init__(self, opener: Callable[[int], TaskStorage], transactional: bool = False) -> None:
        self.opener, self.disks, self.transactional = opener, 0, transactional
        self.changelog: list[Output] = []
        self.kept: dict[str, Update] = {}
        self.committed: dict[str, Update] = {}
        self.begin()

    def begin(self) -> None:
        self.scope, self.record = RecordScope(), RecordInWork()
        sub = cast(SubTopology, SimpleNamespace(stores=(SPEC,), changelogs={"s": LOG.topic}))
        caches, cells = TaskCaches(RecordCaches(0)), Cells(self.scope.touched)
        opener = partial(self.opener, self.disks)
        self.stores = TaskStores(TaskId(0, 2), sub, opener, self.scope, ReadCaches(), caches, cells)
        self.stores.open()
        self.open_to_user_code()

    def open_to_user_code(self) -> None:
        self.stores.make_typed(self.record, cached=True)
        self.stores.open_to_user_code()

    @property
    def buffer(self) -> SuppressBuffer:
        return cast(SuppressBuffer, self.stores.typed("s"))

    # -- what happens to it

    def done(self) -> None:
        assert self.merged() == [], "the changelog is written at the commit"

    def merged(self) -> list[Output]:
        outputs: list[Any] = []
        self.scope.merge(outputs)
        return [output_of(output) for output in outputs]

    def freeze(self) -> list[Output]:
        self.stores.freeze()
        return [output_of(output) for output in self.stores.log_frozen()]

    def commit(self, before: dict[str, Update] | None = None) -> None:
        """Commit. `before`: what was kept before the record that is in work now."""
        logged = self.freeze()
        assert len({output.key for output in logged}) == len(logged), "one record per key and commit"
        self.changelog += logged
        self.stores.applied({"s": len(self.changelog)})
        self.committed = dict(self.kept if before is None else before)

    def fail_to_commit(self) -> None:
        logged = self.freeze()
        if self.transactional:
            self.roll_back()
        else:  # the records stay sent, the writes wait for the next commit
            self.changelog += logged
            self.stores.thaw()

    def roll_back(self) -> None:
        self.scope.drop()
        self.stores.abort(logged=not self.transactional)
        self.kept = dict(self.committed)
        self.stores.log_again(5)
        self.changelog += self.merged()
        self.open_to_user_code()

    def reopen(self) -> None:
        """Another process on the same disk, which restores what the disk hasn't."""
        self.roll_back()
        self.stores.close()
        self.begin()
        self.restore(self.stores.changelog_offsets()["s"] or 0)

    def move(self) -> None:
        """Another process on an empty disk."""
        self.roll_back()
        self.stores.close()
        self.disks += 1
        self.begin()
        self.restore(0)

    def restore(self, first: int) -> None:
        records = [
            message(at, output.key, output.value, 9, LOG.topic, output.headers, LOG.partition)
            for at, output in enumerate(self.changelog)
        ]
        for at in range(first, len(records), 7):
            batch = records[at : at + 7]
            self.stores.restore("s", batch, at + len(batch))
        self.kept = dict(self.committed)
        self.open_to_user_code()

    # -- what it must have

    def in_order(self) -> list[tuple[str, Update]]:
        return sorted(self.kept.items(), key=lambda one: (one[1].time, one[0].encode()))

    def check(self, chance: random.Random) -> None:
        buffer, ordered = self.buffer, self.in_order()
        assert buffer.held()[0] == len(ordered)
        assert buffer.first_time == (ordered[0][1].time if ordered else FOREVER)
        if ordered:
            key, update = ordered[0]
            assert buffer.first() == Kept(key, (update.new, update.old), update.context)
        key = chance.choice([*KEYS, "never"])
        assert buffer.prior(key) == (self.kept[key].prior if key in self.kept else ABSENT)

    def check_counts(self) -> None:
        """Between two records: a new buffer finds the same."""
        fresh = SuppressBuffer(self.parts())
        fresh.open()
        assert fresh.held() == self.buffer.held(), "what it counts is what a new one would count"

    def parts(self) -> StoreParts:
        store = self.stores._stores["s"]
        return StoreParts(
            TaskId(0, 2), store.layers, store.read_cache, SPEC.key_serde, SPEC.value_serde, "log", not_logged,
            self.record, SPEC, Cells(self.scope.touched),
        )  # fmt: skip


def put(life: Life, chance: random.Random) -> None:
    key, time = chance.choice(KEYS), chance.randrange(50)
    before = life.kept.get(key)
    old = chance.choice([None, 1, "x" * 900])
    new = chance.choice([None, 0, [chance.randrange(9)]])
    headers = [("h", bytes(chance.randrange(3)))] * chance.randrange(3)
    origin = chance.choice([None, RecordMetadata("in", 2, chance.randrange(99))])
    context = Context(chance.randrange(99), headers or None, origin)
    life.buffer.put(time, key, (new, old), context)
    time, prior = (time, old) if before is None else (before.time, before.prior)
    life.kept[key] = Update(time, prior, old, new, context)


def remove(life: Life) -> None:
    if life.kept:
        del life.kept[life.in_order()[0][0]]
        life.buffer.remove_first()


def play(life: Life, chance: random.Random, steps: int) -> None:
    happens = {
        "commit": life.commit, "fail": life.fail_to_commit, "roll back": life.roll_back, "reopen": life.reopen,
        "move": life.move, "nothing": lambda: None,
    }  # fmt: skip
    for _ in range(steps):
        before = dict(life.kept)
        for _ in range(chance.randrange(5)):
            if chance.random() < 0.6:
                put(life, chance)
            else:
                remove(life)
        life.check(chance)
        if chance.random() < 0.1:
            life.commit(before)
            life.check(chance)
        if chance.random() < 0.25:
            life.scope.drop()
            life.stores.forget()
            life.kept = before
        else:
            life.done()
        life.check(chance)
        if chance.random() < 0.3:
            life.check_counts()
        (what,) = chance.choices(list(happens), weights=[25, 5, 7, 3, 2, 58])
        happens[what]()
        life.check(chance)


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "at least once"])
@pytest.mark.parametrize("seed", range(12))
def test_a_suppress_buffer_does_what_a_dict_does(seed: int, transactional: bool) -> None:
    disks: dict[int, MemoryTaskStorage] = {}

    class Lasting(MemoryTaskStorage):
        def close(self) -> None:
            """Another process finds what is in it."""

    life = Life(lambda disk: disks.setdefault(disk, Lasting(TaskId(0, 2), [SPEC])), transactional)
    play(life, random.Random(seed), 80)


@pytest.mark.parametrize("seed", range(3))
def test_a_suppress_buffer_on_disk_does_what_a_dict_does(seed: int, tmp_path: Path) -> None:
    managers: dict[int, LocalStateManager] = {}

    def open_stores(disk: int) -> TaskStorage:
        if disk not in managers:
            directory = StateDirectory(tmp_path / str(disk), "app", StepClock())
            managers[disk] = LocalStateManager(directory, open_engines("rocksdict"), "test")
        return managers[disk].open(TaskId(0, 2), [SPEC])

    life = Life(open_stores)
    play(life, random.Random(seed), 40)
    life.stores.close()
    for manager in managers.values():
        manager.release()


def in_memory() -> Life:
    return Life(lambda _: MemoryTaskStorage(TaskId(0, 2), [SPEC]))


def test_a_key_that_came_and_went_since_the_last_commit_is_deleted_in_the_changelog() -> None:
    life = in_memory()
    life.buffer.put(1, "a", (1, None), Context(1, None, None))
    life.buffer.remove_first()
    life.done()
    (deletion,) = life.freeze()
    assert deletion[:6] == (LOG.topic, 2, b"a", None, 0, None)


def test_records_of_the_changelog_carry_their_version_and_no_time_but_that_of_sending() -> None:
    life = in_memory()
    life.buffer.put(1, "a", (1, None), Context(77, None, None))
    life.done()
    (written,) = life.freeze()
    assert (written.timestamp, written.headers, written.node) == (0, [("v", b"\x03")], "s")


def test_a_value_that_its_serde_refuses_leaves_nothing_behind() -> None:
    life = in_memory()
    for update in ((object(), None), (None, object())):
        with pytest.raises(SerializationError, match="store s of task 0_2: value"):
            life.buffer.put(1, "a", update, Context(1, None, None))
    with pytest.raises(SerializationError, match="key"):
        life.buffer.put(1, 7, (1, None), Context(1, None, None))
    assert life.buffer.held() == (0, 0)


FIRST = Context(1, None, None)


@pytest.mark.parametrize(
    ("time", "context"),
    [(1 << 63, FIRST), (1, Context(1 << 63, None, None)), (1, Context(1, [("\ud800", b"no UTF-8")], None))],
    ids=["time", "timestamp", "header"],
)
def test_what_a_row_cannot_have_is_refused_in_its_record_not_at_the_commit(time: int, context: Context) -> None:
    life = in_memory()
    with pytest.raises((struct.error, UnicodeEncodeError)):
        life.buffer.put(time, "a", (1, None), context)
    assert life.buffer.held() == (0, 0)
    life.done()
    assert life.freeze() == []


REUSED = bytearray(b"first")


@pytest.mark.parametrize("by_row", [False, True], ids=["an update", "a row"])
def test_an_object_that_a_serde_uses_once_more_is_copied(by_row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    life = in_memory()
    monkeypatch.setattr(life.buffer, "_encode_value", lambda _: REUSED)
    REUSED[:] = b"11"
    if by_row:
        life.buffer.keep(1, b"a", cast(bytes, REUSED), 11, 1, None, None)
    else:
        life.buffer.put(1, "a", (11, 11), FIRST)
    REUSED[:] = b"22"
    assert life.buffer.first().change == (11, 11)


def test_a_value_that_a_serde_writes_as_a_text_is_refused_in_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    life = in_memory()
    monkeypatch.setattr(life.buffer, "_encode_value", str)
    with pytest.raises(SerializationError, match="store s of task 0_2: value"):
        life.buffer.put(1, "a", (11, None), FIRST)


def estimate(life: Life) -> int:
    return life.stores.uncommitted_bytes()


LARGE = "x" * 10_000


def test_uncommitted_updates_count_with_their_bytes_until_their_commit_is_written() -> None:
    life = in_memory()
    for number in range(100):
        life.buffer.put(1, f"small {number}", (1, None), FIRST)
    life.done()
    life.commit()
    assert estimate(life) == 0
    for number in range(100):
        for _ in range(3):  # an update that was replaced needs no memory
            life.buffer.put(1, f"large {number}", (LARGE, None), FIRST)
            life.done()
    assert 1_000_000 < estimate(life) < 1_200_000
    life.freeze()
    assert 1_000_000 < estimate(life) < 1_200_000
    life.stores.thaw()
    for number in range(100, 200):
        life.buffer.put(1, f"large {number}", (LARGE, None), FIRST)
    life.done()
    life.freeze()
    assert 2_000_000 < estimate(life) < 2_400_000
    life.stores.applied({"s": 1})
    assert estimate(life) == 0
    for _ in range(300):  # what is removed has no bytes
        life.buffer.remove_first()
    life.done()
    assert 300 * 100 < estimate(life) < 300 * 700


def test_a_committed_update_is_in_its_row_only() -> None:
    life = in_memory()
    life.buffer.put(1, "a", (LARGE, LARGE), FIRST)
    life.done()
    life.commit()
    place = life.buffer._by_key[b"a"]
    assert place[2] is ABSENT, "a large prior value isn't remembered"
    assert place[3].row is None
    assert life.buffer.prior("a") == LARGE
    assert life.buffer.first() == Kept("a", (LARGE, LARGE), FIRST)


def test_a_closed_buffer_refuses_all_calls() -> None:
    life = in_memory()
    life.buffer.put(1, "a", (1, None), Context(1, None, None))
    former = life.buffer
    life.open_to_user_code()
    with pytest.raises(StateError, match="isn't open"):
        former.put(1, "a", (1, None), Context(1, None, None))
