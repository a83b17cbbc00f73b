"""Databases of many tasks compress their log, which is the most of what they write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from milestones.common.errors import StateError
from milestones.common.state.engine import Engines
from milestones.common.state.engines.by_name import open_engines

COMMITS, ENTRIES = 40, 500


def rows(commit: int) -> dict[bytes, bytes | None]:
    """What a commit writes: rows of JSON."""
    numbers = range(commit * ENTRIES, (commit + 1) * ENTRIES)
    return {b"%09d" % number: json.dumps({"user": f"u{number}", "count": commit}).encode() for number in numbers}


def left_by_a_kill(engines: Engines, directory: Path) -> Path:
    """A database as a killed process leaves it: all of it is in the log."""
    engine = engines.open(directory / "live")
    engine.open("counts")
    for commit in range(COMMITS):
        engine.apply({"counts": rows(commit)}, {"counts": commit})
    left = Path(shutil.copytree(directory / "live", directory / "left"))
    engine.close()
    return left


def bytes_of_logs(folder: Path) -> int:
    return sum(log.stat().st_size for log in folder.glob("*.log"))


def entries(engines: Engines, folder: Path) -> Sequence[tuple[bytes, bytes]]:
    engine = engines.open(folder)
    found = list(engine.open("counts").scan(None, None))
    engine.close()
    return found


@pytest.fixture
def of_many_tasks() -> Engines:
    return open_engines("rocksdict").for_many_tasks()


def test_the_log_of_many_tasks_takes_less_than_half_of_what_is_written(of_many_tasks: Engines, tmp_path: Path) -> None:
    for name in ("compressed", "plain"):
        (tmp_path / name).mkdir()
    plain = left_by_a_kill(open_engines("rocksdict"), tmp_path / "plain")
    assert bytes_of_logs(left_by_a_kill(of_many_tasks, tmp_path / "compressed")) < bytes_of_logs(plain) / 2


def test_all_that_was_written_is_there_after_a_kill_whoever_opens_it(of_many_tasks: Engines, tmp_path: Path) -> None:
    left = left_by_a_kill(of_many_tasks, tmp_path)
    written = sorted(item for commit in range(COMMITS) for item in rows(commit).items())
    for name, engines in (("with", of_many_tasks), ("without", open_engines("rocksdict"))):
        assert entries(engines, Path(shutil.copytree(left, tmp_path / name))) == written


def test_the_second_library_refuses_a_log_that_it_doesn_t_see_and_names_the_ways_on(
    of_many_tasks: Engines, tmp_path: Path
) -> None:
    pytest.importorskip("rocksdb")
    left = left_by_a_kill(of_many_tasks, tmp_path)
    with pytest.raises(StateError, match=r'set rocksdb_engine = "rocksdict", .*state export'):
        open_engines("rocksdb").open(left)


def test_the_second_library_opens_a_database_whose_log_is_empty(of_many_tasks: Engines, tmp_path: Path) -> None:
    pytest.importorskip("rocksdb")
    of_many_tasks.open(tmp_path).close()
    open_engines("rocksdb").open(tmp_path).close()
