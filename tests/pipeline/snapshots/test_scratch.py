"""What a changelog is folded to, beside what a restoration gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.common.records import TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.windowed import START_AND_SEQUENCE
from milestones.pipeline import scratch
from tests.common.task.harness import message


def test_rows_of_windows_that_are_gone_are_in_no_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        message(offset, b"k" + START_AND_SEQUENCE.pack(start, 0), b"v", start)
        for offset, start in enumerate([5, 1_000_000, 1_000_005])
    ]
    monkeypatch.setattr(scratch, "read", lambda *_: iter([records[:1], records[1:]]))
    spec = StoreSpec("s", "timestamped-window", retention_ms=120_000, window_ms=10, closing=True)
    with scratch.ScratchStore(tmp_path / "store", spec) as store:
        assert store.fold({}, TopicPartition("log", 0), 0, 3) == 3
        assert [key[8:9] for key, _ in store.entries()] == [b"k", b"k", b"\0", b"\0"], "two rows, and both by time"
