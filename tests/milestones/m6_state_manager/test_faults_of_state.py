"""What power failures and a day of snapshots find: each promise about state on disk has a fault that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milestones.common.state.snapshots import garbage
from milestones.common.state.snapshots.snapshot import SnapshotManifest
from milestones.m6_state_manager.snapshots import process
from milestones.m6_state_manager.state_thread import StateKeeper
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
from milestones.m6_state_manager.task_storage import RangeTaskStorage
from tests.milestones.m6_state_manager import power_cuts, snapshot_days

pytestmark = pytest.mark.timeout(600)

FAILURES, SNAPSHOTS = 20, 60
SEEDS = 15
"""The disk's own threads decide what a seed comes to: three of them found nothing, once in ten times."""


def found(words: str, directory: Path, run: Callable[[int, Path], object]) -> None:
    """A run finds something that has these words."""
    others = set[str]()
    for seed in range(SEEDS):
        try:
            run(seed, directory / str(seed))
        except AssertionError as error:
            if words in str(error):
                return
            others.add(str(error))
    raise AssertionError(f"it isn't found, but: {others}")


def failures_find(words: str, directory: Path) -> None:
    found(words, directory, lambda seed, place: power_cuts.play(seed, FAILURES, place))


def days_find(words: str, directory: Path) -> None:
    found(words, directory, lambda seed, place: snapshot_days.play(seed, place, SNAPSHOTS, moves=0.2))


def test_an_offset_a_step_early(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The row is written before the last data step."""
    write = SubtopologyEngine.write

    def early(self: Any, partition: int, batches: Any, row: Any = None, **named: Any) -> None:
        if row is not None:
            write(self, partition, {}, row, **named)
        write(self, partition, batches, row, **named)

    monkeypatch.setattr(SubtopologyEngine, "write", early)
    failures_find("aren't what its row says", tmp_path)


def test_a_wipe_that_forgets_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wipe = SubtopologyEngine.wipe

    def but_one(self: Any, partition: int, stores: Any, row: Any, **named: Any) -> None:
        wipe(self, partition, sorted(stores)[: max(1, len(stores) - 1)], row, **named)

    monkeypatch.setattr(SubtopologyEngine, "wipe", but_one)
    failures_find("isn't removed", tmp_path)


def test_a_sync_that_comes_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sync, turns = StateKeeper.sync, [0]

    def every_other(self: Any) -> None:
        turns[0] += 1
        if turns[0] % 2:
            sync(self)
        else:
            self._next_sync_ms += self._interval_ms

    monkeypatch.setattr(StateKeeper, "sync", every_other)
    failures_find(" ms ago is lost", tmp_path)


def test_a_store_without_changelog_that_is_synced_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_range = RangeTaskStorage._open_range

    def as_others(self: Any, store: str) -> Any:
        self._unlogged = set()
        return open_range(self, store)

    monkeypatch.setattr(RangeTaskStorage, "_open_range", as_others)
    failures_find("has lost the commits", tmp_path)


def test_a_delta_without_its_deletions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = process._changed
    monkeypatch.setattr(process, "_changed", lambda *of: (entry for entry in changed(*of) if entry[1] is not None))
    days_find("a reader has something else than the maker had", tmp_path)


def test_a_zombies_manifest_over_the_newer_generations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Names rise with the time only."""
    by_time = property(lambda one: f"{one.created_ms:015d}-{one.id}")
    monkeypatch.setattr(SnapshotManifest, "name", by_time)
    days_find("an older generation's snapshot is found", tmp_path)


def test_a_snapshot_that_is_removed_while_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(garbage, "GRACE_MS", 0)
    days_find("a reader that began in time lacks what it reads", tmp_path)
