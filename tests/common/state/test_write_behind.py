"""Confirmed commits wait in memory, within bounds of time and memory, and are written a few at a time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import StateBusyError, StateError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.engine import Batch
from milestones.common.state.layers import Layer
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.spec import StoreSpec
from milestones.common.state.storage import CommitMade, TaskStorage
from milestones.common.state.write_behind import WaitingCommits, WriteBehindStorage
from milestones.common.testing import StepClock

INTERVAL_MS, MOST_BYTES = 5_000, 100_000
INPUT = TopicPartition("in", 0)
COUNTS = StoreSpec("counts", "timestamped-key-value", key_serde=serdes.STRING, value_serde=serdes.LONG)
SUMS = StoreSpec("sums", "key-value", key_serde=serdes.STRING, value_serde=serdes.LONG)


class Disk(MemoryTaskStorage):
    """What lies below. `writes`: the keys by store of each call of `apply`, `commits`: the commits noted."""

    def __init__(self, task: TaskId, specs: list[StoreSpec]) -> None:
        super().__init__(task, specs)
        self.writes: list[dict[str, set[bytes]]] = []
        self.commits: list[int] = []
        self.refuses: StateError | None = None
        self.closed = False

    def note(self, commit: CommitMade) -> None:
        self.commits.append(commit.number)

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        if self.refuses is not None:
            raise self.refuses
        super().apply(batches, offsets)
        self.writes.append({store: set(batch) for store, batch in batches.items()})

    def close(self) -> None:
        """The content stays, to be looked at."""
        self.closed = True


class TaskOnDisk:
    """A task that commits."""

    def __init__(self, clock: StepClock, commits: WaitingCommits, number: int = 0, specs: Any = (COUNTS, SUMS)) -> None:
        self.disk = Disk(TaskId(0, number), list(specs))
        self.storage: TaskStorage = commits.of(self.disk, specs, clock)
        self.number = 0

    def commit(self, **batches: dict[bytes, bytes | None]) -> None:
        self.number += 1
        self.storage.note(CommitMade(self.number, {INPUT: self.number}, {INPUT: 0}))
        self.storage.apply(batches, dict.fromkeys(batches, self.number))


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def commits() -> WaitingCommits:
    return WaitingCommits(MOST_BYTES, INTERVAL_MS)


@pytest.fixture
def task(clock: StepClock, commits: WaitingCommits) -> TaskOnDisk:
    return TaskOnDisk(clock, commits)


def test_commits_within_the_interval_are_written_together_each_key_once(task: TaskOnDisk, clock: StepClock) -> None:
    task.commit(counts={b"a": b"1"})
    for number in range(2, 51):
        clock.advance(100)
        task.commit(counts={b"a": b"%d" % number, b"b": None}, sums={b"c": b"%d" % number})
    assert task.disk.writes == [{"counts": {b"a"}}], "the first one is written at once"
    clock.advance(100)
    task.commit(counts={b"d": b"4"})
    assert task.disk.writes[1:] == [{"counts": {b"a", b"b", b"d"}, "sums": {b"c"}}]
    assert task.disk.commits == [1, 51]
    assert task.disk.offsets() == {"counts": 51, "sums": 50}
    assert task.disk.namespace("counts").get(b"a") == b"50"


def test_commits_further_apart_than_the_interval_are_written_at_once(task: TaskOnDisk, clock: StepClock) -> None:
    for number in range(1, 6):
        task.commit(counts={b"a": b"%d" % number})
        assert len(task.disk.writes) == number
        clock.advance(INTERVAL_MS)


def test_what_waits_is_read_with_its_offsets_and_its_number(task: TaskOnDisk) -> None:
    task.commit(counts={b"a": b"1", b"b": b"1", b"d": b"1"})
    task.commit(counts={b"b": None, b"c": b"2"})
    counts, disk = task.storage.namespace("counts"), task.disk.namespace("counts")
    assert (counts.get(b"a"), counts.get(b"b"), counts.get(b"c")) == (b"1", None, b"2")
    assert list(counts.scan(None, None)) == [(b"a", b"1"), (b"c", b"2"), (b"d", b"1")]
    assert list(counts.scan(b"b", b"d", reverse=True)) == [(b"c", b"2")]
    for few in (counts.scan_bounded, counts.reader()):
        assert few(b"a", b"z", 2) == [(b"a", b"1"), (b"c", b"2")]
    assert (task.storage.offsets()["counts"], task.storage.commit_number()) == (2, 2)
    assert list(disk.scan(None, None)) == [(b"a", b"1"), (b"b", b"1"), (b"d", b"1")]
    assert task.disk.offsets()["counts"] == 1


def test_the_number_of_entries_is_the_same_whether_they_wait_or_are_written(task: TaskOnDisk) -> None:
    counts = task.storage.namespace("counts")
    task.commit(counts={b"a": b"1", b"b": b"1"})
    task.commit(counts={b"c": b"1"})
    assert counts.approximate_entries() == 3
    task.commit(counts={b"c": None})
    assert counts.approximate_entries() in (1, 2), "an engine counts a deletion, too, until it compacts"
    task.storage.close()
    assert task.disk.namespace("counts").approximate_entries() == 2


def test_a_restoration_is_written_at_once_behind_what_waits(task: TaskOnDisk) -> None:
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"a": b"2"})
    task.storage.apply({"counts": {b"a": b"3"}}, {"counts": 7})
    assert task.disk.commits == [1, 2], "what is restored is no commit"
    assert (task.disk.namespace("counts").get(b"a"), task.disk.offsets()["counts"]) == (b"3", 7)


def test_rows_expire_behind_what_waits(task: TaskOnDisk) -> None:
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"b": b"1"})
    task.storage.expire("counts", [(b"b", b"c")])
    assert list(task.storage.namespace("counts").scan(None, None)) == [(b"a", b"1")]


def test_a_store_that_is_emptied_has_nothing_that_waited_and_the_others_keep_theirs(task: TaskOnDisk) -> None:
    task.commit(counts={b"a": b"1"}, sums={b"a": b"1"})
    task.commit(counts={b"b": b"1"}, sums={b"b": b"1"})
    former = task.storage.namespace("counts")
    emptied = task.storage.clear("counts")
    assert emptied is task.storage.namespace("counts")
    assert (list(emptied.scan(None, None)), task.storage.offsets()["counts"]) == ([], None)
    assert former.get(b"b") is None
    task.storage.close()
    assert list(task.disk.namespace("sums").scan(None, None)) == [(b"a", b"1"), (b"b", b"1")]
    assert (task.disk.offsets()["counts"], task.disk.offsets()["sums"]) == (None, 2)


def test_a_store_whose_emptying_fails_is_written_no_more_of_than_it_has_on_disk(
    task: TaskOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range may be empty by then, or be emptied by the next write: an offset ahead of it would lose all it had."""
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"b": b"1"}, sums={b"b": b"1"})

    def half(store: str, reason: object | None = None) -> Any:
        MemoryTaskStorage.clear(task.disk, store)
        raise StateError("the disk is gone")

    monkeypatch.setattr(task.disk, "clear", half)
    with pytest.raises(StateError):
        task.storage.clear("counts", "it is damaged")
    task.storage.close()
    assert list(task.disk.namespace("counts").scan(None, None)) == []
    assert task.disk.offsets() == {"counts": None, "sums": 2}


