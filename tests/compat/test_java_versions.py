"""Mistakes planted into versioned tables, joins with grace and LRU stores, each of which the bench against Java must
find."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.java.cases import Pipe
from compat_tests.java.comparing import difference
from compat_tests.java.jvm import Java
from compat_tests.java.ours import Ours
from compat_tests.java.topologies import ALL
from milestones.common.state.stores import lru_rows
from milestones.common.state.stores.join_buffer import JoinBuffer
from milestones.common.state.stores.lru_store import LruStore
from milestones.common.state.stores.versioned_store import VersionedStore
from milestones.common.state.stores.versions import VersionReader
from milestones.common.topology.operators import versioned_tables
from tests.compat import test_java
from tests.compat.test_java_mistakes import Plant, why_it_differs

java, quiet = test_java.java, test_java.quiet


def a_history_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        VersionReader, "too_old", lambda reader, time, observed: time <= observed - reader._history_ms
    )


def a_stale_update_taken_for_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned_tables, "is_latest", lambda change: True)


def the_present_row_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VersionedStore, "get_as_of", lambda store, key, time: store.get_raw(key))


def a_grace_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    due = JoinBuffer.due
    monkeypatch.setattr(JoinBuffer, "due", lambda buffer, grace_ms: due(buffer, grace_ms - 1))


def a_read_that_is_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LruStore, "get", LruStore._get_row)


def room_made_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changelog keeps what made room."""

    def make_room(store: Any) -> None:
        while store._uses.value.entries >= store._max_entries:
            key, uses = lru_rows.eldest(store._layers, store._uses.value)
            store._layers.put(lru_rows.VALUES + key, None)
            store._read_cache.forget(lru_rows.VALUES + key)
            store._note(lru_rows.gone(store._layers, key, uses))

    monkeypatch.setattr(LruStore, "_make_room", make_room)


PLANTED: list[tuple[str, Plant, str, str]] = [
    ("a history off by one", a_history_off_by_one, "versioned_store_short", "java"),
    ("a stale update taken for the latest", a_stale_update_taken_for_the_latest, "versioned_table_group_by", "ours"),
    ("the present row joined", the_present_row_joined, "join_stream_versioned_table_left", "out"),
    ("a grace off by one", a_grace_off_by_one, "join_stream_versioned_table_grace_inner", "Buffer-changelog"),
    ("a read that is no use", a_read_that_is_no_use, "lru_store", "java"),
    ("room made in silence", room_made_in_silence, "lru_store_calls", "latest-changelog"),
]


@pytest.mark.java
@pytest.mark.parametrize(("plant", "name", "told"), [each[1:] for each in PLANTED], ids=[each[0] for each in PLANTED])
def test_a_planted_mistake_is_found(
    java: Java, monkeypatch: pytest.MonkeyPatch, plant: Plant, name: str, told: str
) -> None:
    plant(monkeypatch)
    assert told in why_it_differs(java, name)


V, W, DELETED = b"v", b"w", None
FEW: dict[str, list[tuple[bytes | None, int]]] = {
    "a deletion at the time of the only version, then an older one": [(V, 10), (DELETED, 10), (W, 5)],
    "the same after a former version": [(V, 3), (V, 10), (DELETED, 10), (W, 5), (W, 12), (V, 11)],
    "the same by delete()": [(V, 10), (b"del", 10), (W, 5), (b"del", 5)],
    "a deletion of nothing, then older and younger ones": [(DELETED, 10), (V, 5), (DELETED, 10), (W, 10), (V, 7)],
    "deletions between versions": [(V, 10), (V, 40), (DELETED, 20), (W, 15), (DELETED, 15), (W, 30), (V, 20)],
    "versions replaced": [(V, 10), (W, 20), (W, 10), (V, 20), (DELETED, 10), (V, 10), (W, 15), (V, 15)],
    "older than the history, and at its end": [(V, 10), (W, 200_000), (V, 79_999), (V, 80_000), (W, 80_001)],
    "over the ends of segments": [(V, time) for time in (10, 30_000, 20_000, 60_000, 10_001, 90_000, 59_999, 20_001)],
}


@pytest.mark.java
@pytest.mark.parametrize("puts", FEW.values(), ids=FEW)
def test_versions_that_chance_seldom_makes_are_equal_too(java: Java, puts: list[tuple[bytes | None, int]]) -> None:
    steps = tuple(Pipe("in", b"a", value, time) for value, time in puts)
    for name in ("versioned_store", "versioned_table", "versioned_table_group_by"):
        mine, theirs = Ours(ALL).run(name, steps, 0), java.run(name, steps, 0)
        assert difference(mine, theirs, 0) is None
