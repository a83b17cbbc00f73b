"""Fifty tasks of one manager, whose commits wait, have their own data and all of it, whatever befalls them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milestones.common.state.snapshots import snapshot
from milestones.common.state.write_behind import WriteBehindNamespace, WriteBehindStorage
from milestones.m6_state_manager import ranges, subtopology_engine
from milestones.m6_state_manager.mending.mender import Mending
from milestones.m6_state_manager.snapshots import process
from tests.milestones.m6_state_manager.many_tasks import ManyTasks

pytestmark = pytest.mark.timeout(600)

STEPS, TO_FIND = 150, 600
HAPPENS = {
    "writes refused", "bases", "deltas", "stores begun with a snapshot", "_mend", "_move", "_empty", "_remove",
    "_begin_anew",
}  # fmt: skip


@pytest.fixture(autouse=True)
def deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of few entries have deltas, too."""
    monkeypatch.setattr(snapshot, "FOLDED_AT", 1_000)


def lived(seed: int, base: Path, steps: int = STEPS) -> ManyTasks:
    many = ManyTasks(seed, base)
    many.run(steps)
    many.close()
    return many


def test_each_task_has_its_own_data_and_all_of_it_whatever_befalls_them(tmp_path: Path) -> None:
    happened = sum((lived(seed, tmp_path / str(seed)).happened for seed in range(3)), Counter[str]())
    assert not HAPPENS - happened.keys()


def emptied_but_for_what_waits(self: Any, store: str, reason: object | None = None) -> Any:
    if store not in self._namespaces:
        return self._below.clear(store, reason)
    waiting = self._namespaces[store].waiting
    self._offsets.pop(store, None)
    cleared = self._namespaces[store] = WriteBehindNamespace(self._below.clear(store, reason))
    cleared.wait(waiting)
    return cleared


def a_copy_without_the_last_entry(self: Any, store: str, partition: int) -> Any:
    found = list(self._database.open_store(store).scan(*ranges.span_of(partition)))
    yield from found[:-1]


def a_delta_without_a_key(store: Any, database: Any) -> Any:
    get, prefix = database.open_store(store.store).get, ranges.prefix_of(store.task.partition)
    yield from ((prefix + key, get(prefix + key)) for key in sorted(store.keys)[1:])


def the_same_prefix_every_65536_partitions(batch: Any, prefix: bytes) -> Any:
    return {b"\x00\x00" + prefix[2:] + key: value for key, value in batch.items()}


FAULTS: dict[Callable[..., Any], tuple[Any, str]] = {
    emptied_but_for_what_waits: (WriteBehindStorage, "clear"),
    a_copy_without_the_last_entry: (Mending, "_entries_of"),
    a_delta_without_a_key: (process, "_changed"),
    the_same_prefix_every_65536_partitions: (subtopology_engine, "prefixed"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", " "))
def test_they_find(fault: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = FAULTS[fault]
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises(AssertionError):
        lived(1, tmp_path, TO_FIND)