def test_the_close_writes_what_waits(task: TaskOnDisk, commits: WaitingCommits) -> None:
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"a": b"2"})
    task.storage.close()
    task.storage.close()
    assert (task.disk.namespace("counts").get(b"a"), task.disk.offsets()["counts"]) == (b"2", 2)
    assert task.disk.closed
    assert commits.memory_bytes() == 0


def test_a_close_that_cannot_write_leaves_the_commit_before(
    task: TaskOnDisk, commits: WaitingCommits, caplog: pytest.LogCaptureFixture
) -> None:
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"a": b"2"})
    task.disk.refuses = StateError("the disk is gone")
    task.storage.close()
    assert task.disk.closed
    assert "the disk is gone" in caplog.text
    assert (task.disk.offsets()["counts"], commits.memory_bytes()) == (1, 0)


def test_what_a_busy_disk_refuses_waits_and_is_written_again(task: TaskOnDisk, clock: StepClock) -> None:
    task.commit(counts={b"a": b"1"})
    clock.advance(INTERVAL_MS)
    task.disk.refuses = StateBusyError("the store", "it would stall", "wait", 10)
    with pytest.raises(StateBusyError):
        task.commit(counts={b"a": b"2"})
    assert task.storage.namespace("counts").get(b"a") == b"2"
    assert task.disk.offsets()["counts"] == 1
    task.disk.refuses = None
    task.number -= 1  # the same again
    task.commit(counts={b"a": b"2"})
    assert (task.disk.namespace("counts").get(b"a"), task.disk.offsets()["counts"]) == (b"2", 2)


