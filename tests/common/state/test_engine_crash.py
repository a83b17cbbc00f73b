"""`kill -9` at any moment: what is on disk is a prefix of what was applied, and its offset says which."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from milestones.common.state.engine import Engines

# Batch n writes n into `last`, into its own key, and over the keys of earlier batches; its offset is n + 1.
WRITER = """
import sys
from pathlib import Path
from milestones.common.state.engines.by_name import open_engines

name, directory = sys.argv[1:]
engine = open_engines(name).open(Path(directory))
for store in ("a", "b"):
    engine.open(store)
n = engine.open("a").offset() or 0
while True:
    value = b"%d" % n
    batch = {b"last": value, b"%08d" % n: value, b"slot%d" % (n % 50): value, b"slot%d" % ((n + 25) % 50): None}
    engine.apply({"a": batch, "b": batch}, {"a": n + 1, "b": n + 1})
    n += 1
    if n % 100 == 0:
        print(n, flush=True)
"""


def kill_after(name: str, directory: Path, lines: int) -> int:
    """Run the writer, kill it once it has written `lines` lines and a bit; what it said last."""
    with subprocess.Popen([sys.executable, "-c", WRITER, name, str(directory)], stdout=subprocess.PIPE) as process:
        said = [int(process.stdout.readline()) for _ in range(lines)]
        process.kill()
        rest = process.stdout.read().split()
    return [*said, *map(int, rest)][-1]


def expected(n: int) -> dict[bytes, bytes]:
    """The content after `n` batches."""
    content: dict[bytes, bytes] = {}
    for number in range(n):
        value = b"%d" % number
        content |= {b"last": value, b"%08d" % number: value, b"slot%d" % (number % 50): value}
        content.pop(b"slot%d" % ((number + 25) % 50), None)
    return content


def test_after_a_kill_data_and_offset_agree_and_nothing_confirmed_is_missing(
    disk_engines: Engines, tmp_path: Path
) -> None:
    confirmed = 0
    for _ in range(2):
        confirmed = max(confirmed, kill_after(disk_engines.name, tmp_path / "engine", random.randrange(1, 6)))
        engine = disk_engines.open(tmp_path / "engine")
        for store in ("a", "b"):
            offset = engine.open(store).offset()
            assert offset >= confirmed
            assert dict(engine.open(store).scan(None, None)) == expected(offset)
        assert engine.open("a").offset() == engine.open("b").offset()
        engine.close()


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_log_that_lost_its_end_gives_an_older_prefix_with_its_offset(
    disk_engines: Engines, tmp_path: Path, keep: float
) -> None:
    kill_after(disk_engines.name, tmp_path / "engine", 3)
    [log] = sorted((tmp_path / "engine").glob("*.log"))[-1:]
    with log.open("r+b") as file:
        file.truncate(int(log.stat().st_size * keep))
    engine = disk_engines.open(tmp_path / "engine")
    offsets = [engine.open(store).offset() or 0 for store in ("a", "b")]
    assert offsets[0] == offsets[1]
    for store in ("a", "b"):
        assert dict(engine.open(store).scan(None, None)) == expected(offsets[0])
    engine.close()
