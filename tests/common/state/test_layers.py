"""The layers over an engine: who sees what, and when nothing can be lost."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import MilestonesError
from milestones.common.state.layers import Layer, StoreLayers
from milestones.common.state.memory_engine import MemoryEngines
from milestones.common.state.read_cache import ReadCache, ReadCaches

Rows = list[tuple[bytes, bytes]]


class Opened:
    """Layers over an engine in memory that has `rows`."""

    def __init__(self, **rows: bytes) -> None:
        self.engine = MemoryEngines().open(Path())
        namespace = self.engine.open("store")
        self.engine.apply({"store": {key.encode(): value for key, value in rows.items()}}, {})
        self.touched: list[Any] = []
        self.layers = StoreLayers(namespace, self.touched, ReadCache(ReadCaches()))

    def all(self, **options: Any) -> Rows:
        return list(self.layers.scan(**options))


def layered() -> StoreLayers:
    """a in the engine, b frozen, c in the overlay, d in the scope."""
    layers = Opened(a=b"engine").layers
    layers.put(b"b", b"frozen")
    layers.merge()
    layers.freeze()
    layers.put(b"c", b"overlay")
    layers.merge()
    layers.put(b"d", b"scope")
    return layers


def test_a_read_sees_every_layer() -> None:
    layers = layered()
    assert [layers.get(key) for key in (b"a", b"b", b"c", b"d", b"e")] == [
        b"engine", b"frozen", b"overlay", b"scope", None,
    ]  # fmt: skip
    assert list(layers.scan()) == [(b"a", b"engine"), (b"b", b"frozen"), (b"c", b"overlay"), (b"d", b"scope")]


def test_the_newest_layer_wins_and_a_deletion_hides_what_is_below() -> None:
    layers = layered()
    for key in (b"a", b"b", b"c", b"d"):
        layers.put(key, None)
    assert [layers.get(key) for key in (b"a", b"b", b"c", b"d")] == [None] * 4
    assert list(layers.scan()) == []
    layers.put(b"a", b"again")
    assert list(layers.scan(reverse=True)) == [(b"a", b"again")]


def test_a_scan_is_bounded_below_inclusively_and_above_exclusively_both_ways() -> None:
    layers = layered()
    keys = [key for key, _ in layers.scan(b"b", b"d")]
    assert keys == [b"b", b"c"]
    assert [key for key, _ in layers.scan(b"b", b"d", reverse=True)] == keys[::-1]
    assert list(layers.scan(b"d", b"b")) == []


def test_a_scan_is_as_of_its_call_whatever_happens_meanwhile() -> None:
    o = Opened(a=b"1", b=b"1", c=b"1")
    o.layers.put(b"b", b"2")
    scan = o.layers.scan()
    assert next(scan) == (b"a", b"1")
    o.layers.put(b"b", None)
    o.layers.put(b"bb", b"3")
    o.layers.merge()
    o.layers.freeze()
    o.engine.apply({"store": o.layers.frozen()}, {})
    o.layers.applied()
    assert list(scan) == [(b"b", b"2"), (b"c", b"1")]
    assert o.all() == [(b"a", b"1"), (b"bb", b"3"), (b"c", b"1")]


def test_keys_put_after_a_scan_are_in_later_scans_in_order() -> None:
    o = Opened()
    for count in (3, 40, 41):
        for index in range(count):
            o.layers.put(f"{index * 7 % 50:02}".encode(), b"v")
        o.layers.merge()
        keys = [key for key, _ in o.all()]
        assert keys == sorted(keys)
        assert len(keys) == count


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


def test_a_freeze_holds_what_was_merged_and_nothing_of_the_record_in_work() -> None:
    o = Opened()
    o.layers.put(b"a", b"1")
    o.layers.merge()
    o.layers.put(b"b", b"2")
    o.layers.freeze()
    assert (o.layers.frozen(), o.layers.get(b"b")) == ({b"a": b"1"}, b"2")


def test_what_is_frozen_stays_readable_until_and_after_its_apply() -> None:
    o = Opened()
    o.layers.put(b"a", b"1")
    o.layers.merge()
    o.layers.freeze()
    assert o.layers.get(b"a") == b"1"
    o.engine.apply({"store": o.layers.frozen()}, {})
    o.layers.applied()
    assert (o.layers.get(b"a"), o.layers.frozen()) == (b"1", None)


def test_freezing_over_a_pending_commit_is_a_bug() -> None:
    o = Opened()
    o.layers.freeze()
    with pytest.raises(MilestonesError, match=r"store store .* still pending: this is a bug"):
        o.layers.freeze()


def test_a_thawed_layer_lies_under_what_came_after_it() -> None:
    layers = layered()
    layers.put(b"b", b"newer")
    layers.merge()
    layers.thaw()
    assert (layers.get(b"b"), layers.get(b"c"), layers.frozen()) == (b"newer", b"overlay", None)
    layers.freeze()
    assert layers.frozen() == {b"b": b"newer", b"c": b"overlay", b"d": b"scope"}


def test_an_abort_leaves_the_engines_content() -> None:
    layers = layered()
    layers.remembered.keep(b"d", 1, 8)
    layers.abort()
    assert (list(layers.scan()), layers.frozen(), layers.remembered.values) == ([(b"a", b"engine")], None, {})


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


def test_a_layer_lists_its_keys_in_order_between_bounds() -> None:
    layer = Layer({b"b": b"1", b"a": None})
    assert layer.keys_between(None, None) == [b"a", b"b"]
    layer[b"aa"] = b"1"
    assert layer.keys_between(b"a\x00", None) == [b"aa", b"b"]
    assert layer.keys_between(None, b"aa") == [b"a"]