def test_the_memory_that_waits_is_that_of_each_key_once_however_its_value_grows(
    clock: StepClock, commits: WaitingCommits
) -> None:
    task = TaskOnDisk(clock, commits, specs=(COUNTS,))
    task.commit(counts={b"first": b"at once"})
    task.commit(counts={b"%d" % key: b"" for key in range(100)})
    few, entry_bytes = commits.memory_bytes(), commits.memory_bytes() // 100
    for _ in range(50):
        task.commit(counts={b"%d" % key: None for key in range(100)})
    assert commits.memory_bytes() == few
    task.commit(counts={b"0": b"x" * 60_000, b"new": b"y" * 10_000})
    assert 70_000 <= commits.memory_bytes() - few <= 70_000 + 2 * entry_bytes
    task.commit(counts={b"1": b"x" * 60_000})
    assert (commits.memory_bytes(), len(task.disk.writes)) == (0, 2), "that was more than the bound"


def test_a_write_between_two_looks_hides_no_offset_from_another_thread(
    task: TaskOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream thread tells its group how far a task is, while a processing thread writes."""
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"a": b"2"})
    looked = task.disk.offsets

    def overtaken() -> dict[str, int | None]:
        found = looked()
        task.storage.write()
        return found

    monkeypatch.setattr(task.disk, "offsets", overtaken)
    assert task.storage.offsets()["counts"] == 2
    assert looked()["counts"] == 2


def test_fifty_tasks_have_no_more_waiting_than_the_bound_of_all(clock: StepClock, commits: WaitingCommits) -> None:
    tasks = [TaskOnDisk(clock, commits, number) for number in range(50)]
    for number in range(200):
        for task in tasks:
            clock.advance(1)
            task.commit(counts={b"%d" % key: b"x" * 20 for key in range(number, number + 5)})
            assert commits.memory_bytes() <= MOST_BYTES + 5 * 250, "but for the commit that is written next"
    written = sum(len(task.disk.writes) for task in tasks)
    assert written < 200 * 50 / 2
    for task in tasks:
        task.storage.close()
    assert commits.memory_bytes() == 0


LRU = StoreSpec("lru", "lru", max_entries=5, key_serde=serdes.STRING, value_serde=serdes.LONG)
WINDOWS = StoreSpec(
    "windows", "window", window_ms=10, retention_ms=100, key_serde=serdes.STRING, value_serde=serdes.LONG
)  # fmt: skip
SUPPRESS = StoreSpec("kept back", "suppress", key_serde=serdes.STRING, value_serde=serdes.LONG)
UNLOGGED = StoreSpec("unlogged", "key-value", logged=False, key_serde=serdes.STRING, value_serde=serdes.LONG)
IN_MEMORY = StoreSpec("heap", "window", persistent=False, window_ms=10, retention_ms=100)


def test_updates_that_suppress_keeps_back_wait_as_their_buffer_is_scanned_only_when_it_is_opened(
    clock: StepClock, commits: WaitingCommits
) -> None:
    task = TaskOnDisk(clock, commits, specs=(WINDOWS, SUPPRESS))
    assert task.storage is not task.disk


@pytest.mark.parametrize("other", [LRU, UNLOGGED], ids=lambda spec: spec.name)
def test_a_task_with_a_store_that_no_replay_repairs_or_that_is_scanned_writes_at_once(
    other: StoreSpec, clock: StepClock, commits: WaitingCommits
) -> None:
    task = TaskOnDisk(clock, commits, specs=(COUNTS, other))
    assert task.storage is task.disk


def test_rows_of_windows_wait_and_those_that_come_and_go_meanwhile_are_never_written(
    clock: StepClock, commits: WaitingCommits
) -> None:
    task = TaskOnDisk(clock, commits, specs=(WINDOWS,))

    def commit(fresh: set[bytes], **rows: bytes | None) -> None:
        layer = Layer({key.encode(): value for key, value in rows.items()})
        layer.fresh = fresh
        task.commit(windows=layer)

    def on_disk() -> dict[bytes, bytes]:
        return dict(task.disk.namespace("windows").scan(None, None))

    commit({b"old", b"stays"}, old=b"1", stays=b"1")
    task.storage.write()
    assert on_disk() == {b"old": b"1", b"stays": b"1"}
    before = len(task.disk.writes)
    commit({b"new", b"goes"}, new=b"1", goes=b"1", old=None)
    commit({b"old"}, goes=None, old=b"2")  # `old` comes again, while the disk has its former value
    commit(set(), old=None)
    namespace = task.storage.namespace("windows")
    assert dict(namespace.scan(None, None)) == {b"new": b"1", b"stays": b"1"}
    assert namespace.approximate_entries() == 2
    assert on_disk() == {b"old": b"1", b"stays": b"1"}
    task.storage.write()
    assert on_disk() == {b"new": b"1", b"stays": b"1"}
    assert task.disk.writes[before:] == [{"windows": {b"new", b"old"}}]


@pytest.mark.parametrize("reached", [0, 1, 2], ids=["nothing is written", "one row is", "all rows are"])
def test_a_row_that_goes_after_a_write_that_broke_off_is_deleted_on_the_disk(
    reached: int, clock: StepClock, commits: WaitingCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write has several steps. A busy disk may take the first ones, and refuse the others."""
    task = TaskOnDisk(clock, commits, specs=(WINDOWS,))
    task.commit(windows={b"first": b"at once"})
    came = Layer({b"goes": b"1", b"stays": b"1"})
    came.fresh = set(came)
    task.commit(windows=came)
    held = commits.memory_bytes()

    def broken_off(batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        rows = dict(list(batches["windows"].items())[:reached])
        MemoryTaskStorage.apply(task.disk, {"windows": rows}, {})
        raise StateBusyError("the store", "it would stall", "wait", 10)

    with monkeypatch.context() as patch:
        patch.setattr(task.disk, "apply", broken_off)
        with pytest.raises(StateBusyError):
            task.storage.write()
    task.commit(windows={b"goes": None})
    assert 0 < commits.memory_bytes() < held
    assert dict(task.storage.namespace("windows").scan(None, None)) == {b"first": b"at once", b"stays": b"1"}
    task.storage.write()
    assert dict(task.disk.namespace("windows").scan(None, None)) == {b"first": b"at once", b"stays": b"1"}
    assert task.disk.offsets()["windows"] == 3


def test_stores_in_memory_are_written_at_once_beside_those_on_disk(clock: StepClock, commits: WaitingCommits) -> None:
    task = TaskOnDisk(clock, commits, specs=(COUNTS, IN_MEMORY))
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"a": b"2"}, heap={b"a": b"2"})
    assert isinstance(task.storage, WriteBehindStorage)
    assert task.disk.namespace("heap").get(b"a") == b"2"
    assert (task.storage.offsets(), task.disk.offsets()) == ({"counts": 2, "heap": 2}, {"counts": 1, "heap": 2})


