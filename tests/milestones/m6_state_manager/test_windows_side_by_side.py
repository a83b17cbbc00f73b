"""Windows and sessions of many tasks in one database, which expire beside each other, read as they do in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milestones.common.state.engines.rocks_namespace import RocksNamespace, _Kept
from milestones.common.state.spec import StoreKind
from milestones.m6_state_manager.ranges import RangeNamespace
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
from tests.milestones.m6_state_manager.windowed_tasks import WindowedTasks

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("quiet")]

STEPS, TO_FIND = 250, 600
EXPIRE = SubtopologyEngine.expire


def lived(
    seed: int, base: Path, tasks: int, kind: StoreKind, steps: int = STEPS, engine: str = "rocksdict"
) -> WindowedTasks:
    windowed = WindowedTasks(seed, base, tasks, kind, engine)
    windowed.run(steps)
    windowed.close()
    return windowed


def many_lived(base: Path) -> None:
    kinds: list[StoreKind] = ["window", "session", "window", "session"]
    for seed, kind in enumerate(kinds):
        lived(seed, base / str(seed), 5, kind, TO_FIND)


@pytest.mark.parametrize(("tasks", "engine"), [(2, "rocksdict"), (5, "rocksdb"), (50, "rocksdict")])
@pytest.mark.parametrize("kind", ["window", "session"])
def test_each_task_reads_what_it_would_in_memory(kind: StoreKind, tasks: int, engine: str, tmp_path: Path) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    happened = lived(tasks, tmp_path, tasks, kind, engine=engine).happened
    assert happened.keys() >= {"_put", "commit", "roll_back", "restart", "_mend"}


def a_gap_that_begins_with_the_range(self: _Kept, first: bytes, beyond: bytes | None) -> None:
    self.first, self.beyond = first[:4], beyond


def a_reader_that_remembers_beyond_a_write(self: RocksNamespace) -> None:
    """Do nothing."""


def a_read_that_goes_on_into_the_next_range(self: RangeNamespace, start: bytes, end: bytes, limit: int) -> Any:
    return [(key[4:], value) for key, value in self._family[0].scan_bounded(self._prefix + start, b"\xff", limit)]


def an_expiry_in_the_next_range_too(self: SubtopologyEngine, partition: int, store: str, spans: Any) -> None:
    EXPIRE(self, partition, store, spans)
    EXPIRE(self, partition + 1, store, spans)


FAULTS: dict[Callable[..., Any], tuple[Any, str]] = {
    a_gap_that_begins_with_the_range: (_Kept, "note"),
    a_reader_that_remembers_beyond_a_write: (RocksNamespace, "written"),
    a_read_that_goes_on_into_the_next_range: (RangeNamespace, "scan_bounded"),
    an_expiry_in_the_next_range_too: (SubtopologyEngine, "expire"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", " "))
def test_they_find(fault: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = FAULTS[fault]
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises(AssertionError):
        many_lived(tmp_path)
