"""One manager has all state of an instance: tasks come and go, and no database is opened or closed for them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import (
    StateBusyError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateFullError,
    StateLockedError,
)
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.m6_state_manager.manager import RangeStateManager
from tests.milestones.m6_state_manager.damage import mend
from tests.milestones.m6_state_manager.states import (
    COUNTS,
    NEIGHBOUR,
    OTHER,
    SUMS,
    TASK,
    UNLOGGED,
    VOLATILE,
    entries,
    found,
    offsets,
    reopened,
)

FIFTY = [TaskId(0, partition) for partition in range(50)]
DELAY_MS = 600_000


class Counted:
    """Engines that count how often they open a database."""

    def __init__(self) -> None:
        self._engines = open_engines("rocksdict")
        self.name, self.opened = self._engines.name, 0

    def open(self, *args: Any) -> Any:
        self.opened += 1
        return self._engines.open(*args)

    def for_many_tasks(self) -> Any:
        return self

    def memory(self) -> Any:
        return self._engines.memory()


def written(manager: RangeStateManager, *tasks: TaskId, specs: tuple[StoreSpec, ...] = (COUNTS, SUMS)) -> None:
    """Write each task's own number into its stores, and close them."""
    for task in tasks:
        storage = manager.open(task, specs)
        own = {b"own": str(task).encode()}
        storage.apply({spec.name: own for spec in specs}, {s.name: task.partition + 1 for s in specs if s.logged})
        storage.close()


def test_fifty_tasks_come_and_go_ten_times_and_their_database_is_opened_once(directory: StateDirectory) -> None:
    engines = Counted()
    manager = RangeStateManager(directory, engines, "m6")
    for _ in range(10):
        opened = [manager.open(task, [COUNTS, SUMS]) for task in FIFTY]
        for storage in opened:
            storage.apply({"counts": {b"own": str(storage.task).encode()}}, {"counts": storage.task.partition})
        for storage in opened:
            storage.close()
    assert engines.opened == 1
    manager.release()
    again = reopened(directory, engines=engines)
    assert {task: found(again.open(task, [COUNTS, SUMS])) for task in FIFTY} == {
        task: {b"own": str(task).encode()} for task in FIFTY
    }
    assert engines.opened == 2
    again.release()


def test_a_task_has_one_holder_and_is_free_after_its_close(manager: RangeStateManager) -> None:
    storage = manager.open(TASK, [COUNTS], owner="thread 1")
    with pytest.raises(StateLockedError, match="thread 1"):
        manager.open(TASK, [COUNTS])
    storage.close()
    storage.close()
    manager.open(TASK, [COUNTS]).close()


def test_the_offsets_of_closed_tasks_are_known_in_the_next_process_before_any_is_opened(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK, OTHER)
    storage = manager.open(TASK, [COUNTS, SUMS])
    assert offsets(manager) == {OTHER: {"counts": 2, "sums": 2}}
    assert manager.closed_offsets([TASK]).keys() == {TASK, OTHER}
    storage.close()
    manager.release()
    assert offsets(reopened(directory)) == {TASK: {"counts": 2, "sums": 2}, OTHER: {"counts": 2, "sums": 2}}


def test_what_was_written_is_there_after_kill_9(manager: RangeStateManager, directory: StateDirectory) -> None:
    written(manager, TASK)
    for file in (directory.path / "engines" / "0" / "rocksdb").glob("LOCK"):
        file.unlink()
    copy = directory.path.parent / "after" / "words"
    shutil.copytree(directory.path, copy)
    after = RangeStateManager(StateDirectory(copy.parent, "words"), open_engines("rocksdict"), "m6")
    assert found(after.open(TASK, [COUNTS, SUMS])) == {b"own": b"0_1"}
    after.release()


def test_a_task_that_nobody_has_had_for_long_is_removed_and_its_neighbours_stay(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK, NEIGHBOUR, OTHER, specs=(COUNTS, UNLOGGED))
    held = manager.open(NEIGHBOUR, [COUNTS, UNLOGGED])
    now_ms = directory.clock.wall_ms()
    assert not manager.clean(now_ms + DELAY_MS - 1, DELAY_MS)
    assert manager.clean(now_ms + DELAY_MS, DELAY_MS)
    assert not manager.clean(now_ms + DELAY_MS, DELAY_MS)
    assert offsets(manager) == {}
    assert found(held) == found(held, "unlogged") == {b"own": b"0_2"}
    held.close()
    for task in (TASK, OTHER):
        storage = manager.open(task, [COUNTS, UNLOGGED])
        assert found(storage) == found(storage, "unlogged") == {}
        storage.close()
    manager.release()
    assert offsets(reopened(directory)) == {NEIGHBOUR: {"counts": 3}}


