"""A disk that doesn't keep up: RocksDB stalls writes, and nothing but the writer waits."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateBusyError, StateError
from milestones.common.state import refusals
from milestones.common.state.engine import Engine
from milestones.common.state.engines import rocks
from milestones.common.state.engines.rocks import RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngine, RocksDictEngines
from milestones.common.testing import StepClock
from tests.common.state.owners import OWNERS

SMALL = RocksSettings(write_buffer_bytes=64 * 1024, max_write_buffers=2)


def changed(path: Path, change: Callable[[Any], None]) -> Engine:
    """One whose options are changed so."""
    engines = RocksDictEngines(SMALL)

    def options() -> Any:
        made = engines.options()
        change(made)
        return made

    return RocksDictEngine(path, options, options, OWNERS)


def stopping(path: Path) -> Engine:
    """One whose flushes take a second per 256 KiB: writes stop while both memtables are full."""
    return changed(path, lambda options: options.set_ratelimiter(256 * 1024, 10_000, 10))


def slowing(path: Path) -> Engine:
    """One that slows writes down while there is a table file that isn't compacted."""

    def slowly(options: Any) -> None:
        options.set_level_zero_file_num_compaction_trigger(1)  # RocksDB slows down no sooner than it compacts
        options.set_level_zero_slowdown_writes_trigger(1)

    return changed(path, slowly)


