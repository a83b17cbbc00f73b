"""Noise in a log, as a power failure may leave it: the database opens, with all that was written before."""

from __future__ import annotations

import io
import logging
import random
import shutil
from pathlib import Path

import pytest

from milestones.common.state.engine import Engines
from milestones.common.state.engines.log_tails import BLOCK_BYTES, HEADER_BYTES, USED_AGAIN, endless_from, readable
from tests.common.state.opened_beside import NOISES, opened

STORES, WRITES, FAILURES = ("counts", "sums"), 300, 40


class Left:
    """What a crash leaves of a database with `WRITES` numbers in each store. `ends`: where they end in the log."""

    def __init__(self, engines: Engines, directory: Path) -> None:
        engine = engines.open(directory / "live")
        rng, self._directory, self.ends = random.Random(1), directory, list[int]()
        for store in STORES:
            engine.open(store)
        for number in range(WRITES):
            value = rng.randbytes(rng.choice([10, 200, 2_000]))
            engine.apply({store: {b"%05d" % number: value} for store in STORES}, {})
            self.ends.append(self.log(directory / "live").stat().st_size)
        shutil.copytree(directory / "live", directory / "left")
        engine.close()

    @staticmethod
    def log(folder: Path) -> Path:
        (found,) = folder.glob("*.log")
        return found

    def again(self, name: str) -> Path:
        """Another copy."""
        return Path(shutil.copytree(self._directory / "left", self._directory / name))


def numbers(engines: Engines, folder: Path) -> list[list[int]]:
    """What each store has."""
    engine = engines.open(folder)
    found = [[int(key) for key, _ in engine.open(store).scan(None, None)] for store in STORES]
    engine.close()
    return found


def test_whatever_a_log_ends_with_all_writes_before_are_there_within_seconds(
    disk_engines: Engines, tmp_path: Path
) -> None:
    left, rng = Left(disk_engines, tmp_path), random.Random(2)
    places = {}
    for failure in range(FAILURES):
        folder, at = left.again(str(failure)), rng.randrange(left.ends[-1])
        noise = rng.choice(NOISES)(rng, rng.choice([rng.randrange(40), rng.randrange(4 * BLOCK_BYTES)]))
        log = left.log(folder)
        log.write_bytes(log.read_bytes()[:at] + noise)
        places[folder] = at
    assert opened(disk_engines.name, places) == ["opened"] * FAILURES
    for folder, at in places.items():
        whole = [number for number, end in enumerate(left.ends) if end <= at]
        assert numbers(disk_engines, folder) == [whole] * 2, f"{folder.name}: noise from {at} on"


def test_noise_in_a_manifest_is_damage_as_any_other(disk_engines: Engines, tmp_path: Path) -> None:
    left = Left(disk_engines, tmp_path).again("noise")
    manifest = left / (left / "CURRENT").read_text().strip()
    with manifest.open("ab") as file:
        file.write(HEADER_BYTES * bytes([min(USED_AGAIN)]))
    assert opened(disk_engines.name, [left]) == ["damaged"]


def test_a_log_that_the_library_can_read_isn_t_changed_whatever_its_end_is(
    disk_engines: Engines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left, rng = Left(disk_engines, tmp_path), random.Random(3)
    log = left.log(left.again("read"))
    for end in (b"", b"\0" * 100_000, b"\xff" * 100_000):
        kept = log.read_bytes()[: rng.randrange(left.ends[-1])] + end
        log.write_bytes(kept)
        readable(log.parent)
        assert log.read_bytes() == kept
    assert not caplog.records


def test_what_is_left_out_of_a_log_is_named(
    disk_engines: Engines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = Left(disk_engines, tmp_path)
    log = left.log(left.again("noise"))
    with log.open("r+b") as file:
        file.seek(left.ends[10])
        file.write(HEADER_BYTES * bytes([min(USED_AGAIN)]))
    with caplog.at_level(logging.WARNING):
        readable(log.parent)
    (said,) = caplog.messages
    assert str(log) in said
    assert f"ends at byte {left.ends[10]} now: the {left.ends[-1] - left.ends[10]} bytes" in said


def record(size: int, kind: int) -> bytes:
    return b"sum " + size.to_bytes(2, "little") + bytes([kind]) + size * b"d"


BLOCK = record(100, 1) * 2 + record(BLOCK_BYTES - 2 * 107 - HEADER_BYTES, 2)


@pytest.mark.parametrize("kind", sorted(USED_AGAIN))
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (record(5, 1), b""),
        (BLOCK, record(10, 1)),
        (BLOCK * 40 + record(BLOCK_BYTES - HEADER_BYTES - 6, 3) + bytes(6), BLOCK),
        (record(7, 1) + bytes(BLOCK_BYTES - 14), b""),
        (record(7, 1) + b"\xff" * (BLOCK_BYTES - 14), b""),
    ],
    ids=["its second record", "its second block", "behind a block's rest", "behind zeros", "behind ones"],
)
def test_a_log_is_endless_from_its_first_record_that_is_of_a_log_used_again(
    kind: int, before: bytes, behind: bytes
) -> None:
    assert endless_from(io.BytesIO(before + record(30, kind) + behind)) == len(before)


@pytest.mark.parametrize(
    "log",
    [b"", bytes(6), BLOCK * 40, record(5, 5) + record(6, 5), record(5, 1) + bytes([5]) * 6],
    ids=["empty", "shorter than a header", "forty blocks", "of a log used again", "a header that isn't whole"],
)
def test_a_log_that_began_as_one_used_again_or_has_none_of_its_records_comes_to_an_end(log: bytes) -> None:
    assert endless_from(io.BytesIO(log)) is None


def test_what_is_appended_while_a_log_is_looked_at_is_not_taken_for_noise() -> None:
    class Growing(io.BytesIO):
        """A log of one record that gets another one once it was read; the middle of its data looks like noise."""

        def read(self, size: int | None = -1) -> bytes:
            found, at = super().read(size), self.tell()
            self.write(bytes([0, 0, 0, 0, 0, 0, min(USED_AGAIN)]) * 10)
            self.seek(at)
            return found

    record = b"\0\0\0\0" + bytes([10, 0, 1]) + bytes(10)
    assert endless_from(Growing(record)) is None
