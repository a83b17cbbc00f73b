"""The keys that have changed since the last snapshot: all of them, within a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.m6_state_manager.snapshots.changed_keys import ChangedKeys, Changes, RangeChanges
from tests.common.state.test_snapshot import MANIFEST

BASE = replace(MANIFEST, id="base")


@pytest.fixture
def changed() -> ChangedKeys:
    return ChangedKeys(bound=10_000)


@pytest.fixture
def of(changed: ChangedKeys) -> RangeChanges:
    """A range with a snapshot of its store "counts"."""
    return with_snapshot(changed, 1)


def take(changed: ChangedKeys, of: RangeChanges) -> Changes:
    """What has changed of the store "counts"."""
    found = changed.take(of, ["counts"])
    assert found is not None
    return found[1]["counts"]


def with_snapshot(changed: ChangedKeys, partition: int) -> RangeChanges:
    of = changed.range(0, partition)
    changed.published(of, "counts", take(changed, of), BASE)
    return of


def test_what_has_changed_is_since_the_last_snapshot(changed: ChangedKeys, of: RangeChanges) -> None:
    changed.note(of, "counts", [b"a", b"b"])
    changed.note(of, "counts", [b"b"])
    changed.expired(of, "counts", [(b"", b"\5")])
    taken = take(changed, of)
    assert (taken.on, taken.keys, taken.gone) == (BASE, {b"a", b"b"}, ((b"", b"\5"),))
    changed.note(of, "counts", [b"c"])
    delta = replace(BASE, id="delta")
    changed.published(of, "counts", taken, delta)
    taken = take(changed, of)
    assert (taken.on, taken.keys, taken.gone) == (delta, {b"c"}, ())


def test_without_a_snapshot_nothing_is_kept(changed: ChangedKeys) -> None:
    of = changed.range(0, 1)
    changed.note(of, "counts", [b"a"])
    assert changed.bytes == 0
    assert (take(changed, of).on, take(changed, of).keys) == (None, set())


def test_what_a_snapshot_that_failed_would_have_had_is_in_the_next_one(changed: ChangedKeys, of: RangeChanges) -> None:
    changed.note(of, "counts", [b"a"])
    taken = take(changed, of)
    changed.note(of, "counts", [b"b"])
    changed.put_back(of, "counts", taken)
    taken = take(changed, of)
    assert (taken.on, taken.keys) == (BASE, {b"a", b"b"})


def test_after_a_first_snapshot_that_failed_the_next_one_is_a_first_one_too(changed: ChangedKeys) -> None:
    of = changed.range(0, 1)
    taken = take(changed, of)
    changed.note(of, "counts", [b"a"])
    changed.put_back(of, "counts", taken)
    changed.note(of, "counts", [b"b"])
    assert take(changed, of).on is None
    assert changed.bytes == 0


def test_beyond_the_bound_the_next_snapshot_of_that_store_is_a_base(changed: ChangedKeys, of: RangeChanges) -> None:
    other = with_snapshot(changed, 2)
    changed.note(other, "counts", [b"kept"])
    changed.note(of, "counts", [b"%03d" % number for number in range(80)])
    assert 0 < changed.bytes <= 10_000
    changed.note(of, "counts", [b"%03d" % number for number in range(80, 120)])
    assert take(changed, of).on is None
    taken = take(changed, other)
    assert (taken.on, taken.keys) == (BASE, {b"kept"})
    changed.published(other, "counts", taken, BASE)
    assert changed.bytes == 0


@pytest.mark.parametrize("during", [False, True])
def test_the_next_snapshot_of_a_store_that_was_emptied_is_a_base(
    changed: ChangedKeys, of: RangeChanges, during: bool
) -> None:
    changed.note(of, "counts", [b"a"])
    taken = take(changed, of) if during else None
    changed.emptied(0, 1, ["counts"])
    changed.note(of, "counts", [b"b"])
    if taken is not None:
        changed.published(of, "counts", taken, BASE)
    assert take(changed, of).on is None
    assert changed.bytes == 0


def test_a_range_is_whole_when_no_write_is_under_way_or_has_broken_off(changed: ChangedKeys, of: RangeChanges) -> None:
    assert changed.whole(of)
    changed.begin(of)
    assert not changed.whole(of)  # and breaks off
    assert changed.take(of, ["counts"]) is None
    changed.begin(of)
    changed.end(of, leads=True)
    assert (changed.whole(of), of.leads) == (True, True)


def test_nothing_is_taken_of_a_range_that_is_being_written(changed: ChangedKeys, of: RangeChanges) -> None:
    changed.begin(of)
    changed.note(of, "counts", [b"a"])
    assert changed.take(of, ["counts"]) is None
    changed.end(of, leads=True)
    writes, taken = changed.take(of, ["counts"]) or (0, {})
    assert (writes, taken["counts"].keys) == (1, {b"a"})


class Store:
    """A store of one range beside its snapshots, each of which is all that it had then."""

    def __init__(self) -> None:
        self.changed = ChangedKeys(bound=600)  # a handful of keys: it is met now and then
        self.of = self.changed.range(0, 1)
        self.content: dict[bytes, int] = {}
        self.snapshots: dict[str, dict[bytes, int]] = {}
        self.under_way: tuple[Changes, dict[bytes, int]] | None = None
        self.writes = 0

    def write(self, key: bytes) -> None:
        self.changed.note(self.of, "counts", [key])
        self.writes += 1
        self.content[key] = self.writes

    def delete(self, key: bytes) -> None:
        self.changed.note(self.of, "counts", [key])
        self.content.pop(key, None)

    def wipe(self, _: bytes) -> None:
        self.changed.emptied(0, 1, ["counts"])
        self.content = {}

    def take(self, _: bytes) -> None:
        """Begin a snapshot: a delta, where one is possible, gives what the store has."""
        if self.under_way is None:
            taken = take(self.changed, self.of)
            self.under_way = taken, dict(self.content)
            if taken.on is not None and taken.keys is not None:
                built = dict(self.snapshots[taken.on.id])
                for key in taken.keys:
                    built.pop(key, None)
                    built |= {key: self.content[key]} if key in self.content else {}
                assert built == self.content

    def publish(self, _: bytes) -> None:
        if self.under_way is not None:
            (taken, had), self.under_way = self.under_way, None
            made = replace(BASE, id=f"{len(self.snapshots)}")
            self.snapshots[made.id] = had
            self.changed.published(self.of, "counts", taken, made)

    def fail(self, _: bytes) -> None:
        if self.under_way is not None:
            (taken, _had), self.under_way = self.under_way, None
            self.changed.put_back(self.of, "counts", taken)


STEPS = (Store.write, Store.delete, Store.wipe, Store.take, Store.publish, Store.fail)


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g"]))))
def test_whatever_happens_between_snapshots_a_delta_gives_what_the_store_has(
    life: list[tuple[Callable[[Store, bytes], None], bytes]],
) -> None:
    store = Store()
    for step, key in life:
        step(store, key)
    store.fail(b"")
    store.take(b"")
    store.publish(b"")
    assert store.changed.bytes == 0
