"""Readers of a database that a mending has replaced: where their scans end, and of what the damage counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from milestones.common.errors import StateCorruptError, StateError, TaskCorruptedError
from milestones.common.records import StoreId
from milestones.m6_state_manager.mending.database_folder import aside
from milestones.m6_state_manager.ranges import prefix_of
from milestones.m6_state_manager.task_storage import RangeTaskStorage
from tests.milestones.m6_state_manager.damage import Damaged, mend
from tests.milestones.m6_state_manager.states import NEIGHBOUR, TASK, entries, found


def test_a_scan_goes_on_in_the_database_in_which_it_began(damaged: Damaged) -> None:
    scan = damaged.neighbour.namespace("counts").scan(None, None)
    first = next(scan)
    damaged.meet()
    mend(damaged.manager)
    damaged.database.replaced.let_go(1)
    assert damaged.database.replaced, "a scan is open in it"
    assert dict([first, *scan]) == damaged.contents[NEIGHBOUR, "counts"]
    del scan
    damaged.database.replaced.let_go(0)
    assert not damaged.database.replaced
    assert aside(damaged.database.path).is_dir()


def test_damage_that_a_scan_meets_in_a_database_that_was_replaced_says_nothing_of_the_one_in_its_place(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = met_by_a_scan(damaged, damaged.neighbour, monkeypatch)
    with pytest.raises(TaskCorruptedError, match="is replaced: block checksum mismatch") as raised:
        next(scan)
    assert raised.value.tasks == {NEIGHBOUR}, "it goes on from its last commit"
    damaged.neighbour.apply({"counts": entries(1)}, {"counts": 8})
    assert found(damaged.neighbour) == damaged.contents[NEIGHBOUR, "counts"] | entries(1)


def met_by_a_scan(
    damaged: Damaged, storage: RangeTaskStorage, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[bytes, bytes]]:
    """A scan of the task's range that has begun, is to meet damage next, and outlives its database."""

    def one_and_damage(*_: Any, **__: Any) -> Iterator[tuple[bytes, bytes]]:
        yield prefix_of(NEIGHBOUR.partition) + b"a", b"1"
        raise StateCorruptError("block checksum mismatch")

    with monkeypatch.context() as patched:
        patched.setattr(damaged.database.open_store("counts"), "scan", one_and_damage)
        scan = storage.namespace("counts").scan(None, None)
    next(scan)
    damaged.meet()
    mend(damaged.manager)
    return scan


def test_damage_that_a_scan_meets_in_a_range_that_no_database_has_any_more_names_the_range(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = met_by_a_scan(damaged, damaged.damaged, monkeypatch)
    with pytest.raises(StateCorruptError) as raised:
        next(scan)
    assert raised.value.damaged == {StoreId(TASK, "counts")}
    damaged.neighbour.apply({"counts": entries(1)}, {"counts": 8})


def test_damage_that_a_compaction_meets_in_a_database_that_was_replaced_says_nothing_of_the_one_in_its_place(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged.neighbour.clear("counts")
    damaged.meet()

    def mended_meanwhile(*_: Any) -> None:
        mend(damaged.manager)
        raise StateCorruptError("block checksum mismatch")

    monkeypatch.setattr(damaged.database.engine, "compact", mended_meanwhile)
    with pytest.raises(StateCorruptError):
        damaged.database.compact(damaged.database.wiped.take())
    damaged.neighbour.apply({"counts": entries(1)}, {"counts": 8})
    assert found(damaged.neighbour) == entries(1)


def test_a_store_that_was_closed_is_refused_in_the_database_that_replaces_its_own_too(damaged: Damaged) -> None:
    closed = damaged.neighbour.namespace("counts")
    several = closed.reader()
    key = next(iter(damaged.contents[NEIGHBOUR, "counts"]))
    assert closed.get(key) is not None
    damaged.neighbour.close()
    damaged.meet()
    mend(damaged.manager)
    for read in (
        lambda: closed.get(key),
        lambda: list(closed.scan(None, None)),
        lambda: closed.scan_bounded(key, key + b"\0", 1),
        lambda: several(key, key + b"\0", 1),
        lambda: closed.reader()(key, key + b"\0", 1),
    ):
        with pytest.raises(StateError, match="was closed"):
            read()
