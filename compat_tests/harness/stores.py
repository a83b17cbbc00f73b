"""What instances have on disk, once they have ended.

*Guarantees*: the directories stay as they are, but for `lose`: a copy is opened.
*Assumes*: nobody has the stores open.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from compat_tests.oracles.changelog import StoreDump
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.m6_state_manager.reading import databases, stores
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine


def store_directories(state_dir: Path, application_id: str) -> list[Path]:
    """Where the persistent stores of all tasks lie before m6: `<state_dir>/<application_id>/<task>/rocksdb/<store>`."""
    return sorted(path for path in (state_dir / application_id).glob("*_*/rocksdb/*") if path.is_dir())


def homes(state_dir: Path, application_id: str) -> list[Path]:
    """What may be damaged or lost by itself: the directory of a store before m6, the database of a sub-topology from m6
    on."""
    return [*store_directories(state_dir, application_id), *databases(state_dir / application_id)]


def lose(state_dir: Path, application_id: str, *tasks: str) -> None:
    """Have no state of these tasks on this disk."""
    for store in store_directories(state_dir, application_id):
        task = store.parents[1]
        if task.name in tasks:
            shutil.rmtree(task)
    for path in databases(state_dir / application_id):
        database = SubtopologyEngine(int(path.name), path, open_engines("rocksdict"))
        try:
            for partition in list(database.rows):
                if f"{path.name}_{partition}" in tasks:
                    database.wipe(partition, database.stores(), None)
        finally:
            database.close()


def dumps(state_dir: Path, application_id: str, scratch: Path) -> Iterator[StoreDump]:
    """All stores on this disk."""
    engines = open_engines("rocksdict")
    for path in store_directories(state_dir, application_id):
        with _copied(path, scratch) as copy:
            engine = engines.open(copy)
            try:
                namespace = engine.open(path.name)
                yield StoreDump(path.parts[-3], path.name, namespace.offset(), dict(namespace.scan(None, None)))
            finally:
                engine.close()
    for path in databases(state_dir / application_id):
        with _copied(path, scratch) as copy:
            for found in stores(copy, engines):
                yield StoreDump(str(found.task), found.store, found.offset, dict(found.entries))


def table_files(state_dir: Path, application_id: str, scratch: Path) -> Iterator[tuple[Path, set[str], set[str]]]:
    """Of each database of a sub-topology: where it is, its table files, and those of them that it needs."""
    for path in databases(state_dir / application_id):
        with _copied(path, scratch) as copy:
            there = {file.name for file in copy.glob("rocksdb*/*.sst")}
            database = SubtopologyEngine(int(path.name), copy, RocksDictEngines(read_only=True))
            try:
                files = database.engine.db().live_files()  # type: ignore[attr-defined]  # of this engine
                yield path, there, {file["name"].lstrip("/") for file in files}
            finally:
                database.close()


@contextmanager
def _copied(path: Path, scratch: Path) -> Iterator[Path]:
    copy = scratch / "opened" / path.name
    shutil.copytree(path, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def identities(state_dir: Path, application_id: str) -> dict[str, str]:
    """By task and store: RocksDB's own name of the database, or of a range the id of its birth. A store that is made
    anew, after a wipe say, has another."""
    found = {
        f"{path.parts[-3]}/{path.name}": next(path.rglob("IDENTITY")).read_text()
        for path in store_directories(state_dir, application_id)
    }
    for path in databases(state_dir / application_id):
        with _copied(path, state_dir) as copy:
            found |= {f"{one.task}/{one.store}": one.birth for one in stores(copy, open_engines("rocksdict"))}
    return found


def opened_at(state_dir: Path, application_id: str) -> dict[str, datetime]:
    """By task and store, or by database from m6 on: when it was opened last. RocksDB begins a log of its own then, and
    keeps no other."""
    places = {f"{path.parts[-3]}/{path.name}": path for path in store_directories(state_dir, application_id)}
    places |= {path.name: path for path in databases(state_dir / application_id)}
    return {name: _opened_at(path) for name, path in places.items()}


def _opened_at(path: Path) -> datetime:
    lines = next(path.rglob("LOG")).read_text(errors="replace")
    first = re.match(r"(\S+) \S+ RocksDB version", lines)
    assert first is not None, f"the log of {path} doesn't begin as RocksDB's do: {lines[:100]}"
    return datetime.strptime(first[1], "%Y/%m/%d-%H:%M:%S.%f")
