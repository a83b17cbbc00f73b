"""A damaged database is mended under its tasks: what can be read stays, only a damaged range is restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import (
    StateBusyError,
    StateCorruptError,
    StateError,
    StateLockedError,
)
from milestones.common.records import StoreId, TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import SstWriter
from milestones.common.state.steps import STEP_ENTRIES
from milestones.m6_state_manager import subtopology_engine
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.mending import mender
from milestones.m6_state_manager.mending.database_folder import aside, current, make_current
from milestones.m6_state_manager.ranges import prefix_of
from tests.milestones.m6_state_manager.damage import ALL, Damaged, mend
from tests.milestones.m6_state_manager.states import (
    COUNTS,
    NEIGHBOUR,
    OTHER,
    SUMS,
    TASK,
    UNLOGGED,
    entries,
    found,
    reopened,
)


@pytest.mark.parametrize("engine", ["rocksdict", "rocksdb"])
def test_only_the_damaged_range_is_lost_and_its_sub_topologys_writes_wait_meanwhile(
    directory: StateDirectory, engine: str
) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    d = Damaged(directory, engine=engine)
    assert d.meet().damaged == {StoreId(TASK, "counts")}
    for storage in (d.damaged, d.neighbour):
        with pytest.raises(StateBusyError, match="damaged and being mended"):
            storage.apply({"counts": entries(1)}, {"counts": 8})
    assert found(d.neighbour) == d.contents[NEIGHBOUR, "counts"]
    d.other.apply({"counts": entries(1)}, {"counts": 8})

    mend(d.manager)
    d.neighbour.apply({"counts": entries(1)}, {"counts": 8})
    assert found(d.neighbour) == d.contents[NEIGHBOUR, "counts"] | entries(1)
    for call in (lambda: found(d.damaged), lambda: d.damaged.apply({"counts": entries(1)}, {"counts": 8})):
        with pytest.raises(StateCorruptError) as raised:
            call()
        assert raised.value.damaged == {StoreId(TASK, "counts")}
    assert d.damaged.offsets() == {"counts": None}

    d.damaged.clear("counts", "it is damaged")
    assert found(d.damaged) == {}
    d.damaged.apply({"counts": entries(5)}, {"counts": 9})
    d.end()
    again = reopened(directory, engines=open_engines(engine))
    assert {task: found(again.open(task, [COUNTS])) for task in ALL} == {
        TASK: entries(5), NEIGHBOUR: d.contents[NEIGHBOUR, "counts"] | entries(1),
        OTHER: d.contents[OTHER, "counts"] | entries(1),
    }  # fmt: skip
    assert list(aside(d.database.path).glob("*.sst")), "the damaged files are kept"
    again.release()


def test_every_reader_of_a_damaged_range_is_told_and_damage_met_twice_is_mended_once(damaged: Damaged) -> None:
    counts = damaged.damaged.namespace("counts")
    calls: list[Callable[[], object]] = [
        lambda: [counts.get(key) for key in damaged.contents[TASK, "counts"]],
        lambda: list(counts.scan(None, None, reverse=True)),
        lambda: counts.scan_bounded(b"", b"z", 10_000),
        lambda: counts.reader()(b"", b"z", 10_000),
    ]
    told: list[bool] = []
    damaged.database.tell_damage = lambda: told.append(True)
    for call in calls:
        with pytest.raises(StateCorruptError) as raised:
            call()
        assert raised.value.damaged == {StoreId(TASK, "counts")}
    assert told == [True]
    mend(damaged.manager)
    for call in calls:
        with pytest.raises(StateCorruptError):
            call()
    assert not damaged.database.gate.reason, "what is lost is no new damage"


def test_damage_that_a_write_meets_costs_the_writer_nothing(damaged: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB takes no write any more, once a compaction has met a damaged block."""

    def refused(*_: Any, **__: Any) -> None:
        raise StateCorruptError("block checksum mismatch", [StoreId(TASK, "counts"), StoreId(NEIGHBOUR, "counts")])

    monkeypatch.setattr(damaged.database.engine, "apply", refused)
    commit = {"counts": entries(2, b"new")}, {"counts": 8}
    with pytest.raises(StateBusyError):
        damaged.neighbour.apply(*commit)
    mend(damaged.manager)
    damaged.neighbour.apply(*commit)
    assert damaged.neighbour.offsets() == {"counts": 8}
    assert found(damaged.neighbour) == damaged.contents[NEIGHBOUR, "counts"] | entries(2, b"new")


