"""One thread scans a store in memory while another one writes to it: at each step of the scan."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from milestones.common.state.engine import Batch
from milestones.common.state.engines import memory_engine
from milestones.common.state.engines.memory_engine import MemoryEngines
from tests.common.state.interleaving import at_every_place

ENTRIES = {b"%03d" % number: b"old" for number in range(0, 200, 2)}  # several chunks of a scan

WRITES: dict[str, Batch] = {
    "other values": dict.fromkeys(ENTRIES, b"new"),
    "deletions": dict.fromkeys(ENTRIES, None),
    "new keys": {b"%03d" % number: b"new" for number in range(1, 200, 2)},
    "all of them": {b"%03d" % number: None if number % 4 else b"new" for number in range(200)},
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", WRITES)
def test_a_scan_gives_the_entries_of_its_call_whatever_is_written_beside_it(case: str, reverse: bool) -> None:
    def prepare() -> tuple[Callable[[], bool], Callable[[], None]]:
        engine = MemoryEngines().open(Path())
        store = engine.open("store")
        engine.apply({"store": ENTRIES}, {})
        scan = store.scan(b"004", b"190", reverse=reverse)
        expected = sorted(((k, v) for k, v in ENTRIES.items() if b"004" <= k < b"190"), reverse=reverse)
        first = next(scan)

        def write() -> None:
            if not store.writing.locked():  # else it would wait, until a later place
                engine.apply({"store": WRITES[case]}, {})

        return lambda: [first, *scan] == expected, write

    found = at_every_place(memory_engine, prepare)
    assert all(found), f"wrong when it happens at the places {[at for at, right in enumerate(found, 1) if not right]}"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_write_beside_an_unfinished_scan_costs_what_it_writes(reverse: bool) -> None:
    engine = MemoryEngines().open(Path())
    store = engine.open("store")
    engine.apply({"store": {b"%06d" % number: b"" for number in range(100_000)}}, {})
    scans = [store.scan(None, None, reverse=reverse) for _ in range(3)]
    for scan in scans:
        next(scan)
    tracemalloc.start()
    for number in range(10):
        engine.apply({"store": {b"%06d" % (number * 7919): b"new"}}, {})
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 200_000
    assert [sum(value == b"" for _, value in scan) for scan in scans] == [99_999] * 3


def test_scans_that_are_finished_or_left_cost_a_write_nothing() -> None:
    engine = MemoryEngines().open(Path())
    store = engine.open("store")
    engine.apply({"store": ENTRIES}, {})
    finished = store.scan(None, None)
    assert len(list(finished)) == len(ENTRIES)
    left = store.scan(None, None)
    next(left)
    del left
    assert not store.views
