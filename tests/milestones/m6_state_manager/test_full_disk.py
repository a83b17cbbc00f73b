"""A full disk under a sub-topology's database: its writes come later, and arrive once there is room."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests.cases.small_disks import SmallDisk, small_disk
from milestones.common.errors import StateBusyError, StateLockedError
from milestones.common.metrics import Metrics
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.testing import StepClock
from milestones.m6_state_manager import disk_room
from milestones.m6_state_manager.disk_room import DiskRoom
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.measures import DatabaseMeasures
from milestones.parts import DecidedError
from milestones.testing import until
from tests.milestones.m6_state_manager.damage import mend
from tests.milestones.m6_state_manager.states import COUNTS, OTHER, TASK, UNLOGGED, found, reopened
from tests.milestones.m6_state_manager.test_task_storage import linked


@pytest.fixture
def disk(directory: StateDirectory) -> Iterator[SmallDisk]:
    """In place of the folder of a sub-topology."""
    path = directory.path / "engines" / str(TASK.subtopology)
    path.parent.mkdir(parents=True, exist_ok=True)
    with small_disk(path) as disk:
        yield disk


def look_and_mend(manager: RangeStateManager) -> bool:
    """What the state thread does; False."""
    for database in manager.databases():
        database.look()
        if database.gate.reason:
            mend(manager, database.number)
    return False


def random_batch(number: int) -> dict[bytes, bytes | None]:
    return {b"%d-%06d" % (number, at): os.urandom(1_000) for at in range(300)}


def refused_at_last(storage: Any) -> tuple[int, dict[bytes, bytes | None]]:
    """Write until the disk is full: the number of the commit that was refused, and its entries."""
    for number in range(1, 100):
        batch = random_batch(number)
        busy = refusal(storage, batch, number)
        if busy is not None:
            assert busy.full
            assert busy.told, "the log has it, once"
            return number, batch
    raise AssertionError("the disk never filled up")


def refusal(storage: Any, batch: dict[bytes, bytes | None], number: int) -> StateBusyError | None:
    """Why the commit comes later; None: it is written."""
    try:
        storage.apply({"counts": batch}, {"counts": number})
        return None
    except StateBusyError as busy:
        return busy


@pytest.mark.parametrize("engine", ["rocksdict", "rocksdb"])
def test_writes_wait_for_room_and_other_sub_topologies_dont_notice(
    directory: StateDirectory,
    disk: SmallDisk,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
        monkeypatch.setattr(disk_room, "STUCK_MS", 2_000)
    manager = RangeStateManager(directory, open_engines(engine), "m6")
    mine, other = manager.open(TASK, [COUNTS]), manager.open(OTHER, [COUNTS])
    mine.apply({"counts": random_batch(0)}, {"counts": 0})
    disk.leave(0)
    number, batch = refused_at_last(mine)
    before = found(mine)
    other.apply({"counts": random_batch(1)}, {"counts": 1})
    assert mine.offsets() == {"counts": number - 1}
    assert caplog.text.count("is full: free some space, or move state_dir to a larger disk; its tasks wait") == 1
    disk.make_room()

    def goes_on() -> bool:
        look_and_mend(manager)
        return refusal(mine, batch, number) is None

    until(goes_on, "the write is made", 60)
    assert found(mine) == before | batch
    assert "has room again" in caplog.text
    for storage in (mine, other):
        storage.close()
    manager.release()
    again = reopened(directory, engines=open_engines(engine))
    assert found(again.open(TASK, [COUNTS])) == before | batch
    again.release()


@pytest.mark.parametrize(
    "finds_no_room",
    [
        pytest.param(lambda mine, _: partial(refused_at_last, mine), id="a write"),
        pytest.param(lambda mine, files: partial(next, linked(mine, files)), id="table files that are linked"),
    ],
)
def test_where_the_client_is_to_stop_what_finds_no_room_ends_it_with_the_directory(
    finds_no_room: Callable[[Any, Path], Callable[[], object]],
    directory: StateDirectory,
    disk: SmallDisk,
    manager: RangeStateManager,
) -> None:
    manager.room.stops = True
    mine = manager.open(TASK, [COUNTS])
    meet = finds_no_room(mine, directory.path / "files")
    disk.leave(0)
    with pytest.raises(DecidedError, match=f"disk full: the state in {disk.path} can't be written: free some space"):
        meet()
    mine.close()


def test_a_database_that_a_full_disk_keeps_closed_at_the_start_waits_for_room_and_is_shown_as_full(
    directory: StateDirectory, disk: SmallDisk, manager: RangeStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    mine = manager.open(TASK, [COUNTS])
    mine.apply({"counts": random_batch(0)}, {"counts": 0})
    before = found(mine)
    mine.close()
    manager.release()
    disk.leave(0)
    again = reopened(directory)
    with pytest.raises(StateLockedError):
        again.open(TASK, [COUNTS])
    metrics = Metrics(StepClock())
    measures = DatabaseMeasures(metrics)
    assert again.unopened() == [TASK.subtopology]
    measures.publish(again.databases(), 0, again.unopened())
    (shown,) = metrics.snapshot()["stream-state-database-metrics"]
    assert shown["metrics"]["writes-wait"] == 1
    assert not [record for record in caplog.records if "begins without its state" in record.getMessage()]
    disk.make_room()
    mine = again.open(TASK, [COUNTS])
    assert (found(mine), again.unopened()) == (before, [])
    mine.close()
    again.release()


def test_a_store_that_is_emptied_on_a_full_disk_is_empty_at_once(
    disk: SmallDisk, manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "STUCK_MS", 2_000)
    mine = manager.open(TASK, [COUNTS])
    mine.apply({"counts": random_batch(0)}, {"counts": 0})
    disk.leave(0)
    refused_at_last(mine)
    mine.clear("counts", "its changelog is another one")
    assert (found(mine), mine.offsets()) == ({}, {"counts": None})
    disk.make_room()
    batch = random_batch(1)
    until(lambda: look_and_mend(manager) or refusal(mine, batch, 1) is None, "the write is made", 60)
    assert found(mine) == batch
    mine.close()


def test_a_store_that_is_emptied_before_any_write_has_met_the_full_disk_is_empty_at_once(
    disk: SmallDisk, manager: RangeStateManager
) -> None:
    mine = manager.open(TASK, [COUNTS])
    mine.apply({"counts": random_batch(0)}, {"counts": 0})
    disk.leave(0)
    mine.clear("counts", "its changelog is another one")
    assert (found(mine), mine.offsets()) == ({}, {"counts": None})
    mine.close()


def test_table_files_are_linked_once_there_is_room(
    directory: StateDirectory, disk: SmallDisk, manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a snapshot, when a store begins with it."""
    monkeypatch.setattr(disk_room, "STUCK_MS", 2_000)
    mine = manager.open(TASK, [COUNTS])
    steps = linked(mine, directory.path / "files")
    disk.leave(0)
    next(steps)
    assert found(mine) == {}
    assert manager.databases()[0].is_full
    disk.make_room()
    until(lambda: look_and_mend(manager) or (next(steps, None), found(mine))[1], "the files are linked", 60)
    mine.apply({}, {"counts": 2})
    assert (found(mine), mine.offsets()) == ({b"a": b"1", b"b": b"2"}, {"counts": 2})
    mine.close()


def test_a_task_is_opened_once_there_is_room_for_its_stores(
    disk: SmallDisk, manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "STUCK_MS", 2_000)
    mine = manager.open(TASK, [COUNTS])
    disk.leave(0)
    refused_at_last(mine)
    mine.close()
    newcomer = TaskId(TASK.subtopology, 9)

    def opened() -> Any:
        try:
            return manager.open(newcomer, [COUNTS, UNLOGGED])
        except StateLockedError:
            return None

    assert opened() is None
    disk.make_room()
    until(lambda: look_and_mend(manager) or opened() is not None, "the stores are opened", 60)
    manager._open[newcomer].close()


def test_an_engine_that_stays_full_on_a_disk_with_room_is_stuck(tmp_path: Path) -> None:
    clock = StepClock()
    room = DiskRoom(clock)
    assert not room.is_stuck(tmp_path)
    room.refused(tmp_path)
    assert not room.is_stuck(tmp_path)
    clock.advance(disk_room.STUCK_MS)
    assert room.is_stuck(tmp_path)
    room.written(tmp_path)
    assert not room.is_stuck(tmp_path)
