"""A day of snapshots: who owns the partition is found, what is read is exact, and little is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.milestones.m6_state_manager.snapshot_days import play

pytestmark = pytest.mark.timeout(600)

MOST_BASES = 3


def test_whoever_publishes_what_the_newer_generations_is_found_whole_and_exact_at_any_time(tmp_path: Path) -> None:
    day = play(0, tmp_path, moves=0.1)
    assert min(day.happened[what] for what in ("moves", "a zombie's", "deltas", "begins with a snapshot")) > 0
    assert day.kept[-1] <= MOST_BASES


def test_where_less_than_half_changes_in_an_hour_at_most_three_bases_are_kept(tmp_path: Path) -> None:
    day = play(0, tmp_path, moves=0, bursts=0)
    assert day.happened["deltas"] > len(day.kept) / 2
    assert max(day.kept) <= MOST_BASES