def test_a_closed_task_has_its_range_or_begins_without_it(directory: StateDirectory) -> None:
    d = Damaged(directory)
    d.meet()
    d.damaged.close()
    d.neighbour.close()
    mend(d.manager)
    assert d.manager.closed_offsets()[NEIGHBOUR] == {"counts": 7}
    assert d.manager.closed_offsets()[TASK] == {}
    assert found(d.manager.open(NEIGHBOUR, [COUNTS])) == d.contents[NEIGHBOUR, "counts"]
    again = d.manager.open(TASK, [COUNTS])
    again.apply({"counts": entries(1)}, {"counts": 1})
    assert found(again) == entries(1)
    d.end()


def test_a_commit_that_a_mending_breaks_is_made_again_from_its_beginning(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it is in a range that nobody could read."""
    written_steps = damaged.database.engine.apply

    def meet_and_mend(batches: Any, offsets: Any, *, wait: bool) -> None:
        written_steps(batches, offsets, wait=wait)
        monkeypatch.undo()

    monkeypatch.setattr(damaged.database.engine, "apply", meet_and_mend)
    batch = entries(3 * STEP_ENTRIES, b"new")
    write = damaged.database.write

    def between(*arguments: Any, **named: Any) -> None:
        write(*arguments, **named)
        damaged.database.write = write
        damaged.meet()
        mend(damaged.manager)

    damaged.database.write = between
    with pytest.raises(StateBusyError):
        damaged.neighbour.apply({"counts": batch}, {"counts": 8})
    assert damaged.neighbour.offsets() == {"counts": 7}
    damaged.neighbour.apply({"counts": batch}, {"counts": 8})
    assert found(damaged.neighbour) == damaged.contents[NEIGHBOUR, "counts"] | batch


def test_a_store_that_is_emptied_meanwhile_is_empty_at_once_and_takes_writes_afterwards(damaged: Damaged) -> None:
    damaged.meet()
    before = damaged.damaged.namespace("counts")
    damaged.damaged.clear("counts", "it is damaged")
    damaged.neighbour.clear("counts")
    with pytest.raises(StateError, match="was closed"):
        before.get(b"a")
    for storage in (damaged.damaged, damaged.neighbour):
        assert (found(storage), storage.offsets()) == ({}, {"counts": None})
        with pytest.raises(StateBusyError):
            storage.apply({"counts": entries(1)}, {"counts": 1})
    mend(damaged.manager)
    for storage in (damaged.damaged, damaged.neighbour):
        assert found(storage) == {}
        storage.apply({"counts": entries(4)}, {"counts": 1})
        assert found(storage) == entries(4)


def test_a_row_that_is_written_while_the_state_thread_empties_stores_stays(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = manager.open(TASK, [COUNTS, SUMS])
    storage.apply({"counts": entries(3), "sums": entries(3)}, {"counts": 5, "sums": 5})
    (database,) = manager.databases()
    database.damage("a test says so")
    storage.clear("counts")
    database.gate.open()
    wipe, writes = database.engine.wipe, [lambda: storage.apply({"sums": entries(4)}, {"sums": 9})]

    def meanwhile(*args: Any, **named: Any) -> None:
        writes.pop()()
        wipe(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(database.engine, "wipe", meanwhile)
        database.settle()
    for write in writes:
        write()
    assert (found(storage), storage.offsets()) == ({}, {"counts": None, "sums": 9})
    storage.close()
    database.settle()
    assert database.open_store("counts").get(prefix_of(TASK.partition) + b"key-000000") is None


def test_a_restoration_from_table_files_goes_on_after_the_mending(damaged: Damaged, tmp_path: Path) -> None:
    damaged.neighbour.clear("counts")
    writer = SstWriter(tmp_path)
    writer.write(iter(sorted(entries(3 * STEP_ENTRIES).items())))
    steps = damaged.neighbour.ingest("counts", list(writer.files))
    next(steps)
    damaged.meet()
    for _ in range(3):
        next(steps)
    mend(damaged.manager)
    for _ in steps:
        pass
    damaged.neighbour.apply({}, {"counts": 5})
    assert found(damaged.neighbour) == entries(3 * STEP_ENTRIES)


def test_a_task_that_was_opened_while_another_one_closed_is_mended_as_any_other(
    manager: RangeStateManager, tmp_path: Path
) -> None:
    """By another thread. It has no row yet: it takes table files in."""
    leaving = manager.open(TASK, [COUNTS])
    (database,) = manager.databases()
    opened: list[Any] = []

    class Meanwhile(dict[str, Any]):
        def items(self) -> Any:
            found = list(super().items())
            if not opened:
                opened.append(manager.open(NEIGHBOUR, [COUNTS]))
            return found

    database.owners = Meanwhile(database.owners)
    leaving.close()
    (storage,) = opened
    writer = SstWriter(tmp_path)
    writer.write(iter(sorted(entries(3 * STEP_ENTRIES).items())))
    steps = storage.ingest("counts", list(writer.files))
    next(steps)
    database.damage("a test says so")
    mend(manager)
    for _ in steps:
        pass
    storage.apply({}, {"counts": 5})
    assert found(storage) == entries(3 * STEP_ENTRIES)


def test_changelog_ids_that_come_meanwhile_are_kept(directory: StateDirectory) -> None:
    d = Damaged(directory)
    d.meet()
    d.neighbour.keep_changelog_ids({"counts": "an id"})
    mend(d.manager)
    d.end()
    again = reopened(directory)
    assert again.open(NEIGHBOUR, [COUNTS]).changelog_ids() == {"counts": "an id"}
    again.release()


def test_no_task_of_the_sub_topology_is_opened_or_removed_before_it_is_mended(damaged: Damaged) -> None:
    damaged.neighbour.close()
    damaged.meet()
    with pytest.raises(StateLockedError, match="being mended"):
        damaged.manager.open(NEIGHBOUR, [COUNTS])
    with pytest.raises(StateLockedError, match="being mended"):
        damaged.manager.remove(NEIGHBOUR)
    damaged.manager.open(TaskId(3, 9), [COUNTS]).close()
    mend(damaged.manager)
    assert found(damaged.manager.open(NEIGHBOUR, [COUNTS])) == damaged.contents[NEIGHBOUR, "counts"]


def test_a_store_without_changelog_that_is_damaged_is_of_no_commit(directory: StateDirectory) -> None:
    d = Damaged(directory, COUNTS, UNLOGGED, hit="unlogged")
    assert d.damaged.commit_number() == 0
    with pytest.raises(StateCorruptError):
        found(d.damaged, "unlogged")
    d.neighbour.close()
    mend(d.manager)
    assert d.damaged.commit_number() == -1
    assert d.damaged.offsets()["counts"] == 7
    d.damaged.clear("unlogged", "it is damaged")
    assert (found(d.damaged, "unlogged"), found(d.damaged)) == ({}, d.contents[TASK, "counts"])
    assert d.manager.open(NEIGHBOUR, d.specs).commit_number() == 0
    d.end()


def test_a_folder_that_is_removed_under_the_database_is_named_and_made_anew(directory: StateDirectory) -> None:
    d = Damaged(directory, COUNTS, SUMS)
    found(d.neighbour)
    shutil.rmtree(d.database.path)
    d.database.look()
    with pytest.raises(StateBusyError):
        d.neighbour.apply({"counts": entries(1)}, {"counts": 8})
    mend(d.manager)
    for storage in (d.damaged, d.neighbour):
        for store in ("counts", "sums"):
            try:
                assert found(storage, store) == d.contents[storage.task, store], "what is open can be read"
            except StateCorruptError:
                storage.clear(store, "it is gone")
                storage.apply({store: entries(1)}, {store: 1})
    d.end()
    again = reopened(directory)
    assert set(again.open(TASK, [COUNTS, SUMS]).offsets().values()) <= {1, 7}
    again.release()


def test_a_mending_that_fails_leaves_all_as_it_was_and_can_be_repeated(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged.meet()
    with monkeypatch.context() as patched:
        patched.setattr(mender, "SstWriter", full)
        with pytest.raises(StateError, match="disk full"):
            mend(damaged.manager)
    assert damaged.database.gate.reason
    assert found(damaged.neighbour) == damaged.contents[NEIGHBOUR, "counts"]
    assert {path.name for path in damaged.database.path.iterdir() if path.is_dir()} == {"rocksdb"}
    mend(damaged.manager)
    damaged.neighbour.apply({"counts": entries(1)}, {"counts": 8})


def full(*_: Any) -> Any:
    raise StateError("disk full: free some space")


def test_the_database_that_counts_is_there_whatever_the_disk_says_when_another_one_takes_its_place(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is written, then the folder's entries aren't brought to the disk."""
    d = Damaged(directory)
    d.meet()
    with monkeypatch.context() as patched:
        patched.setattr(subtopology_engine, "make_current", written_and_failed)
        with pytest.raises(StateError, match="disk full"):
            mend(d.manager)
    assert (d.database.path / current(d.database.path)).is_dir()
    mend(d.manager)
    assert found(d.neighbour) == d.contents[NEIGHBOUR, "counts"]
    d.end()
    again = reopened(directory)
    assert found(again.open(NEIGHBOUR, [COUNTS])) == d.contents[NEIGHBOUR, "counts"]
    again.release()


def written_and_failed(path: Path, folder: str) -> None:
    make_current(path, folder)
    full()


def test_a_kill_at_any_step_of_a_mending_loses_nothing_that_can_be_read(
    directory: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = Damaged(directory)
    d.meet()
    copies: list[tuple[str, Path]] = []

    def killed_at(point: str) -> None:
        copies.append((point, tmp_path / f"copy-{len(copies)}"))
        shutil.copytree(directory.path, copies[-1][1] / directory.path.name)

    for module in (mender, subtopology_engine):
        monkeypatch.setattr(module, "reach", killed_at)
    mend(d.manager)
    killed_at("the end")
    d.end()
    assert {point for point, _ in copies} == {
        "mend.begun", "mend.range", "mend.copied", "mend.current", "the end",
    }  # fmt: skip
    for point, copy in copies:
        again = reopened(StateDirectory(copy, "words", directory.clock))  # type: ignore[arg-type]
        tasks = {task: again.open(task, [COUNTS]) for task in ALL}
        if tasks[TASK].offsets()["counts"] is not None:
            with pytest.raises(StateCorruptError):
                found(tasks[TASK])
            mend(again)
        else:
            assert found(tasks[TASK]) == {}, point
        for task in (NEIGHBOUR, OTHER):
            assert (found(tasks[task]), tasks[task].offsets()) == (d.contents[task, "counts"], {"counts": 7}), point
        left = {path.name for path in (copy / "words" / "engines" / "0").iterdir() if path.is_dir()} - {"corrupt"}
        assert len(left) <= 2, "nothing is left of a mending that broke off"
        for storage in tasks.values():
            storage.close()
        again.release()
