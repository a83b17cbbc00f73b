"""How far the state of closed tasks is, without opening it."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from milestones.common.errors import StateError
from milestones.common.state import checkpoint_file as positions
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.families import RocksEngine
from milestones.common.state.state_manager import LocalStateManager
from tests.common.state.test_state_manager import COUNTS, SUMS, TASK, VOLATILE, damage, put, written


def test_a_closed_task_tells_how_far_its_persistent_stores_are(local: LocalStateManager) -> None:
    written(local, COUNTS, SUMS, VOLATILE)
    assert local.closed_offsets() == {TASK: {"counts": 5, "sums": 5}}


def test_an_open_task_tells_nothing_but_to_a_thread_that_does_not_know_yet_that_it_is_open(
    local: LocalStateManager,
) -> None:
    written(local, COUNTS, SUMS)
    state = local.open(TASK, (COUNTS, SUMS))
    assert local.closed_offsets() == {}
    assert local.closed_offsets({TASK}) == {TASK: {"counts": 5, "sums": 5}}
    state.close()


def restarted(local: LocalStateManager) -> LocalStateManager:
    """Another process on the same disk."""
    return LocalStateManager(local.directory, local.engines, local.stage)


def test_what_was_told_at_the_last_close_holds_after_a_crash_as_a_lower_bound(local: LocalStateManager) -> None:
    path = written(local, COUNTS, SUMS)
    before = (path / positions.POSITIONS_FILE).read_bytes()
    written(local, COUNTS, SUMS, offset=9)
    assert local.closed_offsets() == restarted(local).closed_offsets() == {TASK: {"counts": 9, "sums": 9}}
    (path / positions.POSITIONS_FILE).write_bytes(before)  # as if the second close had never come
    assert restarted(local).closed_offsets() == {TASK: {"counts": 5, "sums": 5}}


def test_the_disk_is_read_once_and_never_for_an_answer(
    local: LocalStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(local, COUNTS, SUMS)
    opened = restarted(local)
    for module, name in ((positions, "read"), (StateDirectory, "tasks")):
        monkeypatch.setattr(module, name, Mock(side_effect=AssertionError("the disk is read")))
    assert opened.closed_offsets() == {TASK: {"counts": 5, "sums": 5}}
    state = opened.open(TASK, (COUNTS, SUMS))
    put(state, "counts", 7)
    state.close()
    assert opened.closed_offsets() == {TASK: {"counts": 7, "sums": 5}}


def test_a_state_directory_that_cannot_be_read_is_a_warning_and_nothing_is_told(
    local: LocalStateManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written(local, COUNTS)
    monkeypatch.setattr(StateDirectory, "tasks", Mock(side_effect=StateError("no rights")))
    assert restarted(local).closed_offsets() == {}
    assert "no rights" in caplog.text


@pytest.mark.parametrize("store", ["counts", "sums"])
def test_how_far_an_open_store_is_is_known_without_its_engine(
    local: LocalStateManager, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(local, COUNTS, SUMS)
    state = local.open(TASK, (COUNTS, SUMS, VOLATILE))
    monkeypatch.setattr(RocksEngine, "offset", Mock(side_effect=AssertionError("an engine is asked")))
    assert state.offsets() == {"counts": 5, "sums": 5, "volatile": None}
    put(state, store, 8)
    state.apply({store: {b"k": b"without an offset"}}, {})
    assert state.offsets()[store] == 8
    state.clear(store)
    assert state.offsets()[store] is None
    state.close()
    assert state.offsets() == {}


def test_an_open_task_writes_down_how_far_it_is_now_and_then_for_the_case_of_a_crash(local: LocalStateManager) -> None:
    clock = local.directory.clock
    state = local.open(TASK, (COUNTS, SUMS))
    seen = []
    for offset in (5, 6, 7):
        put(state, "counts", offset)
        seen.append(positions.read(state.path))
        clock.advance(6_000)
    assert seen == [{"counts": 5}, {"counts": 5}, {"counts": 7}]
    state.close()


def test_state_that_was_never_closed_cleanly_is_known_to_be_there_but_not_how_far_it_is(
    local: LocalStateManager,
) -> None:
    path = written(local, COUNTS, SUMS)
    positions.forget(path)
    assert restarted(local).closed_offsets() == {TASK: {}}
    (path / "manifest.json").unlink()
    shutil.rmtree(path / "rocksdb")
    fresh = restarted(local)
    assert fresh.closed_offsets() == {}
    fresh.open(TASK, (COUNTS, SUMS))
    assert fresh.closed_offsets({TASK}) == {TASK: {}}


def test_a_store_that_is_made_anew_is_not_said_to_be_where_it_was(local: LocalStateManager) -> None:
    path = written(local, COUNTS, SUMS)
    state = local.open(TASK, (COUNTS, SUMS))
    state.clear("counts", "a test")
    assert positions.read(path) == {}
    state.close()
    assert local.closed_offsets() == {TASK: {"sums": 5}}


def test_a_damaged_store_is_not_said_to_be_where_it_was(local: LocalStateManager) -> None:
    path = written(local, COUNTS, SUMS)
    damage(path / "rocksdb" / "counts")
    local.open(TASK, (COUNTS, SUMS)).close()
    assert local.closed_offsets() == {TASK: {"sums": 5}}


def test_a_task_whose_state_was_cleaned_is_not_told(local: LocalStateManager) -> None:
    written(local, COUNTS, SUMS)
    assert local.clean(local.directory.clock.wall_ms() + 1, 1)
    assert local.closed_offsets() == {}


def test_a_task_without_persistent_stores_leaves_nothing(local: LocalStateManager) -> None:
    local.open(TASK, (VOLATILE,)).close()
    assert local.closed_offsets() == {}


OTHERS = [b"", b"{", b"[]", b'{"format": 2, "offsets": {}}', b'{"format": 1}', b'{"format": 1, "offsets": {"a": "x"}}']


@pytest.mark.parametrize("content", OTHERS)
def test_a_file_that_cannot_be_understood_is_no_knowledge_and_no_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / positions.POSITIONS_FILE).write_bytes(content)
    assert positions.read(tmp_path) == {}
