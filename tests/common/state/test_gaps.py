"""What a reader has found absent the library isn't asked for again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from milestones.common.errors import StateError
from milestones.common.state.engine import Engine, Engines
from milestones.common.state.engines.rocks import Seeker
from milestones.common.state.engines.rocks_namespace import RocksNamespace
from milestones.common.state.engines.sst import SstWriter


class Counted:
    """A seeker that counts its reads."""

    def __init__(self, seeker: Seeker, reads: list[bytes]) -> None:
        self._seeker, self._reads = seeker, reads

    def scan_bounded(self, start: bytes, end: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        self._reads.append(start)
        return self._seeker.scan_bounded(start, end, limit)

    def close(self) -> None:
        self._seeker.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The reads of all seekers."""
    asked: list[bytes] = []
    new_seeker = RocksNamespace.new_seeker

    def counted(self: RocksNamespace, beyond: bytes | None = None) -> tuple[object, Seeker]:
        state, seeker = new_seeker(self, beyond)
        return state, Counted(seeker, asked)

    monkeypatch.setattr(RocksNamespace, "new_seeker", counted)
    return asked


def key(segment: int, number: int) -> bytes:
    return b"%d-%05d" % (segment, number)


@pytest.mark.parametrize("behind", ["other rows", "nothing"])
def test_keys_of_a_new_segment_are_looked_for_a_few_times_between_two_writes(
    disk_engines: Engines, tmp_path: Path, reads: list[bytes], behind: str
) -> None:
    """As a catching-up window store does: its newest segment isn't committed yet, and in a column family with several
    ranges the next range's expired rows follow, which the library would pass one by one each time."""
    engine = disk_engines.open(tmp_path / "engine")
    rows = engine.open("s")
    engine.apply({"s": {key(1, number): b"" for number in range(500)}}, {"s": 1})
    if behind == "other rows":
        engine.apply({"s": {key(5, number): b"" for number in range(500)}}, {"s": 2})
        engine.expire("s", [(key(5, 0), key(5, 490))])
    numbers = random.Random(7).choices(range(500), k=3000)
    for number in numbers:
        assert rows.scan_bounded(key(2, number), key(2, number + 1), 5) == []
        assert rows.scan_bounded(key(1, number), key(1, number + 1), 5) == [(key(1, number), b"")]
    assert len([start for start in reads if start >= key(2, 0)]) < 20
    engine.apply({"s": {key(2, 250): b"new"}}, {"s": 3})
    assert rows.scan_bounded(key(2, 250), key(2, 251), 5) == [(key(2, 250), b"new")]
    engine.close()


def ingested(engine: Engine, directory: Path) -> None:
    directory.mkdir()
    writer = SstWriter(directory)
    writer.write(iter([(b"c", b"new")]))
    for _ in engine.ingest("s", list(writer.files)):
        pass


def again(engine: Engine, _: Path) -> None:
    engine.drop("s")
    engine.open("s")
    engine.apply({"s": {b"c": b"new"}}, {"s": 1})


WRITES: dict[str, Callable[[Engine, Path], object]] = {
    "a commit": lambda engine, _: engine.apply({"s": {b"c": b"new"}}, {"s": 1}),
    "an ingestion": ingested,
    "a wipe that writes": lambda engine, _: engine.wipe({"s": (b"a", b"b")}, {"s": {b"c": b"new"}}),
    "a namespace made anew": again,
}


@pytest.mark.parametrize("write", WRITES)
def test_what_was_absent_is_found_whatever_brings_it(disk_engines: Engines, tmp_path: Path, write: str) -> None:
    engine = disk_engines.open(tmp_path / "engine")
    before = engine.open("s")
    bounded = before.reader(b"z")
    for few in (before.scan_bounded, bounded):
        assert few(b"a", b"z", 5) == few(b"b", b"d", 5) == []
    WRITES[write](engine, tmp_path / "files")
    assert engine.open("s").scan_bounded(b"b", b"d", 5) == [(b"c", b"new")]
    if engine.open("s") is before:
        assert bounded(b"b", b"d", 5) == [(b"c", b"new")]
    engine.close()


def test_what_was_absent_is_no_answer_of_a_closed_engine(disk_engines: Engines, tmp_path: Path) -> None:
    engine = disk_engines.open(tmp_path / "engine")
    few = engine.open("s").reader()
    assert few(b"a", b"b", 5) == few(b"a", b"b", 5) == []
    engine.close()
    with pytest.raises(StateError, match="closed"):
        few(b"a", b"b", 5)


TURNS = 60_000


def test_a_reader_that_looks_anew_after_each_write_leaves_nothing_behind(
    disk_engines: Engines, tmp_path: Path
) -> None:
    engine = disk_engines.open(tmp_path / "engine")
    rows: Any = engine.open("s")
    few = rows.reader(b"5")

    def grown() -> int:
        before = psutil.Process().memory_info().rss
        for _ in range(TURNS):
            rows.written()
            assert few(b"1", b"2", 5) == []
        return int(psutil.Process().memory_info().rss) - before

    grown()
    assert grown() < 16 * TURNS  # bytes: the smallest thing that a library forgets
    engine.close()
