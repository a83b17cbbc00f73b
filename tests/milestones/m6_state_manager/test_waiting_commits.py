"""Commits that wait for a database that is damaged meanwhile: they come behind what could be read of it."""

from __future__ import annotations

import pytest

from milestones.common.errors import StateBusyError, StateCorruptError
from milestones.common.records import StoreId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.storage import CommitMade, TaskStorage
from milestones.common.state.write_behind import WaitingCommits
from milestones.common.testing import StepClock
from tests.milestones.m6_state_manager.damage import Damaged, mend
from tests.milestones.m6_state_manager.states import COUNTS, NEIGHBOUR, SUMS, TASK, entries, found, reopened

SPECS = COUNTS, SUMS
INPUT = TopicPartition("in", 1)


def commit(storage: TaskStorage, number: int, *stores: str) -> None:
    """A commit of new keys, at the changelog offset 7 + `number`."""
    storage.note(CommitMade(number, {INPUT: number}, {INPUT: 0}))
    storage.apply(dict.fromkeys(stores, entries(number, b"new")), dict.fromkeys(stores, 7 + number))


def test_what_waits_comes_behind_what_is_mended_and_goes_with_a_range_that_is_lost(directory: StateDirectory) -> None:
    d = Damaged(directory, *SPECS)
    clock = StepClock()
    commits = WaitingCommits(1 << 20, 5_000)
    damaged, neighbour = (commits.of(storage, SPECS, clock) for storage in (d.damaged, d.neighbour))
    for storage in (damaged, neighbour):
        commit(storage, 1, "counts", "sums")
        commit(storage, 2, "counts", "sums")
    d.meet()
    commit(damaged, 3, "counts", "sums")
    commit(neighbour, 3, "counts")
    clock.advance(5_000)
    with pytest.raises(StateBusyError):
        neighbour.write()
    mend(d.manager)

    expected = {spec.name: d.contents[NEIGHBOUR, spec.name] | entries(2, b"new") for spec in SPECS}
    expected["counts"] |= entries(3, b"new")
    assert {store: found(neighbour, store) for store in expected} == expected
    neighbour.write()
    with pytest.raises(StateCorruptError) as raised:
        damaged.write()
    assert raised.value.damaged == {StoreId(TASK, "counts")}
    damaged.clear("counts", raised.value)
    assert damaged.offsets() == {"counts": None, "sums": 10}
    assert found(damaged, "counts") == {}
    sums = d.contents[TASK, "sums"] | entries(3, b"new")
    assert found(damaged, "sums") == sums
    for storage in (damaged, neighbour):
        storage.close()
    d.end()

    again = reopened(directory)
    lost, whole = again.open(TASK, SPECS), again.open(NEIGHBOUR, SPECS)
    assert (lost.offsets(), whole.offsets()) == ({"counts": None, "sums": 10}, {"counts": 10, "sums": 9})
    assert (found(lost), found(lost, "sums")) == ({}, sums)
    assert {store: found(whole, store) for store in expected} == expected
    again.release()
