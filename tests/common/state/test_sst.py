"""Sorted table files: what is written comes back, in every engine, and damage is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.common.errors import StateCorruptError, StateError
from milestones.common.state.engine import Engine
from milestones.common.state.engines.sst import SstWriter, entries
from milestones.common.state.steps import STEP_ENTRIES

MANY = {b"key-%06d" % number: b"value-%d" % number for number in range(3 * STEP_ENTRIES)}


def written(directory: Path, content: dict[bytes, bytes], **settings: int) -> list[Path]:
    directory.mkdir(exist_ok=True)
    writer = SstWriter(directory, **settings)
    writer.write(iter(sorted(content.items())))
    assert sum(writer.files.values()) == len(content)
    return list(writer.files)


def take(engine: Engine, files: list[Path]) -> int:
    """Steps that it took."""
    return sum(1 for _ in engine.ingest("counts", files))


def test_an_engine_that_takes_files_in_has_their_entries_and_no_offset(engine: Engine, tmp_path: Path) -> None:
    content = {**MANY, b"": b"empty key", b"\xff\xff": b""}
    files = written(tmp_path / "files", content, file_bytes=20_000)
    assert len(files) > 3
    counts = engine.open("counts")
    take(engine, files)
    assert dict(counts.scan(None, None)) == content
    assert (counts.offset(), counts.get(b"key-000007"), counts.get(b"")) == (None, b"value-7", b"empty key")


def test_what_was_taken_in_is_written_over_deleted_and_dropped_like_anything_else(
    engine: Engine, tmp_path: Path
) -> None:
    counts = engine.open("counts")
    take(engine, written(tmp_path / "files", {b"a": b"1", b"b": b"2", b"c": b"3"}))
    engine.apply({"counts": {b"a": b"9", b"b": None}}, {"counts": 5})
    assert (dict(counts.scan(None, None)), counts.offset()) == ({b"a": b"9", b"c": b"3"}, 5)
    engine.drop("counts")
    assert list(engine.open("counts").scan(None, None)) == []


def test_an_engine_that_cannot_take_files_in_writes_their_entries_in_steps(engine: Engine, tmp_path: Path) -> None:
    engine.open("counts")
    steps = take(engine, written(tmp_path / "files", MANY))
    assert steps == (1 if type(engine).__name__ == "RocksDictEngine" else 3)


def test_files_that_are_taken_in_together_count_in_their_order_deletions_too(engine: Engine, tmp_path: Path) -> None:
    base = {b"key-%04d" % number: b"base" for number in range(1_000)}
    deltas: list[dict[bytes, bytes | None]] = [
        {b"key-%04d" % number: None if number % 10 == 0 else b"first" for number in range(0, 1_000, 5)},
        {b"key-0005": None, b"key-0010": b"back", b"key-0011": None, b"new": b"1", b"never": None},
    ]
    files = written(tmp_path / "base", base, file_bytes=5_000)
    assert len(files) > 1
    expected: dict[bytes, bytes | None] = dict(base)
    for number, delta in enumerate(deltas):
        (tmp_path / f"delta-{number}").mkdir()
        writer = SstWriter(tmp_path / f"delta-{number}")
        writer.write(iter(sorted(delta.items())))
        assert sum(writer.deletions.values()) == sum(value is None for value in delta.values())
        assert sum(writer.files.values()) + sum(writer.deletions.values()) == len(delta)
        files += [path.rename(tmp_path / f"{number}-{path.name}") for path in writer.files]
        expected.update(delta)
    content = {key: value for key, value in expected.items() if value is not None}
    assert dict(entries(files)) == content
    counts = engine.open("counts")
    take(engine, files)
    assert dict(counts.scan(None, None)) == content
    assert (counts.get(b"key-0010"), counts.get(b"key-0020"), counts.get(b"never")) == (b"back", None, None)


def test_leaving_half_way_leaves_an_engine_that_can_be_dropped_and_closed(engine: Engine, tmp_path: Path) -> None:
    engine.open("counts")
    steps = engine.ingest("counts", written(tmp_path / "files", MANY))
    next(steps)
    del steps
    engine.drop("counts")
    assert list(engine.open("counts").scan(None, None)) == []


def test_no_files_are_an_empty_store(engine: Engine, tmp_path: Path) -> None:
    assert written(tmp_path / "files", {}) == []
    counts = engine.open("counts")
    take(engine, [])
    assert list(counts.scan(None, None)) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "gone"])
def test_a_damaged_file_is_an_error_that_says_so(engine: Engine, tmp_path: Path, damage: str) -> None:
    (file,) = written(tmp_path / "files", MANY)
    data = bytearray(file.read_bytes())
    data[100] ^= 0xFF
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes({"cut": data[: len(data) // 2], "changed": data, "empty": b""}[damage])
    counts = engine.open("counts")
    with pytest.raises((StateCorruptError, StateError)):
        take(engine, [file])
    assert len(list(counts.scan(None, None))) < len(MANY)


def test_files_give_their_entries_back_and_stay(tmp_path: Path) -> None:
    files = written(tmp_path / "files", MANY, file_bytes=20_000)
    for _ in range(2):
        assert dict(entries(files)) == MANY
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == [file.name for file in files]


def test_keys_that_do_not_rise_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        SstWriter(tmp_path).write(iter([(b"b", b"1"), (b"a", b"2")]))


def test_keys_come_without_what_all_of_them_have_in_front(tmp_path: Path) -> None:
    files = written(tmp_path / "files", {b"\0\1" + key: value for key, value in MANY.items()}, file_bytes=20_000)
    assert dict(entries(files, b"\0\1")) == MANY
    with pytest.raises(StateCorruptError, match="doesn't begin with 0002"):
        list(entries(files, b"\0\2"))
