"""Damaged files and hostile disks: every error says which store, and what it is."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest

from milestones.common.errors import StateCorruptError, StateError, StateFullError, StateLockedError
from milestones.common.state.engine import Engine, Engines
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocks import failure
from tests.common.state.owners import COUNTS, OWNERS


def written(engines: Engines, path: Path) -> Path:
    """A store with two table files of data, closed."""
    for start in (0, 1500):
        engine = engines.open(path, OWNERS)
        engine.open("counts")
        batch = {b"%05d" % number: os.urandom(50) for number in range(start, start + 1500)}
        engine.apply({"counts": batch}, {"counts": start})
        engine.close()
    engines.open(path, OWNERS).close()
    return path


def read_all(engines: Engines, path: Path) -> None:
    """With a cache that has seen nothing yet."""
    engine = open_engines(engines.name).open(path, OWNERS)
    try:
        counts = engine.open("counts")
        for _ in counts.scan(None, None):
            pass
        for number in range(0, 3000, 10):
            counts.get(b"%05d" % number)
    finally:
        engine.close()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    for place in range(middle, min(middle + 100, len(data))):
        data[place] ^= 0xFF
    path.write_bytes(bytes(data))


def damaged(engines: Engines, path: Path) -> Engine:
    """That store with a changed block, open."""
    flip(largest(written(engines, path), "*.sst"))
    return open_engines(engines.name).open(path, OWNERS)


def largest(path: Path, pattern: str) -> Path:
    return max(path.glob(pattern), key=lambda file: file.stat().st_size)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a changed block": lambda path: flip(largest(path, "*.sst")),
    "a cut table file": lambda path: os.truncate(largest(path, "*.sst"), 1000),
    "an empty table file": lambda path: os.truncate(largest(path, "*.sst"), 0),
    "a missing table file": lambda path: largest(path, "*.sst").unlink(),
    "a changed manifest": lambda path: flip(largest(path, "MANIFEST-*")),
    "a missing manifest": lambda path: largest(path, "MANIFEST-*").unlink(),
    "a senseless CURRENT": lambda path: (path / "CURRENT").write_text("nonsense"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_an_error_that_names_the_store_never_a_missing_key(
    disk_engines: Engines, tmp_path: Path, damage: str
) -> None:
    path = written(disk_engines, tmp_path / "engine")
    DAMAGES[damage](path)
    with pytest.raises(StateCorruptError, match="'counts' of task 0_1") as raised:
        read_all(disk_engines, path)
    assert raised.value.damaged == {COUNTS}
    shutil.rmtree(path)
    disk_engines.open(path, OWNERS).close()


def test_an_error_that_somebody_keeps_doesn_t_keep_the_store_open(disk_engines: Engines, tmp_path: Path) -> None:
    path = tmp_path / "engine"
    engine = damaged(disk_engines, path)
    counts = engine.open("counts")
    calls: list[tuple[type[StateError], Callable[[], object]]] = [
        (StateCorruptError, lambda: list(counts.scan(None, None))),
        (StateCorruptError, lambda: list(counts.scan(None, None, reverse=True))),
        (StateCorruptError, lambda: counts.scan_bounded(b"", b"a", 3000)),
        (StateCorruptError, lambda: counts.scan_bounded(b"", b"a", 3000)),
        (StateCorruptError, lambda: [counts.get(b"%05d" % number) for number in range(3000)]),
        (StateError, lambda: engine.apply({"counts": {b"a": "text"}}, {})),  # type: ignore[dict-item]
    ]
    kept = []
    for error, call in calls:
        with pytest.raises(error) as raised:
            call()
        kept.append(raised)
    engine.close()
    disk_engines.open(path, OWNERS).close()
    shutil.rmtree(path)
    assert len(kept) == len(calls)


def test_files_that_rocksdb_can_do_without_may_be_damaged(disk_engines: Engines, tmp_path: Path) -> None:
    path = written(disk_engines, tmp_path / "engine")
    for file in [*path.glob("OPTIONS-*"), *path.glob("*.json"), *path.glob("LOG*"), path / "IDENTITY"]:
        file.write_bytes(b"nonsense")
    read_all(disk_engines, path)


def test_a_file_where_the_directory_belongs_is_a_clear_error(disk_engines: Engines, tmp_path: Path) -> None:
    (tmp_path / "engine").write_text("mine")
    with pytest.raises(StateError, match="engine"):
        disk_engines.open(tmp_path / "engine", OWNERS)


def limit_with(spare: int) -> int:
    """The limit below which so many descriptors are free, wherever those lie that tests before have open."""
    taken = {int(path.name) for path in Path("/dev/fd").iterdir()}
    return next(islice((number for number in count() if number not in taken), spare, None))


def test_too_many_open_files_is_no_corruption(disk_engines: Engines, tmp_path: Path) -> None:
    path = written(disk_engines, tmp_path / "engine")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = set()
    for spare in range(2, 14):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with(spare), limits[1]))
        try:
            read_all(disk_engines, path)
        except StateCorruptError as error:
            raise AssertionError(f"with {spare} files left: {error}") from error
        except StateError as error:
            seen.add("ulimit" in str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert True in seen
    read_all(disk_engines, path)


TEXTS = [
    ("IO error: lock hold by current process, acquire time 1: /s/LOCK: No locks available", StateLockedError, "open"),
    ("IO error: While lock file: /s/LOCK: Resource temporarily unavailable", StateLockedError, "open"),
    ("IO error: No space left on device: While appending to file: /s/000004.log", StateFullError, "disk full"),
    ("Corruption: Corruption: IO error: Too many open files: /s/000011.sst", StateError, "ulimit"),
    ("IO error: While mkdir if missing: /s: Read-only file system", StateError, "permission"),
    ("IO error: Permission denied: /s/LOCK", StateError, "permission"),
    ("Corruption: block checksum mismatch: stored = 1", StateCorruptError, "damaged"),
    ("IO error: No such file or directory: While open a file: /s/000011.sst", StateCorruptError, "damaged"),
    ("Busy: something new", StateError, "something new"),
]


@pytest.mark.parametrize(("text", "kind", "says"), TEXTS)
def test_a_library_s_error_text_becomes_an_error_of_ours(text: str, kind: type[StateError], says: str) -> None:
    for raw in (Exception(text), Exception(text.encode())):
        error = failure(raw, "store 'counts' in /s", [COUNTS])
        assert type(error) is kind
        assert getattr(error, "damaged", None) == (frozenset([COUNTS]) if kind is StateCorruptError else None)
        assert says in str(error)
        assert "counts" in str(error)
        assert "/s" in str(error)
