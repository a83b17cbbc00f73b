"""A task's stores in ranges: one row with all offsets, written with the last step of a commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateBusyError, StateCorruptError, StateError
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Batch
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.steps import STEP_BYTES, STEP_ENTRIES, size
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending.mender import Mending
from milestones.m6_state_manager.ranges import prefix_of
from milestones.m6_state_manager.subtopology_engine import ROWS
from tests.milestones.m6_state_manager.states import (
    COUNTS,
    NEIGHBOUR,
    SUMS,
    TASK,
    UNLOGGED,
    VOLATILE,
    entries,
    found,
    reopened,
)

ALL = [COUNTS, SUMS, UNLOGGED, VOLATILE]


class Writes:
    """What reaches the engine; the write of that number, and all after it, fail."""

    def __init__(self, storage: Any, monkeypatch: pytest.MonkeyPatch, fails_from: int | None = None) -> None:
        self.calls: list[dict[str, Batch]] = []
        self.synced = 0
        engine = storage._engine.engine
        apply, sync = engine.apply, engine.sync

        def noted(batches: dict[str, Batch], offsets: dict[str, int], *, wait: bool) -> None:
            if fails_from is not None and len(self.calls) >= fails_from:
                raise StateError("the disk is gone")
            self.calls.append(dict(batches))
            apply(batches, offsets, wait=wait)

        def synced() -> None:
            self.synced += 1
            sync()

        monkeypatch.setattr(engine, "apply", noted)
        monkeypatch.setattr(engine, "sync", synced)


def test_a_commit_is_written_in_small_steps_the_last_one_with_the_row(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = manager.open(TASK, [COUNTS, SUMS])
    writes = Writes(storage, monkeypatch)
    sums = {b"big": b"x" * STEP_BYTES, **entries(10)}
    storage.apply({"counts": entries(4_500), "sums": sums}, {"counts": 7, "sums": 3})
    *first, last = writes.calls
    assert first
    assert all(ROWS not in call for call in first)
    assert ROWS in last
    for call in writes.calls:
        assert sum(map(len, call.values())) <= STEP_ENTRIES + 1
        assert sum(size(batch) for batch in call.values()) <= STEP_BYTES + 1_000 or len(call) == 1
    assert storage.offsets() == {"counts": 7, "sums": 3}
    assert (len(found(storage)), len(found(storage, "sums"))) == (4_500, 11)


def test_what_breaks_off_leaves_the_offsets_where_they_were(
    manager: RangeStateManager, directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = manager.open(TASK, [COUNTS, UNLOGGED])
    storage.apply({"counts": entries(10), "unlogged": entries(10)}, {"counts": 5})
    Writes(storage, monkeypatch, fails_from=2)
    with pytest.raises(StateError, match="disk is gone"):
        storage.apply({"counts": entries(9_000, b"w"), "unlogged": entries(20, b"w")}, {"counts": 9})
    assert storage.offsets()["counts"] == 5
    assert found(storage, "unlogged") == entries(10), "a store without changelog is written with the last step"
    storage.close()
    manager.release()
    again = reopened(directory)
    storage = again.open(TASK, [COUNTS, UNLOGGED])
    assert storage.offsets()["counts"] == 5
    storage.apply({"counts": entries(9_000, b"w")}, {"counts": 9})
    assert (storage.offsets()["counts"], found(storage)) == (9, entries(9_000, b"w"))


def test_a_commit_of_a_store_without_changelog_is_synced_and_no_other_one(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged, unlogged = manager.open(TASK, [COUNTS]), manager.open(NEIGHBOUR, [COUNTS, UNLOGGED])
    writes = Writes(logged, monkeypatch)
    logged.apply({"counts": entries(1)}, {"counts": 1})
    assert writes.synced == 0
    unlogged.apply({"counts": entries(1)}, {"counts": 1})
    assert writes.synced == 1


def test_an_emptied_store_is_empty_at_once_and_can_be_filled_and_its_neighbours_keep_theirs(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    tasks = [manager.open(task, ALL) for task in (TASK, NEIGHBOUR)]
    for storage in tasks:
        storage.apply({spec.name: entries(50) for spec in ALL}, {spec.name: 5 for spec in ALL if spec.logged})
    emptied, neighbour = tasks
    before = emptied.namespace("counts")
    emptied.clear("counts", "for a test")
    emptied.clear("volatile")
    with pytest.raises(StateError, match="was closed"):
        before.get(b"key-000001")
    assert (found(emptied), found(emptied, "volatile"), emptied.offsets()["counts"]) == ({}, {}, None)
    assert (found(emptied, "sums"), found(neighbour)) == (entries(50), entries(50))
    emptied.apply({"counts": entries(3, b"new")}, {"counts": 1})
    for storage in tasks:
        storage.close()
    manager.release()
    storage = reopened(directory).open(TASK, ALL)
    assert (found(storage), storage.offsets()["counts"]) == (entries(3, b"new"), 1)


def test_entries_without_an_offset_are_gone_when_the_task_is_opened(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write of a store was cut off."""
    storage = manager.open(TASK, [COUNTS])
    Writes(storage, monkeypatch, fails_from=1)
    with pytest.raises(StateError):
        storage.apply({"counts": entries(5_000)}, {"counts": 9})
    assert found(storage)
    storage.close()
    monkeypatch.undo()
    assert found(manager.open(TASK, [COUNTS])) == {}


