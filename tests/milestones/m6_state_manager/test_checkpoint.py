"""Checkpoints: a database as it was at one moment, whatever is written meanwhile, and which process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from milestones.common.state.disk import TRASH, remove_tree, scratch, sweep
from milestones.common.state.engines.rocks import RocksSettings
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint, TornError
from milestones.testing import until

SMALL = RocksSettings(write_buffer_bytes=64 * 1024)
"""Memtables that are flushed, and logs that are deleted, many times a second."""
STORES = ("counts", "sums")


class Writer:
    """Writes one number after the other into both stores, and 100 bytes beside it."""

    def __init__(self, path: Path) -> None:
        self.engine = RocksDictEngines(SMALL).open(path)
        for store in STORES:
            self.engine.open(store)
        self.number = 0
        self.ends = False
        self.thread = threading.Thread(target=self.run)

    def write(self) -> None:
        number = self.number + 1
        batch: dict[bytes, bytes | None] = {b"last": b"%d" % number, b"%d" % (number % 5_000): os.urandom(100)}
        self.engine.apply(dict.fromkeys(STORES, batch), {"counts": number})
        self.number = number

    def run(self) -> None:
        while not self.ends:
            self.write()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "database")
    yield made
    made.ends = True
    if made.thread.ident is not None:
        made.thread.join(10)
    made.engine.close()


def numbers(path: Path) -> set[int]:
    """The last number in each store of a checkpoint, and the offset with it."""
    engine = RocksDictEngines(read_only=True).open(path)
    try:
        found = {int(engine.open(store).get(b"last") or b"0") for store in STORES}
        return found | {engine.open("counts").offset() or 0}
    finally:
        engine.close()


def test_all_stores_are_as_they_were_at_the_moment_and_the_writer_goes_on(writer: Writer, tmp_path: Path) -> None:
    writer.thread.start()
    taken = 0
    while taken < 8:
        target = tmp_path / "checkpoint"
        checkpoint = Checkpoint(tmp_path / "database", target)
        try:
            checkpoint.begin()
            before = writer.number
            checkpoint.cut()
            after = writer.number
            checkpoint.finish()
        except TornError:
            remove_tree(target)
            continue
        (number,) = numbers(target)
        assert before <= number <= after + 1
        until(lambda seen=writer.number: writer.number > seen, "the writer goes on", 20)
        remove_tree(target)
        taken += 1


def test_what_is_written_after_the_moment_is_not_in_it(writer: Writer, tmp_path: Path) -> None:
    writer.write()
    checkpoint = Checkpoint(tmp_path / "database", tmp_path / "checkpoint")
    checkpoint.begin()
    writer.write()
    checkpoint.cut()
    writer.write()
    checkpoint.finish()
    writer.write()
    assert numbers(tmp_path / "checkpoint") == {2}


def test_a_flush_between_its_steps_makes_a_checkpoint_torn_and_never_wrong(writer: Writer, tmp_path: Path) -> None:
    torn = 0
    for attempt in range(12):
        target = tmp_path / f"checkpoint-{attempt}"
        checkpoint = Checkpoint(tmp_path / "database", target)
        try:
            for step in (checkpoint.begin, checkpoint.cut, checkpoint.finish):
                for _ in range(600):
                    writer.write()
                step()
        except TornError:
            torn += 1
            continue
        assert numbers(target) == {writer.number - 600}
    assert torn


WRITES = """
import sys; from pathlib import Path
from tests.milestones.m6_state_manager.test_checkpoint import Checkpoint, TornError, Writer, scratch
directory = Path(sys.argv[1]); writer = Writer(directory / "database"); writer.thread.start()
while True:
    target = scratch(directory) / "checkpoint"
    try:
        checkpoint = Checkpoint(directory / "database", target)
        checkpoint.begin(); checkpoint.cut(); checkpoint.finish(); print("made", flush=True)
    except TornError: pass
"""


def test_whoever_is_killed_in_a_checkpoint_finds_all_and_no_checkpoint_is_left(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline() == b"made\n"
        process.kill()
    assert len(numbers(tmp_path / "database")) == 1
    assert any(path.name.startswith(TRASH) for path in tmp_path.iterdir())
    sweep(tmp_path)  # as each start does, on any stage
    assert [path.name for path in tmp_path.iterdir()] == ["database"]


__all__ = ["Checkpoint", "TornError", "Writer", "scratch"]


def test_a_table_that_comes_and_goes_while_the_manifest_is_taken_is_no_checkpoint(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made after the tables were taken first, and is gone before they are taken once more."""
    copy = Checkpoint._copy

    def while_the_database_works(checkpoint: Checkpoint, name: str) -> None:
        if name.startswith("MANIFEST"):
            fill_a_table(writer)
        copy(checkpoint, name)
        if name.startswith("MANIFEST"):
            for store in STORES:
                writer.engine.compact(store, (b"", b"\xff"))

    fill_a_table(writer)
    monkeypatch.setattr(Checkpoint, "_copy", while_the_database_works)
    with pytest.raises(TornError, match=r"tables of .* may have been deleted"):
        Checkpoint(tmp_path / "database", tmp_path / "checkpoint").begin()


def fill_a_table(writer: Writer) -> None:
    for _ in range(100):
        writer.write()
    for store in STORES:
        writer.engine.flush(store)
