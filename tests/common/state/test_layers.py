"""The layers over an engine: who sees what, and when nothing can be lost."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.errors import MilestonesError
from milestones.common.state.engines.memory_engine import MemoryEngines
from milestones.common.state.layers import StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches


class Opened:
    """Layers over an engine in memory that has `rows`."""

    def __init__(self, **rows: bytes) -> None:
        self.engine = MemoryEngines().open(Path())
        namespace = self.namespace = self.engine.open("store")
        self.engine.apply({"store": {key.encode(): value for key, value in rows.items()}}, {})
        self.touched: list[Any] = []
        self.layers = StoreLayers(namespace, self.touched, ReadCache(ReadCaches()))


def test_a_dropped_scope_has_never_been() -> None:
    o = Opened(a=b"1")
    o.layers.put(b"a", b"2")
    o.layers.remembered.keep(b"a", "two", 3)
    o.layers.remembered.keep(b"z", "read", 4)
    o.layers.drop_scope()
    assert (o.layers.get(b"a"), o.layers.remembered.values) == (b"1", {b"z": "read"})


def test_layers_tell_once_per_record_that_they_were_written_to() -> None:
    o = Opened()
    o.layers.put(b"a", b"1")
    o.layers.put(b"b", b"1")
    assert o.touched == [o.layers]


def test_freezing_over_a_pending_commit_is_a_bug() -> None:
    o = Opened()
    o.layers.freeze()
    with pytest.raises(MilestonesError, match=r"store store .* still pending: this is a bug"):
        o.layers.freeze()


def test_uncommitted_bytes_count_keys_values_and_the_growth_of_hot_ones() -> None:
    o = Opened()
    assert o.layers.uncommitted_bytes() == 0
    o.layers.put(b"k" * 10, b"v" * 90)
    o.layers.merge()
    small = o.layers.uncommitted_bytes()
    assert 100 < small < 500
    o.layers.put(b"k" * 10, b"v" * 100_000)
    o.layers.merge()
    assert o.layers.uncommitted_bytes() > 100_000
    o.layers.freeze()
    assert o.layers.uncommitted_bytes() > 100_000
    o.layers.applied()
    assert o.layers.uncommitted_bytes() == 0


def test_uncommitted_bytes_count_what_pends_and_what_came_after_it_through_failed_commits() -> None:
    o = Opened()

    def add(first: int) -> None:
        for index in range(first, first + 100):
            o.layers.put(b"%04d" % index, b"v" * 100)
            o.layers.merge()

    add(0)
    one = o.layers.uncommitted_bytes()
    assert 100 * 104 < one < 100 * 500
    o.layers.freeze()
    for times in range(2, 6):
        add(times * 100)
        assert o.layers.uncommitted_bytes() == pytest.approx(times * one, rel=0.01)
        o.layers.thaw()
        assert o.layers.uncommitted_bytes() == pytest.approx(times * one, rel=0.01)
        o.layers.freeze()
    o.layers.applied()
    assert o.layers.uncommitted_bytes() == 0


def test_a_failed_commit_costs_what_is_new_whatever_failed_before_it() -> None:
    o = Opened()
    for index in range(200_000):
        o.layers.put(b"%06d" % index, b"v")
    o.layers.merge()

    def fail(new: bytes) -> int:
        """Bytes of memory that a commit which fails takes meanwhile."""
        tracemalloc.start()
        o.layers.freeze()
        o.layers.put(new, b"v")
        o.layers.merge()
        o.layers.thaw()
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return taken

    fail(b"first")  # its keys may make the dict grow
    assert max(fail(b"new-%d" % number) for number in range(10)) < 100_000
    o.layers.freeze()
    assert len(o.layers.frozen() or ()) == 200_011


def test_counting_costs_little_in_the_long_run() -> None:
    o = Opened()
    for index in range(5_000):
        o.layers.put(b"%d" % index, b"v" * 10)
        o.layers.merge()
    exact = sum(len(b"%d" % index) + 10 for index in range(5_000))
    for index in range(2_000):
        o.layers.put(b"%d" % index, b"v" * 10)
        o.layers.merge()
        assert exact < o.layers.uncommitted_bytes() < exact + 5_000 * 200


def few_beside_a_scan(o: Opened, heads: list[bytes], chance: random.Random) -> None:
    """Both find the same entries of a head; `scan_bounded` only those with a tail of two bytes."""
    head, (first, last) = chance.choice(heads), sorted(chance.choices(TAILS, k=2))
    scanned = [one for one in o.layers.scan(head + first, head + last + b"\0") if len(one[0]) == len(head) + 2]
    assert o.layers.scan_bounded(head, first, last) == scanned


TAILS = [bytes((one, other)) for one in (0, 1, 255) for other in (0, 1, 255)]


@pytest.mark.parametrize("seed", range(40))
def test_the_few_entries_of_a_head_are_those_of_a_scan_in_any_life_of_a_store(seed: int) -> None:
    chance, heads = random.Random(seed), [b"", b"a", b"a\0", b"a\0\0", b"b"]
    o = Opened()
    steps: list[Callable[[], object]] = [
        o.layers.merge, o.layers.merge, o.layers.drop_scope, o.layers.thaw, o.layers.abort, lambda: commit(o),
    ]  # fmt: skip
    for _ in range(300):
        few_beside_a_scan(o, heads, chance)
        if chance.random() < 0.7:
            for _ in range(chance.choice([1, 1, 40])):
                key = chance.choice(heads) + chance.choice(TAILS)
                o.layers.put(key, chance.choice([b"v", b"w", None]))
        elif chance.random() < 0.8:
            chance.choice(steps)()
        elif o.layers.frozen() is None:
            o.layers.merge()
            o.layers.freeze()


def commit(o: Opened) -> None:
    if o.layers.frozen() is None:
        o.layers.merge()
        o.layers.freeze()
    o.engine.apply({"store": o.layers.frozen() or {}}, {})
    o.layers.applied()


def test_many_entries_of_a_head_are_left_to_a_scan() -> None:
    o = Opened()
    for number in range(400):
        o.layers.put(b"head" + number.to_bytes(2, "big"), b"v")
    assert len(o.layers.scan_bounded(b"head", b"\0\0", b"\xff\xff") or ()) == 400  # they are in memory
    commit(o)
    assert o.layers.scan_bounded(b"head", b"\0\0", b"\xff\xff") is None
    assert len(o.layers.scan_bounded(b"head", b"\0\0", b"\0\x63") or ()) == 100


def test_uncommitted_bytes_count_the_places_of_keys_among_those_of_their_heads() -> None:
    with_heads, without = Opened(), Opened()
    for o in (with_heads, without):
        for number in range(1_000):
            o.layers.put(b"head" + number.to_bytes(2, "big"), b"v")
    with_heads.layers.merge()
    with_heads.layers.scan_bounded(b"head", b"\0\0", b"\0\1")
    without.layers.merge()
    assert with_heads.layers.uncommitted_bytes() > without.layers.uncommitted_bytes() + 100_000


# -- keys that come and go between two commits


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 3 + ["delete", "merge"] * 2 + ["drop", "freeze", "apply", "thaw", "abort"]),
        st.integers(0, 3),
    ),
    max_size=60,
)  # fmt: skip


@given(STEPS)
def test_the_engine_has_what_was_committed_whatever_came_and_went(steps: list[tuple[str, int]]) -> None:
    o = Opened()
    engine, layers = o.engine, o.layers
    committed: dict[bytes, bytes] = {}
    pending: dict[bytes, bytes] | None = None
    boundary: dict[bytes, bytes] = {}
    now: dict[bytes, bytes] = {}
    for number, (step, which) in enumerate(steps):
        key, value = b"key-%d" % which, b"%d" % number
        match step:
            case "put":
                (layers.put if layers.get(key) is not None else layers.put_new)(key, value)
                now[key] = value
            case "delete":
                layers.put(key, None)
                now.pop(key, None)
            case "merge":
                layers.merge()
                boundary = dict(now)
            case "drop":
                layers.drop_scope()
                now = dict(boundary)
            case "freeze" if pending is None:
                layers.freeze()
                pending = dict(boundary)
            case "apply" if pending is not None:
                engine.apply({"store": layers.to_write() or {}}, {})
                layers.applied()
                committed, pending = pending, None
                assert dict(o.namespace.scan(None, None)) == committed
            case "thaw" if pending is not None:
                layers.thaw()
                pending = None
            case "abort":
                layers.abort()
                pending, boundary, now = None, dict(committed), dict(committed)
            case _:
                pass
        assert dict(layers.scan()) == now


def test_a_row_that_came_and_went_is_not_written_and_one_that_the_engine_has_is_deleted() -> None:
    layers = Opened(old=b"1").layers
    layers.put_new(b"came", b"1")
    layers.put_new(b"stays", b"1")
    layers.merge()
    layers.put(b"came", None)
    layers.put(b"old", None)
    layers.merge()
    layers.freeze()
    assert layers.to_write() == {b"stays": b"1", b"old": None}


def test_a_row_that_came_and_went_is_not_written_after_a_failed_commit_either() -> None:
    o = Opened()
    o.layers.put_new(b"first", b"1")
    o.layers.merge()
    o.layers.freeze()
    o.layers.put_new(b"second", b"1")
    o.layers.merge()
    o.layers.thaw()
    for key in (b"first", b"second"):
        o.layers.put(key, None)
    o.layers.merge()
    o.layers.freeze()
    assert o.layers.to_write() == {}


def test_a_row_that_comes_again_while_the_commit_of_its_deletion_fails_is_deleted() -> None:
    o = Opened(key=b"1")
    o.layers.put(b"key", None)
    o.layers.merge()
    o.layers.freeze()
    o.layers.put_new(b"key", b"2")
    o.layers.merge()
    o.layers.put(b"key", None)
    o.layers.merge()
    o.layers.thaw()
    o.layers.freeze()
    o.engine.apply({"store": o.layers.to_write() or {}}, {})
    assert list(o.namespace.scan(None, None)) == []
