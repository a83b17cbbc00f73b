"""What a user of an engine may rely on, the same for all engines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from milestones.common.errors import ConfigError, StateError
from milestones.common.state.engine import Engine, Engines
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.memory_engine import MemoryEngine
from milestones.common.state.engines.rocks import RocksSettings
from tests.common.state.owners import OWNERS


def test_an_offset_can_be_written_without_data_and_data_without_an_offset(engine: Engine) -> None:
    counts = engine.open("counts")
    engine.apply({}, {"counts": 2**62})
    engine.apply({"counts": {b"a": b"1"}}, {})
    assert (counts.offset(), counts.get(b"a")) == (2**62, b"1")


def test_namespaces_of_one_engine_are_apart_and_written_together(engine: Engine) -> None:
    one, other = engine.open("default"), engine.open("a#b")
    engine.apply({"default": {b"k": b"1"}, "a#b": {b"k": b"2"}}, {"default": 1, "a#b": 2})
    assert (one.get(b"k"), other.get(b"k")) == (b"1", b"2")
    assert (one.offset(), other.offset()) == (1, 2)
    engine.drop("a#b")
    assert (one.get(b"k"), one.offset()) == (b"1", 1)


def test_what_expires_is_gone_for_good_while_a_running_scan_has_it_and_later_writes_stay(
    engine: Engine,
) -> None:
    counts, rows = engine.open("counts"), {b"k%04d" % number: b"v" for number in range(3_000)}
    other = engine.open("other")
    engine.apply({"counts": rows, "other": {b"k0000": b"other"}}, {"counts": 7, "other": 1})
    running = counts.scan(None, None)
    first = next(running)
    engine.expire("counts", [(b"", b"k1000"), (b"k2990", b"k2995")])
    left = [key for key in rows if b"k1000" <= key < b"k2990" or key >= b"k2995"]
    assert [key for key, _ in counts.scan(None, None)] == left
    assert [key for key, _ in counts.scan(None, None, reverse=True)] == left[::-1]
    assert counts.get(b"k0999") is counts.get(b"k2990") is None
    assert [first, *running] == list(rows.items())
    assert (counts.offset(), other.get(b"k0000")) == (7, b"other")
    engine.apply({"counts": {b"k0500": b"again"}}, {"counts": 8})
    assert next(counts.scan(None, None)) == (b"k0500", b"again")
    engine.expire("counts", [(b"", b"k0500")])
    assert (counts.get(b"k0500"), counts.offset()) == (b"again", 8)


SCANS = [
    (None, None, [b"", b"\x00", b"a", b"ab", b"b", b"\xff", b"\xff\xff"]),
    (b"a", b"b", [b"a", b"ab"]),
    (b"a", b"b\x00", [b"a", b"ab", b"b"]),
    (b"aa", None, [b"ab", b"b", b"\xff", b"\xff\xff"]),
    (None, b"a", [b"", b"\x00"]),
    (None, b"", []),
    (b"", b"\x00", [b""]),
    (b"b", b"a", []),
    (b"a", b"a", []),
    (b"c", b"d", []),
    (b"\xff\xff\xff", None, []),
]


@pytest.mark.parametrize(("start", "end", "expected"), SCANS)
def test_a_scan_gives_the_range_in_byte_order_and_its_reverse_backwards(
    engine: Engine, start: bytes | None, end: bytes | None, expected: list[bytes]
) -> None:
    keys = [b"b", b"\xff\xff", b"", b"a", b"\x00", b"\xff", b"ab"]
    counts = engine.open("counts")
    engine.apply({"counts": {key: b"v" + key for key in keys}}, {"counts": 1})
    assert list(counts.scan(start, end)) == [(key, b"v" + key) for key in expected]
    assert list(counts.scan(start, end, reverse=True)) == [(key, b"v" + key) for key in reversed(expected)]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_shows_the_entries_of_its_call_whatever_is_written_later(engine: Engine, reverse: bool) -> None:
    counts = engine.open("counts")
    before = {b"%04d" % number: b"old" for number in range(0, 1000, 2)}
    engine.apply({"counts": before}, {"counts": 1})
    untouched, begun = counts.scan(None, None, reverse=reverse), counts.scan(b"0100", b"0900", reverse=reverse)
    first = next(begun)
    engine.apply({"counts": {b"%04d" % number: b"new" for number in range(1000)}}, {"counts": 2})
    engine.apply({"counts": dict.fromkeys(before)}, {"counts": 3})
    engine.apply({"counts": {b"zzzz": b"new"}}, {"counts": 4})
    expected = sorted(before.items(), reverse=reverse)
    assert list(untouched) == expected
    assert [first, *begun] == [entry for entry in expected if b"0100" <= entry[0] < b"0900"]
    assert len(list(counts.scan(None, None))) == 501


def test_a_dropped_namespace_comes_back_empty_and_without_its_offset(engine: Engine) -> None:
    counts = engine.open("counts")
    engine.apply({"counts": {b"a": b"1"}}, {"counts": 5})
    engine.drop("counts")
    engine.drop("never there")
    again = engine.open("counts")
    assert (again.get(b"a"), again.offset(), list(again.scan(None, None))) == (None, None, [])
    engine.apply({"counts": {b"b": b"2"}}, {"counts": 1})
    assert (again.get(b"b"), again.offset()) == (b"2", 1)
    with pytest.raises(StateError, match="closed"):
        counts.get(b"a")


def test_what_outlives_its_engine_raises_instead_of_ending_silently(any_engines: Engines, tmp_path: Path) -> None:
    engine = any_engines.open(tmp_path / "engine", OWNERS)
    counts = engine.open("counts")
    engine.apply({"counts": {b"%d" % number: b"" for number in range(1000)}}, {"counts": 1})
    scan, get = counts.scan(None, None), counts.get
    next(scan)
    engine.close()
    engine.close()
    with pytest.raises(StateError, match="counts"):
        list(scan)
    with pytest.raises(StateError, match="counts"):
        counts.get(b"1")
    with pytest.raises(StateError):
        engine.apply({"counts": {b"a": b"1"}}, {})
    with pytest.raises(StateError):
        engine.open("counts")
    if any_engines.name != "memory":
        with pytest.raises(StateError, match="counts"):
            get(b"1")
        with pytest.raises(StateError):
            counts.scan(None, None)
        with pytest.raises(StateError):
            counts.offset()


def test_writing_a_namespace_that_was_not_opened_is_refused_and_writes_nothing(engine: Engine) -> None:
    counts = engine.open("counts")
    with pytest.raises(StateError, match="not opened"):
        engine.apply({"counts": {b"a": b"1"}, "other": {b"a": b"1"}}, {"counts": 1})
    with pytest.raises(StateError, match="not opened"):
        engine.apply({"counts": {b"a": b"1"}}, {"other": 1})
    assert (counts.get(b"a"), counts.offset()) == (None, None)


def test_an_engine_reports_the_memory_that_its_content_takes(engine: Engine) -> None:
    engine.open("counts")
    empty = engine.memory().all_bytes
    engine.apply({"counts": {b"%05d" % number: b"x" * 100 for number in range(5000)}}, {})
    grown = engine.memory()
    assert grown.all_bytes - empty > 500_000
    assert (grown.content > 500_000) is isinstance(engine, MemoryEngine)
    assert (grown.memtables > 500_000) is not isinstance(engine, MemoryEngine)


def test_memory_of_content_in_memory_is_given_back() -> None:
    engine = open_engines("memory").open(Path("unused"))
    engine.open("a")
    engine.apply({"a": {b"k": b"12", b"l": b"1"}}, {})
    engine.apply({"a": {b"k": b"1", b"l": None}}, {})
    engine.apply({"a": {b"k": None}}, {})
    assert engine.memory().all_bytes == 0


def test_a_closed_engine_leaves_no_open_file_even_with_a_scan_in_work(
    disk_engines: Engines, tmp_path: Path, open_files: Callable[[], int]
) -> None:
    disk_engines.open(tmp_path / "warm-up").close()
    before = open_files()
    engine = disk_engines.open(tmp_path / "engine", OWNERS)
    counts = engine.open("counts")
    engine.apply({"counts": {b"%d" % number: b"" for number in range(1000)}}, {"counts": 1})
    scans = [counts.scan(None, None), counts.scan(None, None, reverse=True)]
    for scan in scans:
        next(scan)
    engine.close()
    assert open_files() == before


def test_a_value_that_is_no_bytes_is_refused_and_the_batch_with_it(disk_engines: Engines, tmp_path: Path) -> None:
    engine = disk_engines.open(tmp_path / "engine", OWNERS)
    counts = engine.open("counts")
    with pytest.raises(StateError, match="counts"):
        engine.apply({"counts": {b"a": b"1", b"b": "text"}}, {"counts": 1})  # type: ignore[dict-item]
    assert (counts.get(b"a"), counts.offset()) == (None, None)
    engine.close()


def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="rocksdict, rocksdb"):
        open_engines("leveldb")


def test_small_memtables_and_caches_hold_more_than_their_size(disk_engines: Engines, tmp_path: Path) -> None:
    settings = RocksSettings(
        block_cache_bytes=64 * 1024, all_write_buffers_bytes=256 * 1024, write_buffer_bytes=64 * 1024, max_open_files=20
    )
    engine = open_engines(disk_engines.name, settings).open(tmp_path / "engine", OWNERS)
    counts = engine.open("counts")
    for start in range(0, 10_000, 1000):
        engine.apply({"counts": {b"%06d" % n: os.urandom(50) for n in range(start, start + 1000)}}, {"counts": start})
    assert counts.get(b"000001") is not None
    assert len(list(counts.scan(None, None))) == 10_000
    assert counts.offset() == 9000
    engine.close()


def test_a_scan_beside_another_thread_s_applies_sees_none_of_them_half_done(engine: Engine) -> None:
    counts = engine.open("counts")
    keys = [b"%03d" % number for number in range(200)]
    engine.apply({"counts": dict.fromkeys(keys, b"0")}, {})
    done = threading.Event()
    seen: list[set[bytes]] = []

    def scan() -> None:
        while not done.is_set():
            seen.append({value for _, value in counts.scan(None, None)})

    reader = threading.Thread(target=scan)
    reader.start()
    for number in range(1, 100):
        engine.apply({"counts": {**dict.fromkeys(keys, b"%d" % number), b"%d" % number: b"%d" % number}}, {})
        engine.apply({"counts": {b"%d" % number: None}}, {})
    done.set()
    reader.join()
    assert all(len(values) == 1 for values in seen)
