"""How far the state of closed tasks is, without opening it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from milestones.common.state import checkpoint_file as positions
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


def test_what_was_told_at_the_last_close_holds_after_a_crash_as_a_lower_bound(local: LocalStateManager) -> None:
    path = written(local, COUNTS, SUMS)
    before = (path / positions.POSITIONS_FILE).read_bytes()
    written(local, COUNTS, SUMS, offset=9)
    assert local.closed_offsets() == {TASK: {"counts": 9, "sums": 9}}
    (path / positions.POSITIONS_FILE).write_bytes(before)  # as if the second close had never come
    assert local.closed_offsets() == {TASK: {"counts": 5, "sums": 5}}


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
    assert local.closed_offsets() == {TASK: {}}


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


def test_a_task_whose_directory_was_removed_is_not_told(local: LocalStateManager) -> None:
    path = written(local, COUNTS, SUMS)
    shutil.rmtree(path)
    assert local.closed_offsets() == {}


def test_a_task_without_persistent_stores_leaves_nothing(local: LocalStateManager) -> None:
    local.open(TASK, (VOLATILE,)).close()
    assert local.closed_offsets() == {}


OTHERS = [b"", b"{", b"[]", b'{"format": 2, "offsets": {}}', b'{"format": 1}', b'{"format": 1, "offsets": {"a": "x"}}']


@pytest.mark.parametrize("content", OTHERS)
def test_a_file_that_cannot_be_understood_is_no_knowledge_and_no_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / positions.POSITIONS_FILE).write_bytes(content)
    assert positions.read(tmp_path) == {}