def restarted(manager: RangeStateManager) -> RangeStateManager:
    """The manager of the next process, after an end as planned and a long while without one."""
    manager.release()
    clock: Any = manager.directory.clock
    clock.advance(100 * DELAY_MS)
    return reopened(StateDirectory(manager.directory.path.parent, "words", clock))


def lived(manager: RangeStateManager, ms: int) -> bool:
    """Let so much time pass; whether the cleaner removes something then."""
    clock: Any = manager.directory.clock
    clock.advance(ms)
    return manager.clean(manager.directory.now_ms(), DELAY_MS)


def test_the_delay_of_a_task_goes_on_after_a_restart(manager: RangeStateManager) -> None:
    written(manager, TASK)
    assert not lived(manager, 0)
    for _ in range(3):
        assert not lived(manager, DELAY_MS // 4)
        manager = restarted(manager)
    assert not lived(manager, DELAY_MS // 4 - 1)
    assert lived(manager, 1)
    assert offsets(manager) == {}
    manager.release()


def test_the_delay_of_a_task_counts_up_to_the_last_cleaning_before_a_kill_9(manager: RangeStateManager) -> None:
    written(manager, TASK)
    assert not lived(manager, 0)
    assert not lived(manager, DELAY_MS // 2)
    assert not lived(manager, DELAY_MS // 4)
    manager.directory._lock.release()
    manager = restarted(manager)
    assert not lived(manager, DELAY_MS // 4 - 1)
    assert lived(manager, 1)
    manager.release()


def test_the_delay_of_a_task_that_came_back_begins_anew(manager: RangeStateManager) -> None:
    written(manager, TASK)
    assert not lived(manager, DELAY_MS - 1)
    manager = restarted(manager)
    manager.open(TASK, [COUNTS, SUMS]).close()
    manager = restarted(manager)
    assert not lived(manager, DELAY_MS - 1)
    assert lived(manager, 1)
    manager.release()


def test_the_delay_of_a_store_that_the_topology_has_no_more_goes_on_after_a_restart(manager: RangeStateManager) -> None:
    written(manager, TASK, specs=(COUNTS, SUMS))
    for _ in range(4):
        manager = restarted(manager)
        storage = manager.open(TASK, [SUMS])
        assert not lived(manager, 0)
        storage.close()
        assert not lived(manager, DELAY_MS // 5)
    storage = manager.open(TASK, [SUMS])
    assert not lived(manager, DELAY_MS // 5 - 1)
    assert lived(manager, 1)
    assert sorted(manager.databases()[0].stores()) == ["sums"]
    storage.close()
    manager.release()
    assert not (manager.directory.path / "unused.json").exists(), "what is gone has no time"


def test_the_delay_of_a_store_that_the_topology_had_meanwhile_begins_anew(manager: RangeStateManager) -> None:
    written(manager, TASK, specs=(COUNTS, SUMS))
    for specs, ms in (([SUMS], DELAY_MS - 1), ([COUNTS, SUMS], 0), ([SUMS], DELAY_MS - 1)):
        manager = restarted(manager)
        storage = manager.open(TASK, specs)
        assert not lived(manager, 0)
        assert not lived(manager, ms)
        storage.close()
    assert sorted(manager.databases()[0].stores()) == ["counts", "sums"]
    manager.release()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StateError("can't write /state: Input/output error"), "task 0_1, unused for 600000 ms, can't be removed"),
        (StateFullError("can't write /state: No space left on device"), "engines/0 is full"),
        (StateCorruptError("can't write /state: block checksum mismatch"), "the state of sub-topology 0 is damaged"),
        (StateBusyError("/state", "it is being compacted", "wait", 20), ""),
    ],
)
def test_a_range_that_cannot_be_wiped_is_wiped_with_the_next_cleaning_and_keeps_no_other_task(
    manager: RangeStateManager,
    error: StateError,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written(manager, TASK, OTHER)
    engine = manager._databases[TASK.subtopology].engine
    with monkeypatch.context() as refused:
        refused.setattr(engine, "wipe", Mock(side_effect=error))
        lived(manager, DELAY_MS)
    assert offsets(manager).keys() == {TASK}
    assert told in caplog.text
    if isinstance(error, StateCorruptError):
        mend(manager)
    assert lived(manager, DELAY_MS // 10)
    assert offsets(manager) == {}


def test_a_task_that_is_open_cant_be_removed(manager: RangeStateManager) -> None:
    written(manager, TASK)
    storage = manager.open(TASK, [COUNTS, SUMS])
    with pytest.raises(StateLockedError):
        manager.remove(TASK)
    assert found(storage) == {b"own": b"0_1"}


def test_a_store_that_is_renamed_begins_empty_and_the_former_one_is_found_again(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK)
    manager.release()
    renamed = reopened(directory)
    storage = renamed.open(TASK, [replace(COUNTS, name="totals"), SUMS])
    assert (found(storage, "totals"), found(storage, "sums")) == ({}, {b"own": b"0_1"})
    assert storage.offsets() == {"totals": None, "sums": 2}
    storage.close()
    renamed.release()
    assert found(reopened(directory).open(TASK, [COUNTS, SUMS])) == {b"own": b"0_1"}


def test_a_store_that_the_topology_has_had_no_more_for_long_is_removed_and_begins_empty_when_it_comes_back(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK, NEIGHBOUR, specs=(COUNTS, SUMS, UNLOGGED))
    manager.release()
    later = reopened(directory)
    begun_ms = directory.opened_ms
    assert not later.clean(begun_ms + DELAY_MS, DELAY_MS + 1)
    assert offsets(later)[TASK] == {"counts": 2, "sums": 2}
    storage = later.open(TASK, [SUMS])
    assert later.clean(begun_ms + DELAY_MS, DELAY_MS)
    (database,) = later.databases()
    assert sorted(database.stores()) == ["sums", "unlogged"], "what has no changelog stays"
    storage.apply({"sums": {b"own": b"again"}}, {"sums": 9})
    storage.close()
    later.release()
    back = reopened(directory)
    storage = back.open(TASK, [replace(COUNTS, kind="key-value"), SUMS, UNLOGGED])
    assert storage.offsets() == {"counts": None, "sums": 9, "unlogged": None}
    assert (found(storage), found(storage, "sums")) == ({}, {b"own": b"again"})
    assert found(storage, "unlogged") == {b"own": b"0_1"}
    storage.close()
    back.release()


def test_a_sub_topology_that_has_no_stores_any_more_gives_the_room_of_all_back(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK)
    manager.release()
    later = reopened(directory)
    storage = later.open(TASK, [VOLATILE])
    assert later.clean(directory.opened_ms + DELAY_MS, DELAY_MS)
    assert later.databases()[0].stores() == []
    storage.close()
    later.release()
    back = reopened(directory)
    storage = back.open(TASK, [COUNTS, SUMS])
    assert storage.offsets() == {"counts": None, "sums": None}
    storage.close()
    back.release()


def test_stores_stay_where_no_task_was_opened_since_the_start(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK)
    assert directory.opened_ms > 0
    manager.release()
    again = reopened(directory)
    again.clean(directory.opened_ms + DELAY_MS, DELAY_MS * 2)
    assert sorted(again.databases()[0].stores()) == ["counts", "sums"]
    again.release()


def test_a_store_that_is_another_kind_now_is_refused_with_the_ways_out(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    written(manager, TASK)
    manager.release()
    changed = StoreSpec("counts", "session", retention_ms=60_000)
    with pytest.raises(StateFormatError, match=r"was written as timestamped-key-value.*says session now"):
        reopened(directory).open(TASK, [changed, SUMS])


def test_a_database_that_cant_be_opened_is_set_aside_and_the_other_sub_topologies_keep_theirs(
    manager: RangeStateManager, directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    written(manager, TASK, OTHER)
    manager.release()
    for file in (directory.path / "engines" / "0" / "rocksdb").glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)
    again = reopened(directory)
    assert "the state of sub-topology 0 starts empty" in caplog.text
    assert offsets(again) == {OTHER: {"counts": 2, "sums": 2}}
    assert found(again.open(TASK, [COUNTS, SUMS])) == {}
    assert (directory.path / "engines" / "0" / "corrupt").is_dir()


@pytest.mark.parametrize("row", [b"nonsense", b'{"format":9}'])
def test_a_row_of_a_newer_version_is_refused_by_name(
    manager: RangeStateManager, directory: StateDirectory, row: bytes
) -> None:
    written(manager, TASK)
    database = manager.databases()[0]
    database.engine.apply({"/tasks": {b"\x00\x00\x00\x01": row}}, {})
    manager.release()
    with pytest.raises(StateFormatError, match="the row of task 0_1 in"):
        reopened(directory)


@pytest.mark.parametrize("key", [b"\x80\x00\x00\x00", b"\x00\x01", b"\x00\x00\x00\x01\x00"])
def test_a_row_of_no_partition_is_refused_with_the_ways_out(
    manager: RangeStateManager, directory: StateDirectory, key: bytes
) -> None:
    written(manager, TASK)
    manager.databases()[0].engine.apply({"/tasks": {key: b"{}"}}, {})
    manager.release()
    with pytest.raises(StateFormatError, match=rf"under the key {key.hex()}, .*run the version that wrote it"):
        reopened(directory)


def test_a_partition_beyond_what_kafka_has_is_refused(manager: RangeStateManager) -> None:
    with pytest.raises(StateError, match=f"partition {2**31} has no range of keys: .* remove it"):
        manager.open(TaskId(0, 2**31), [COUNTS])
    manager.open(TaskId(0, 2**31 - 1), [COUNTS]).close()


def test_the_statistics_are_those_of_the_databases(manager: RangeStateManager) -> None:
    written(manager, TASK, NEIGHBOUR, OTHER)
    numbers = manager.statistics()
    assert numbers.keys() == {(0, "all"), (3, "all")}
    assert numbers[0, "all"]["estimate-num-keys"] == 4 + 2  # a row per task
    assert manager.memory().memtables > 0


def test_the_memory_of_the_state_has_changed_keys_and_stores_in_memory_and_goes_on_beside_a_closed_database(
    manager: RangeStateManager,
) -> None:
    written(manager, TASK)
    volatile = StoreSpec("volatile", persistent=False)
    storage = manager.open(NEIGHBOUR, [COUNTS, volatile])
    storage.apply({"volatile": {b"key": b"v" * 1_000}}, {"volatile": 1})
    manager.changed.bytes += 77
    before = manager.memory()
    assert before.content > 1_000
    assert before.changed_keys == manager.changed.bytes >= 77
    for database in manager.databases():
        database.engine.close()
    assert manager.memory().content == before.content


def test_a_broken_database_takes_nothing_from_the_memory_of_the_others(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(manager, TASK, OTHER)
    broken, whole = manager.databases()

    def fail() -> Any:
        raise StateError("closed by a test")

    monkeypatch.setattr(broken.engine, "memory", fail)
    assert manager.memory().memtables == whole.engine.memory().memtables > 0


def test_state_is_cleared_with_its_databases(manager: RangeStateManager, directory: StateDirectory) -> None:
    written(manager, TASK)
    manager.release()
    directory.clear()
    assert not (directory.path / "engines").exists()
    assert offsets(reopened(directory)) == {}


def test_what_another_engine_has_written_is_set_aside_unread_and_restored(
    manager: RangeStateManager, directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    storage = manager.open(TASK, [COUNTS])
    storage.apply({"counts": entries(3)}, {"counts": 7})
    storage.close()
    manager.release()
    again = reopened(directory, engines=open_engines("rocksdb"))
    assert offsets(again) == {}, "nothing is opened before its stores are known"
    storage = again.open(TASK, [COUNTS])
    assert (found(storage), storage.offsets()) == ({}, {"counts": None})
    assert "written by another rocksdb_engine, and is restored" in caplog.text
    assert (directory.path / "engines" / "0-rocksdict" / "rocksdb" / "CURRENT").exists()
    again.release()


def test_a_store_without_changelog_of_another_engine_is_refused_and_stays(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    manager.open(TASK, [UNLOGGED]).close()
    manager.release()
    again = reopened(directory, engines=open_engines("rocksdb"))
    with pytest.raises(StateFormatError, match="set rocksdb_engine='rocksdict'"):
        again.open(TASK, [UNLOGGED])
    again.release()
    assert (directory.path / "engines" / "0" / "rocksdb" / "CURRENT").exists()
