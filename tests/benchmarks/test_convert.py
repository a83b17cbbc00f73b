"""The benchmark `convert`: what it makes is what it converts, and what it says of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from benchmarks.convert import kills, work
from benchmarks.convert.work import IN, OUT, Conversion, measure, table
from benchmarks.errors import BenchmarkError


def test_all_entries_go_in_and_out_in_each_round(tmp_path: Path) -> None:
    told: list[str] = []
    found, _ = measure(tmp_path, 600, tasks=3, stores=2, rounds=2, seed=1, log=told.append)
    assert [(one.way, one.entries) for one in found] == [(IN, 600), (OUT, 600)] * 2
    assert all(one.seconds > 0 and one.cpu_s > 0 for one in found)
    assert told[0] == "600 entries in 6 stores"
    assert len(told) == 5


def test_a_conversion_that_does_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "WAYS", {IN: lambda *_: None, OUT: lambda *_: None})
    with pytest.raises(BenchmarkError, match="is in folders still"):
        measure(tmp_path, 100, tasks=1, stores=1, rounds=1, seed=1, log=lambda _: None)


def test_a_conversion_that_is_killed_is_begun_again_and_has_all_entries_at_its_end(tmp_path: Path) -> None:
    told: list[str] = []
    _, killed = measure(tmp_path, 600, tasks=3, stores=2, rounds=1, seed=1, log=told.append, kills=2)
    assert [(one.way, len(one.kills) <= 2) for one in killed] == [(IN, True), (OUT, True)]
    assert all("0 of 600 entries lost" in line for line in told[-2:])


def test_entries_that_a_killed_conversion_has_lost_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(way: str, state_dir: Path, *_: object) -> kills.Killed:
        shutil.rmtree(state_dir / work.APPLICATION / "0_1")
        return kills.Killed(way, (), 1.0)

    monkeypatch.setattr(work, "convert_killed", lossy)
    monkeypatch.setattr(work, "RANGES", work.FOLDERS)
    monkeypatch.setattr(work, "WAYS", {IN: lambda *_: None, OUT: lambda *_: None})
    with pytest.raises(BenchmarkError, match="in stores of 200 entries"):
        measure(tmp_path, 600, tasks=3, stores=2, rounds=1, seed=1, log=lambda _: None, kills=2)


def test_a_process_that_fails_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="KeyError: 'sideways'"):
        kills.convert_killed("sideways", tmp_path, 1, 1_000.0, random.Random(1), lambda: 0)


def test_the_table_has_medians_by_ten_million() -> None:
    found = [Conversion(way, 1_000_000, seconds, 2 * seconds) for way in (IN, OUT) for seconds in (1.0, 2.0, 9.0)]
    rows = list(zip(*(column.cells for column in table("", found).columns), strict=True))
    assert rows == [(way, "500,000", "20.0", "80%", "40.0", "4.00") for way in (IN, OUT)]
