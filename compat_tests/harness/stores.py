"""What instances have on disk, once they have ended.

*Guarantees*: the directories stay as they are: a copy is opened.
*Assumes*: nobody has the stores open.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from compat_tests.oracles.changelog import StoreDump
from milestones.common.state.engines.by_name import open_engines


def store_directories(state_dir: Path, application_id: str) -> list[Path]:
    """Where the persistent stores of all tasks lie: `<state_dir>/<application_id>/<task>/rocksdb/<store>`."""
    return sorted(path for path in (state_dir / application_id).glob("*_*/rocksdb/*") if path.is_dir())


def dumps(state_dir: Path, application_id: str, scratch: Path) -> Iterator[StoreDump]:
    """All stores on this disk."""
    engines = open_engines("rocksdict")
    for path in store_directories(state_dir, application_id):
        task, store = path.parts[-3], path.name
        copy = scratch / "opened" / task / store
        shutil.copytree(path, copy)
        engine = engines.open(copy)
        try:
            namespace = engine.open(store)
            yield StoreDump(task, store, namespace.offset(), dict(namespace.scan(None, None)))
        finally:
            engine.close()
            shutil.rmtree(copy)


def identities(state_dir: Path, application_id: str) -> dict[str, str]:
    """By task and store: RocksDB's own name of the database. One that is made anew, after a wipe say, has another."""
    found = store_directories(state_dir, application_id)
    return {f"{path.parts[-3]}/{path.name}": next(path.rglob("IDENTITY")).read_text() for path in found}


def opened_at(state_dir: Path, application_id: str) -> dict[str, datetime]:
    """By task and store: when it was opened last. RocksDB begins a log of its own then, and keeps no other."""
    found = {}
    for path in store_directories(state_dir, application_id):
        lines = next(path.rglob("LOG")).read_text(errors="replace")
        first = re.match(r"(\S+) \S+ RocksDB version", lines)
        assert first is not None, f"the log of {path} doesn't begin as RocksDB's do: {lines[:100]}"
        found[f"{path.parts[-3]}/{path.name}"] = datetime.strptime(first[1], "%Y/%m/%d-%H:%M:%S.%f")
    return found
