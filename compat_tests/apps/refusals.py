"""Stores whose disk refuses reads or writes, or is too slow for them, while a file says so.

| file in the folder | what fails |
|---|---|
| `read-0_1` | each read of a key from the stores of task 0_1 |
| `write-0_1` | each write to them |
| `stall-0_1` | each write to them, as while flushes or compactions are behind |

*Guarantees*: the errors have the text that RocksDB gives to them, and come from where the library is called.
*Assumes*: installed before the runtime makes anything; stores are persistent, on the default engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from milestones.common.records import TaskId
from milestones.common.state.directory import DATABASES
from milestones.common.state.engine import Batch
from milestones.common.state.engines.rocksdict_engine import RocksDictEngine, RocksDictNamespace
from milestones.m6_state_manager.ranges import BYTES

REFUSED = "IO error: planted"
READ, WRITE, STALL = "read", "write", "stall"
WRITES: dict[str, Callable[[], Exception]] = {
    WRITE: lambda: OSError(REFUSED),
    STALL: lambda: RuntimeError("Result incomplete: Write stall"),
}
"""What a write fails by."""


def refusal(folder: Path, what: str, task: str) -> Path:
    """The file that has the stores of a task fail."""
    return folder / f"{what}-{task}"


def refuse(folder: Path) -> None:
    """Have stores fail as the files in this folder say."""
    engines: Any = RocksDictEngine
    namespaces: Any = RocksDictNamespace
    write, made = engines._write, namespaces.__init__

    @wraps(write)
    def writing(engine: RocksDictEngine, db: Any, batches: Mapping[str, Batch], *rest: Any) -> None:
        for what, failure in WRITES.items():
            if any(_refuses(folder, what, engine, key) for batch in batches.values() for key in batch):
                raise failure()
        write(engine, db, batches, *rest)

    @wraps(made)
    def making(namespace: RocksDictNamespace, engine: RocksDictEngine, *arguments: Any) -> None:
        made(namespace, engine, *arguments)
        read = namespace.get

        def get(key: bytes) -> bytes | None:
            if _refuses(folder, READ, engine, key):
                raise namespace.failed(OSError(REFUSED))
            return read(key)

        namespace.get = get

    engines._write, namespaces.__init__ = writing, making


def _refuses(folder: Path, what: str, engine: RocksDictEngine, key: bytes) -> bool:
    *_, task, kind, _ = Path(str(engine.contents.path)).parts
    if task == DATABASES:  # of a sub-topology: a task is a range of keys there
        task = str(TaskId(int(kind), int.from_bytes(key[:BYTES], "big")))
    return refusal(folder, what, task).exists()