def slowing_second_engine(path: Path) -> Engine:
    pytest.importorskip("rocksdb", reason="the extra `rocksdb` isn't installed")
    from milestones.common.state.engines.rocksdb_engine import RocksDbEngine, RocksDbEngines

    engines = RocksDbEngines(SMALL)

    def slowed(options: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            each = options()
            each.level0_file_num_compaction_trigger = 1
            each.level0_slowdown_writes_trigger = 1
            return each

        return made

    def slowly() -> Any:
        each = slowed(engines._options)()
        each.delayed_write_rate = 1_000_000
        return each

    return RocksDbEngine(path, slowly, slowed(engines._family_options), OWNERS)


@pytest.fixture(params=[stopping, slowing, slowing_second_engine])
def stalling(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    engine = request.param(tmp_path / "engine")
    yield engine
    engine.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of writes that were refused."""
    taken: list[float] = []
    sleep = time.sleep

    def pause(seconds: float) -> None:
        taken.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    return taken


def batch_of(number: int) -> dict[bytes, bytes | None]:
    return {b"%04d-%04d" % (number, entry): os.urandom(1_000) for entry in range(50)}


def batches(count: int) -> list[dict[bytes, bytes | None]]:
    return [batch_of(number) for number in range(count)]


def batches_until_stalled(stalls: Sized) -> Iterator[dict[bytes, bytes | None]]:
    """Make twelve batches, and more if none has met a stall: a slow machine writes no faster than its disk takes."""
    for number in range(200):
        if number >= 12 and stalls:
            return
        yield batch_of(number)


def test_writes_that_are_stalled_arrive_whole_and_in_order(stalling: Engine, waits: list[float]) -> None:
    counts = stalling.open("counts")
    written: dict[bytes, bytes | None] = {}
    for number, batch in enumerate(batches_until_stalled(waits)):
        again: dict[bytes, bytes | None] = {b"last": b"%d" % number, **batch}
        stalling.apply({"counts": again}, {"counts": number})
        written |= again
        assert (counts.get(b"last"), counts.offset()) == (b"%d" % number, number)
    assert waits
    assert dict(counts.scan(None, None)) == written


def test_every_other_thread_runs_while_a_write_is_stalled(tmp_path: Path) -> None:
    engine = stopping(tmp_path / "engine")
    engine.open("counts")
    turns, done, begun = 0, threading.Event(), threading.Event()

    def run() -> None:
        nonlocal turns
        while not done.wait(0.001):
            turns += 1
            begun.set()

    other = threading.Thread(target=run)
    other.start()
    assert begun.wait(10)
    longest_s, meanwhile = 0.0, 0
    for batch in batches(8):
        before, begun_s = turns, time.monotonic()
        engine.apply({"counts": batch}, {})
        if time.monotonic() - begun_s > longest_s:
            longest_s, meanwhile = time.monotonic() - begun_s, turns - before
    done.set()
    other.join()
    engine.close()
    assert longest_s > 0.1  # it was stalled
    assert meanwhile > 2  # before and after the stall it takes a turn each in any case


def test_a_stall_without_end_is_an_error_that_names_store_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = stopping(tmp_path / "engine")
    engine.open("counts")
    monkeypatch.setattr(rocks, "STALL_LIMIT_MS", 50)
    monkeypatch.setattr(refusals, "SAY_AFTER_MS", 10)
    caplog.set_level(logging.WARNING)

    def write() -> None:
        for batch in batches(8):
            engine.apply({"counts": batch}, {})

    with pytest.raises(StateError, match=r"store 'counts' of task 0_1 in .* a write was refused for 0 s.* faster one"):
        write()
    assert [record.message for record in caplog.records if "a write waits, as flushes" in record.message]
    engine.close()


def written_at_last(
    engine: Engine, batch: dict[bytes, bytes | None], offset: int, after_refusal: Callable[[], None]
) -> list[StateBusyError]:
    """Write without waiting in the engine; its refusals."""
    refused: list[StateBusyError] = []
    while True:
        try:
            engine.apply({"counts": batch}, {"counts": offset}, wait=False)
            return refused
        except StateBusyError as error:
            refused.append(error)
            after_refusal()
        time.sleep(max(0.001, refused[-1].pause_ms / 1_000))


def test_a_caller_that_cant_wait_is_told_when_to_come_again_and_its_writes_arrive_whole(
    stalling: Engine, waits: list[float]
) -> None:
    counts = stalling.open("counts")
    written: dict[bytes, bytes | None] = {}
    refused: list[StateBusyError] = []

    def nothing_of_it_is_written() -> None:
        assert dict(counts.scan(None, None)) == written

    for number, batch in enumerate(batches_until_stalled(refused)):
        refused += written_at_last(stalling, batch, number, nothing_of_it_is_written)
        written |= batch
        assert counts.offset() == number
    assert dict(counts.scan(None, None)) == written
    assert {error.reason for error in refused} == {"flushes or compactions are behind"}
    assert {error.limit_ms for error in refused} == {rocks.STALL_LIMIT_MS}


def test_writes_that_come_too_soon_are_refused_without_a_try(tmp_path: Path) -> None:
    clock, tries = StepClock(), 0
    engine: Any = RocksDictEngines().open(tmp_path / "engine", OWNERS)
    engine._gate = rocks.Gate(clock)
    counts, write = engine.open("counts"), engine._write

    def full(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise Exception("IO error: No space left on device: While appending to file: /s/000004.log")

    engine._write = full
    for passed_ms, left_ms in ((0, 1_000), (1, 999), (399, 600), (599, 1)):
        clock.advance(passed_ms)
        with pytest.raises(StateBusyError, match="no write is possible now, as the disk is full") as refused:
            engine.apply({"counts": {b"a": b"1"}}, {"counts": 1}, wait=False)
        assert (refused.value.pause_ms, refused.value.limit_ms) == (left_ms, None)
    assert tries == 1
    with pytest.raises(StateError, match="disk full: free some space"):
        engine.apply({"counts": {b"a": b"1"}}, {"counts": 1})
    clock.advance(1)
    engine._write = write
    engine.apply({"counts": {b"a": b"1"}}, {"counts": 1}, wait=False)
    assert counts.get(b"a") == b"1"
    engine.close()


def test_a_store_is_dropped_while_writes_are_stalled(stalling: Engine, waits: list[float]) -> None:
    stalling.open("counts")
    for number, batch in enumerate(batches(8)):
        stalling.apply({"counts": batch}, {"counts": number})
    stalling.drop("counts")
    again = stalling.open("counts")
    assert (list(again.scan(None, None)), again.offset()) == ([], None)


def test_stores_are_dropped_and_closed_while_their_flushes_end(tmp_path: Path) -> None:
    """RocksDB's jobs read what belongs to a column family until they end. Every twentieth life ended the process."""
    for life in range(150):
        engine = slowing(tmp_path / str(life))
        engine.open("counts")
        for number, batch in enumerate(batches(8)):
            engine.apply({"counts": batch}, {"counts": number})
        engine.drop("counts")
        if life % 2:
            engine.open("others")
            engine.apply({"others": batch_of(0)}, {"others": 0})
        engine.close()


def test_what_is_gone_is_dropped_while_writes_are_stalled(stalling: Engine, waits: list[float]) -> None:
    counts = stalling.open("counts")
    for number, batch in enumerate(batches_until_stalled(waits)):
        stalling.apply({"counts": batch}, {"counts": number})
        stalling.expire("counts", [(b"", b"%04d" % number)])
        assert {key[:4] for key, _ in counts.scan(None, None)} == {b"%04d" % number}
    assert waits
