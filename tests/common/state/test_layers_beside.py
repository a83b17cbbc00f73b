"""One thread reads a store's layers while another one commits: at each step of the read, each step of a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milestones.common.state import layers
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from tests.common.state.interleaving import at_every_place

MANY = [b"many-%03d" % number for number in range(25)]  # enough for an index to be sorted anew


class Store:
    """Layers over an engine. `wanted`: what is in them by the writes so far."""

    def __init__(self) -> None:
        self.engine = MemoryEngines().open(Path())
        namespace = self.engine.open("store")
        self.wanted: dict[bytes, bytes] = {}
        self.layers = StoreLayers(namespace, [], ReadCache(ReadCaches()))
        self.write(b"engine", dict.fromkeys((b"a", b"b", b"c", b"d", b"e", *MANY), b""))
        self.freeze()
        self.apply()

    def write(self, value: bytes, keys: Any) -> None:
        for key in keys:
            self.layers.put(key, value)
            self.wanted[key] = value
        self.layers.merge()

    def freeze(self) -> None:
        self.layers.freeze()

    def apply(self) -> None:
        self.engine.apply({"store": self.layers.frozen() or {}}, {})
        self.layers.applied()

    def thaw(self) -> None:
        self.layers.thaw()


def pending() -> Store:
    """a and b are frozen, b and c in the overlay; the index of keys is old."""
    store = Store()
    store.write(b"frozen", (b"a", b"b"))
    list(store.layers.scan())
    store.write(b"frozen", MANY[:18])
    store.freeze()
    store.write(b"overlay", (b"b", b"c"))
    return store


def merged() -> Store:
    """Nothing pends, and a little is in the overlay."""
    store = Store()
    store.write(b"overlay", (b"a", b"b"))
    list(store.layers.scan())
    store.write(b"overlay", (b"c",))
    return store


def thawed() -> Store:
    """A commit has failed before."""
    store = pending()
    list(store.layers.scan())
    store.thaw()
    store.write(b"after", (b"d", b"a"))
    return store


def in_turn(*steps: str) -> Callable[[Store], None]:
    def take(store: Store) -> None:
        for step in steps:
            getattr(store, step)()

    return take


BESIDE = {
    "a commit that is confirmed": (pending, in_turn("apply")),
    "a commit that fails": (pending, in_turn("thaw")),
    "a commit that fails and is repeated": (pending, in_turn("thaw", "freeze")),
    "a commit that fails twice": (pending, in_turn("thaw", "freeze", "thaw")),
    "a commit that begins": (merged, in_turn("freeze")),
    "a commit that begins and fails": (merged, in_turn("freeze", "thaw")),
    "a commit from beginning to end": (merged, in_turn("freeze", "apply")),
    "a repeated commit that begins": (thawed, in_turn("freeze")),
    "a repeated commit that fails": (thawed, in_turn("freeze", "thaw")),
    "a repeated commit that is confirmed": (thawed, in_turn("freeze", "apply")),
}


@pytest.mark.parametrize("key", [b"a", b"b", b"c", b"e", b"none"])
@pytest.mark.parametrize("case", BESIDE)
def test_a_get_finds_the_newest_value_whatever_a_commit_does_beside_it(case: str, key: bytes) -> None:
    make, beside = BESIDE[case]

    def prepare() -> tuple[Callable[[], bool], Callable[[], None]]:
        store = make()
        return lambda: store.layers.get(key) == store.wanted.get(key), lambda: beside(store)

    found = at_every_place(layers, prepare)
    assert all(found), f"wrong when it happens at the places {[at for at, right in enumerate(found, 1) if not right]}"


@pytest.mark.parametrize("case", BESIDE)
def test_the_few_entries_of_a_head_are_all_found_whatever_a_commit_does_beside_the_call(case: str) -> None:
    make, beside = BESIDE[case]

    def prepare() -> tuple[Callable[[], tuple[Store, Any]], Callable[[], None]]:
        store = make()
        store.layers.scan_bounded(b"", b"a", b"b")  # an older index
        return lambda: (store, store.layers.scan_bounded(b"", b"a", b"d")), lambda: beside(store)

    for store, found in at_every_place(layers, prepare):
        assert found == [(key, store.wanted[key]) for key in (b"a", b"b", b"c", b"d")]
        many = [(key, value) for key, value in sorted(store.wanted.items()) if key.startswith(b"many-01")]
        assert store.layers.scan_bounded(b"many-01", b"0", b"9") == many


def test_the_memory_of_what_waits_can_be_asked_for_while_records_are_merged() -> None:
    """A polling thread asks, a processing thread merges."""

    def prepare() -> tuple[Callable[[], int], Callable[[], None]]:
        store = pending()
        return store.layers.uncommitted_bytes, lambda: store.write(b"beside", MANY)

    assert all(at_every_place(layers, prepare))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", BESIDE)
def test_a_scan_finds_every_entry_whatever_a_commit_does_beside_its_call(case: str, reverse: bool) -> None:
    make, beside = BESIDE[case]

    def prepare() -> tuple[Callable[[], tuple[Store, Any]], Callable[[], None]]:
        store = make()
        return lambda: (store, store.layers.scan(reverse=reverse)), lambda: beside(store)

    for store, scan in at_every_place(layers, prepare):
        wanted = sorted(store.wanted.items(), reverse=reverse)
        assert list(scan) == wanted
        assert list(store.layers.scan(reverse=reverse)) == wanted  # by the index that the first one left
