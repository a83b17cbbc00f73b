"""The benchmark of reads: every read of every engine, and wrong rows are no measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import stores
from benchmarks.errors import BenchmarkError
from milestones.common.state.stores import KeyValueStore


def measured(directory: Path) -> dict[str, stores.Rows]:
    return stores.measure(["memory"], directory, stores.MIN_ROWS, 1, 1, lambda _: None)


def test_every_read_is_measured(tmp_path: Path) -> None:
    found = measured(tmp_path)
    assert list(found["memory"]) == [read.name for read in stores.READS]
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in found["memory"].values())
    assert stores.table("stores", found).row_count == len(stores.READS)


def test_a_read_that_gives_other_rows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = KeyValueStore.prefix_scan

    def short(self: KeyValueStore, *args: Any) -> Any:
        rows = whole(self, *args)
        next(rows)
        return rows

    monkeypatch.setattr(KeyValueStore, "prefix_scan", short)
    with pytest.raises(BenchmarkError, match="prefix_scan of 1,000 gave 19980 rows in 20 calls instead of 20000"):
        measured(tmp_path)


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="at least 200,000"):
        stores.measure(["memory"], tmp_path, 1_000, 1, 1, lambda _: None)