def test_expired_rows_are_gone_and_those_of_neighbours_arent(manager: RangeStateManager) -> None:
    tasks = [manager.open(task, [COUNTS]) for task in (TASK, NEIGHBOUR)]
    for storage in tasks:
        storage.apply({"counts": entries(10)}, {"counts": 1})
    tasks[0].expire("counts", [(b"key-000002", b"key-000004"), (b"key-000008", b"z")])
    assert sorted(found(tasks[0])) == [b"key-00000%d" % n for n in (0, 1, 4, 5, 6, 7)]
    assert found(tasks[1]) == entries(10)


def test_changelog_ids_are_kept_and_only_of_stores_on_disk(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    storage = manager.open(TASK, [COUNTS, VOLATILE])
    storage.keep_changelog_ids({"counts": "id-1", "volatile": "id-2"})
    storage.close()
    manager.release()
    assert reopened(directory).open(TASK, [COUNTS, VOLATILE]).changelog_ids() == {"counts": "id-1"}


def test_a_task_with_stores_in_memory_only_leaves_nothing_on_disk(
    manager: RangeStateManager, directory: StateDirectory
) -> None:
    storage = manager.open(TASK, [VOLATILE])
    storage.keep_changelog_ids({"volatile": "id-2"})
    storage.apply({"volatile": entries(3)}, {"volatile": 3})
    assert (found(storage, "volatile"), storage.offsets()) == (entries(3), {"volatile": 3})
    assert storage.memory().content == storage.memory().all_bytes > 0
    storage._in_memory["volatile"].engine.close()
    assert storage.memory().all_bytes == 0, "it is asked while it is being closed"
    storage.close()
    assert sorted(path.name for path in directory.path.iterdir()) == [".lock", "process"]


def test_a_commit_that_an_engine_has_no_time_for_is_refused_at_once_and_made_again_whole(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is held then, and no thread with it."""
    storage = manager.open(TASK, [COUNTS, UNLOGGED])
    storage.apply({"counts": entries(10)}, {"counts": 5})
    engine = storage._engine.engine
    tries: list[bool] = []
    apply = engine.apply

    def busy(batches: dict[str, Batch], offsets: dict[str, int], *, wait: bool) -> None:
        tries.append(wait)
        if len(tries) == 3:
            raise StateBusyError("the stores", "flushes are behind", "wait", 10)
        apply(batches, offsets, wait=wait)

    monkeypatch.setattr(engine, "apply", busy)
    commit = {"counts": entries(9_000, b"w"), "unlogged": entries(20, b"w")}, {"counts": 9}
    with pytest.raises(StateBusyError):
        storage.apply(*commit)
    assert not any(tries)
    assert storage.offsets()["counts"] == 5
    storage.apply(*commit)
    assert (storage.offsets()["counts"], found(storage)) == (9, entries(9_000, b"w"))
    assert found(storage, "unlogged") == entries(20, b"w")


@pytest.mark.parametrize("prefix", [prefix_of(TASK.partition), prefix_of(TASK.partition + 7), b""])
def test_files_are_linked_when_their_keys_begin_as_the_range_does_and_written_else(
    manager: RangeStateManager, tmp_path: Path, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour, storage = manager.open(NEIGHBOUR, [COUNTS]), manager.open(TASK, [COUNTS])
    neighbour.apply({"counts": {b"a": b"its own"}}, {"counts": 1})
    (database,) = manager.databases()
    linked: list[str] = []
    ingest = database.engine.ingest
    monkeypatch.setattr(database.engine, "ingest", lambda store, files: (linked.append(store), ingest(store, files))[1])
    writer = SstWriter(tmp_path)
    writer.write(iter([(prefix + b"a", b"1"), (prefix + b"b", b"2")]))
    for _ in storage.ingest("counts", list(writer.files), prefix):
        pass
    storage.apply({}, {"counts": 2})
    assert (found(storage), storage.offsets()) == ({b"a": b"1", b"b": b"2"}, {"counts": 2})
    assert found(neighbour) == {b"a": b"its own"}
    assert linked == (["counts"] if prefix == prefix_of(TASK.partition) else [])


def linked(storage: Any, directory: Path) -> Any:
    """The steps of taking in one file of two keys."""
    prefix = prefix_of(TASK.partition)
    directory.mkdir(exist_ok=True)
    writer = SstWriter(directory)
    writer.write(iter([(prefix + b"a", b"1"), (prefix + b"b", b"2")]))
    return storage.ingest("counts", list(writer.files), prefix)


def test_a_file_that_is_damaged_damages_no_database(manager: RangeStateManager, tmp_path: Path) -> None:
    storage = manager.open(TASK, [COUNTS])
    steps = linked(storage, tmp_path / "files")
    next((tmp_path / "files").iterdir()).write_bytes(b"no table")
    with pytest.raises(StateCorruptError):
        list(steps)
    (database,) = manager.databases()
    assert not database.gate.reason
    storage.clear("counts")
    storage.apply({"counts": {b"k": b"v"}}, {"counts": 1})
    assert found(storage) == {b"k": b"v"}


def test_files_are_linked_once_a_damaged_database_is_mended(manager: RangeStateManager, tmp_path: Path) -> None:
    storage = manager.open(TASK, [COUNTS])
    (database,) = manager.databases()
    database.damage("a block is damaged")
    steps = linked(storage, tmp_path / "files")
    for _ in range(3):
        next(steps)
    assert found(storage) == {}
    Mending(database, manager.engines).run()
    list(steps)
    storage.apply({}, {"counts": 2})
    assert found(storage) == {b"a": b"1", b"b": b"2"}
