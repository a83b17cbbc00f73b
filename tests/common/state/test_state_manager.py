"""The stores of a task: opened together, closed together, damaged one by one."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from milestones.common.errors import StateCorruptError, StateError, StateFormatError, StateLockedError
from milestones.common.records import StoreId, TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.task_storage import LocalTaskStorage

TASK = TaskId(0, 1)
COUNTS, SUMS = StoreSpec("counts", "timestamped-key-value"), StoreSpec("sums")
VOLATILE = StoreSpec("volatile", persistent=False)


def put(state: LocalTaskStorage, store: str, offset: int) -> None:
    state.apply({store: {b"k": b"%d" % offset}}, {store: offset})


def found(state: LocalTaskStorage) -> dict[str, tuple[bytes | None, int | None]]:
    namespaces = {name: store.namespace for name, store in state.stores.items()}
    return {name: (namespace.get(b"k"), namespace.offset()) for name, namespace in namespaces.items()}


def written(local: LocalStateManager, *specs: StoreSpec, offset: int = 5) -> Path:
    """A task directory with all `specs` at this offset."""
    state = local.open(TASK, specs)
    for spec in specs:
        put(state, spec.name, offset)
    state.close()
    return state.path


def reopened(local: LocalStateManager, *specs: StoreSpec) -> dict[str, tuple[bytes | None, int | None]]:
    """What a task that is opened, and closed again, finds in its stores."""
    state = local.open(TASK, specs)
    content = found(state)
    state.close()
    return content


def damage(path: Path) -> None:
    for file in path.glob("MANIFEST-*"):
        file.write_bytes(b"nonsense" * 100)


def test_persistent_stores_keep_content_and_offset_and_those_in_memory_don_t(local: LocalStateManager) -> None:
    written(local, COUNTS, SUMS, VOLATILE)
    state = local.open(TASK, [COUNTS, SUMS, VOLATILE])
    assert found(state) == {"counts": (b"5", 5), "sums": (b"5", 5), "volatile": (None, None)}
    assert sorted(path.name for path in (state.path / "rocksdb").iterdir()) == ["counts", "sums"]
    assert state.memory().all_bytes >= 0
    state.close()


def test_a_task_is_open_once_and_free_again_after_its_close(local: LocalStateManager) -> None:
    state = local.open(TASK, [COUNTS], owner="thread 1")
    with pytest.raises(StateLockedError, match="thread 1"):
        local.open(TASK, [COUNTS])
    state.close()
    state.close()
    local.open(TASK, [COUNTS]).close()


def test_a_task_without_persistent_stores_leaves_nothing_on_disk(local: LocalStateManager) -> None:
    for specs in ([], [VOLATILE]):
        state = local.open(TASK, specs)
        with pytest.raises(StateLockedError):
            local.open(TASK, specs)
        state.close()
        assert not state.path.exists()


def test_the_manifest_says_who_wrote_the_stores_and_what_they_are(local: LocalStateManager) -> None:
    state = local.open(TASK, [COUNTS, VOLATILE], transactional_id="words-1")
    content = json.loads((state.path / "manifest.json").read_text())
    assert content == {
        "format": 1,
        "application_id": "words",
        "task": "0_1",
        "stage": "baseline",
        "process_id": local.directory.process_id,
        "transactional_id": "words-1",
        "static_id": "static-1",
        "stores": {
            "counts": {
                "kind": "timestamped-key-value", "engine": local.engines.name, "layout": 1,
                "changelog_id": None,
                "arrangement": "",
            }
        },
    }
    state.close()


def test_a_wiped_directory_just_starts_empty(local: LocalStateManager) -> None:
    path = written(local, COUNTS)
    shutil.rmtree(path / "rocksdb")
    assert reopened(local, COUNTS) == {"counts": (None, None)}
    shutil.rmtree(path)
    assert reopened(local, COUNTS) == {"counts": (None, None)}


def test_a_damaged_store_starts_empty_and_the_others_keep_theirs(
    local: LocalStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(local, COUNTS, SUMS)
    for _ in range(2):
        damage(path / "rocksdb" / "counts")
        state = local.open(TASK, [COUNTS, SUMS])
        assert found(state) == {"counts": (None, None), "sums": (b"5", 5)}
        put(state, "counts", 1)
        state.close()
    assert [kept.name for kept in (path / "corrupt").iterdir()] == ["counts"]
    assert "'counts' of task 0_1 starts empty" in caplog.text
    assert reopened(local, COUNTS, SUMS) == {"counts": (b"1", 1), "sums": (b"5", 5)}


def test_content_without_an_offset_is_dropped_where_a_changelog_has_it(local: LocalStateManager) -> None:
    unlogged = StoreSpec("unlogged", logged=False)
    state = local.open(TASK, [COUNTS, unlogged])
    state.apply({name: {b"k": b"1"} for name in ("counts", "unlogged")}, {})
    state.close()
    assert reopened(local, COUNTS, unlogged) == {"counts": (None, None), "unlogged": (b"1", None)}


def test_a_store_whose_damage_shows_late_is_rebuilt_in_place_and_the_log_says_why(
    local: LocalStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    state = local.open(TASK, [COUNTS, SUMS, VOLATILE])
    for name in ("counts", "sums", "volatile"):
        put(state, name, 5)
    old = state.namespace("counts")
    namespace = state.clear("counts", "a block is damaged")
    assert caplog.text.endswith("counts: a block is damaged\n")
    assert state.namespace("counts") is namespace
    state.clear("volatile", "a block is damaged")
    assert found(state) == {"sums": (b"5", 5), "counts": (None, None), "volatile": (None, None)}
    with pytest.raises(StateError):
        old.get(b"k")
    state.close()


def test_the_changelog_ids_of_persistent_stores_outlive_the_task(local: LocalStateManager) -> None:
    state = local.open(TASK, [COUNTS, SUMS, VOLATILE])
    assert state.changelog_ids() == {}
    state.keep_changelog_ids({"counts": "first", "volatile": "another"})
    state.close()
    state = local.open(TASK, [COUNTS, SUMS, VOLATILE])
    assert state.changelog_ids() == {"counts": "first"}
    state.keep_changelog_ids({"counts": "second", "sums": "third"})
    assert state.changelog_ids() == {"counts": "second", "sums": "third"}
    state.close()


def test_without_persistent_stores_no_changelog_id_is_written(local: LocalStateManager) -> None:
    state = local.open(TASK, [VOLATILE])
    state.keep_changelog_ids({"volatile": "first"})
    assert state.changelog_ids() == {}
    assert not state.path.exists()
    state.close()


def test_files_of_the_other_engine_are_restored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("rocksdb")
    directory = StateDirectory(tmp_path, "words")
    for before, after in (("rocksdict", "rocksdb"), ("rocksdb", "rocksdict")):
        written(LocalStateManager(directory, open_engines(before), "baseline"), COUNTS)
        state = LocalStateManager(directory, open_engines(after), "baseline").open(TASK, [COUNTS])
        assert found(state) == {"counts": (None, None)}
        assert f"written by the engine '{before}'" in caplog.text
        state.close()
    directory.close()


def test_a_changed_kind_is_refused_and_nothing_is_touched(local: LocalStateManager) -> None:
    written(local, COUNTS)
    with pytest.raises(StateFormatError, match="timestamped-key-value"):
        local.open(TASK, [StoreSpec("counts")])
    assert reopened(local, COUNTS) == {"counts": (b"5", 5)}


def test_a_store_that_leaves_the_topology_for_a_while_is_kept(local: LocalStateManager) -> None:
    written(local, COUNTS, SUMS)
    local.open(TASK, [SUMS]).close()
    with pytest.raises(StateFormatError):
        local.open(TASK, [StoreSpec("counts"), SUMS])
    assert reopened(local, COUNTS, SUMS) == {"counts": (b"5", 5), "sums": (b"5", 5)}


def test_a_task_directory_of_something_else_is_refused_and_left_alone(local: LocalStateManager) -> None:
    path = local.directory.task_path(TASK)
    (path / "rocksdb" / "counts").mkdir(parents=True)
    (path / ".checkpoint").write_text("0")
    with pytest.raises(StateFormatError, match=r"no manifest but holds \.checkpoint, rocksdb"):
        local.open(TASK, [COUNTS])
    assert (path / ".checkpoint").read_text() == "0"


def test_a_task_directory_that_was_moved_from_another_task_is_refused(local: LocalStateManager) -> None:
    path = written(local, COUNTS)
    path.rename(path.with_name("0_2"))
    with pytest.raises(StateFormatError, match="holds task 0_1"):
        local.open(TaskId(0, 2), [COUNTS])


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_a_store_name_that_leaves_its_directory_is_refused(local: LocalStateManager, name: str) -> None:
    with pytest.raises(StateError, match="its name"):
        local.open(TASK, [COUNTS, StoreSpec(name)])
    assert local.directory.locked() == {}


def test_no_error_on_the_way_leaves_a_handle_or_a_lock(
    local: LocalStateManager, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], int]
) -> None:
    path = written(local, COUNTS, SUMS)
    before = open_files()
    blocker = local.engines.open(path / "rocksdb" / "sums")
    while_open = open_files()
    with pytest.raises(StateLockedError, match="sums"):
        local.open(TASK, [COUNTS, SUMS])
    assert open_files() == while_open
    blocker.close()
    with monkeypatch.context() as patch:
        patch.setattr(type(blocker), "open", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            local.open(TASK, [COUNTS, SUMS])
    manifest = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text("{}")
    with pytest.raises(StateFormatError):
        local.open(TASK, [COUNTS, SUMS])
    (path / "manifest.json").write_text(manifest)
    with pytest.raises(StateError, match="twice"):
        local.open(TASK, [COUNTS, COUNTS])
    assert open_files() == before
    assert local.directory.locked() == {}
    assert reopened(local, COUNTS, SUMS) == {"counts": (b"5", 5), "sums": (b"5", 5)}
    assert open_files() == before


def test_a_store_that_can_t_be_closed_doesn_t_keep_the_others_or_the_lock(
    local: LocalStateManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = local.open(TASK, [COUNTS, SUMS])
    engine = state.stores["counts"].engine
    with monkeypatch.context() as patch:
        patch.setattr(engine, "close", lambda: 1 / 0)
        state.close()
    assert "closing store 'counts'" in caplog.text
    engine.close()
    local.open(TASK, [COUNTS, SUMS]).close()


def test_damage_that_a_read_meets_names_the_task_and_the_store(local: LocalStateManager) -> None:
    state = local.open(TASK, [COUNTS, SUMS])
    state.apply({"counts": {b"%05d" % number: b"v" * 50 for number in range(3000)}}, {"counts": 3000})
    state.close()
    local.open(TASK, [COUNTS, SUMS]).close()  # the log becomes a table file
    table = max((state.path / "rocksdb" / "counts").glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(table.read_bytes())
    content[100:200] = bytes(byte ^ 0xFF for byte in content[100:200])
    table.write_bytes(content)
    fresh = LocalStateManager(local.directory, open_engines(local.engines.name), "baseline")  # with empty caches
    storage = fresh.open(TASK, [COUNTS, SUMS])
    with pytest.raises(StateCorruptError, match="'counts' of task 0_1") as raised:
        list(storage.namespace("counts").scan(None, None))
    assert raised.value.damaged == {StoreId(TASK, "counts")}
    storage.clear("counts", raised.value)
    assert found(storage) == {"sums": (None, None), "counts": (None, None)}
    storage.close()


def test_the_stores_of_a_task_are_written_in_one_call_each_with_its_offset(local: LocalStateManager) -> None:
    state = local.open(TASK, [COUNTS, SUMS, VOLATILE])
    state.apply({"counts": {b"k": b"1"}, "volatile": {b"k": b"2"}}, {"counts": 5, "sums": 7})
    assert found(state) == {"counts": (b"1", 5), "sums": (None, 7), "volatile": (b"2", None)}
    with pytest.raises(KeyError):
        state.apply({"elsewhere": {b"k": b"1"}}, {})
    state.close()


def test_a_store_that_is_emptied_has_neither_content_nor_offset_and_the_others_keep_theirs(
    local: LocalStateManager,
) -> None:
    written(local, COUNTS, SUMS)
    state = local.open(TASK, [COUNTS, SUMS])
    assert state.clear("counts") is state.namespace("counts")
    assert found(state) == {"counts": (None, None), "sums": (b"5", 5)}
    state.close()
    assert reopened(local, COUNTS, SUMS) == {"counts": (None, None), "sums": (b"5", 5)}


def test_no_engine_is_asked_for_statistics_while_a_namespace_of_it_is_closed(
    local: LocalStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = local.open(TASK, [COUNTS])
    assert set(local.statistics()) == {(TASK, "counts")}
    namespace = state.namespace("counts")
    asked: list[object] = []
    release = namespace.release  # type: ignore[attr-defined]

    def release_beside_a_reader() -> None:
        reader = threading.Thread(target=lambda: asked.append(local.statistics()))
        reader.start()
        reader.join()
        release()

    monkeypatch.setattr(namespace, "release", release_beside_a_reader)
    state.clear("counts")
    assert asked == [{}]
    assert set(local.statistics()) == {(TASK, "counts")}
    state.close()