def test_rows_that_expire_in_memory_have_nothing_written_to_the_disk(clock: StepClock, commits: WaitingCommits) -> None:
    task = TaskOnDisk(clock, commits, specs=(COUNTS, IN_MEMORY))
    task.commit(counts={b"a": b"1"})
    task.commit(counts={b"a": b"2"}, heap={b"a": b"2"})
    task.storage.expire("heap", [(b"a", b"b")])
    assert list(task.storage.namespace("heap").scan(None, None)) == []
    assert task.disk.offsets()["counts"] == 1


@pytest.mark.parametrize("bounds", [(0, INTERVAL_MS), (MOST_BYTES, 0)])
def test_without_time_or_memory_each_commit_is_written_at_once(bounds: tuple[int, int], clock: StepClock) -> None:
    task = TaskOnDisk(clock, WaitingCommits(*bounds))
    assert task.storage is task.disk


def calls_of_a_commit(tasks: int) -> int:
    """How many Python functions a commit of one task calls, when so many tasks have something that waits."""
    clock, commits = StepClock(), WaitingCommits(1_000_000_000, INTERVAL_MS)
    each = [TaskOnDisk(clock, commits, number) for number in range(tasks)]
    for one in (*each, *each):  # the first commit of each is written
        one.commit(counts={b"a": b"1"})
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        each[0].commit(counts={b"a": b"2"})
    finally:
        sys.setprofile(former)
    assert commits.memory_bytes() > tasks
    return calls


def test_a_commit_of_a_task_costs_the_same_however_many_tasks_have_something_that_waits() -> None:
    assert calls_of_a_commit(2_048) == calls_of_a_commit(64) > 5


def test_what_waits_of_a_task_that_is_gone_without_a_close_counts_no_more(
    clock: StepClock, commits: WaitingCommits
) -> None:
    tasks = [TaskOnDisk(clock, commits, number) for number in range(3)]
    for one in (*tasks, *tasks):
        one.commit(counts={b"a": b"1" * 1_000})
    held = commits.memory_bytes()
    del one, tasks[0]
    gc.collect()
    assert commits.memory_bytes() == held * 2 // 3
    tasks[0].storage.close()
    assert commits.memory_bytes() == held // 3


def test_of_what_waits_beside_what_is_stored_a_few_are_the_first_of_both(task: TaskOnDisk) -> None:
    keys = [b"%02d" % number for number in range(20)]
    task.commit(counts=dict.fromkeys(keys, b"stored"))
    task.commit(counts=dict.fromkeys(keys[:8]) | {b"09x": b"waits"})
    found = task.storage.namespace("counts").scan_bounded(b"", b"\xff", 3)
    assert found == [(b"08", b"stored"), (b"09", b"stored"), (b"09x", b"waits")]
    assert task.storage.namespace("counts").reader()(b"", b"05", 3) == []
