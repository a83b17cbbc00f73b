"""Stores whose disk refuses reads or writes while a file says so.

| file in the folder | what fails |
|---|---|
| `read-0_1` | each read of a key from the stores of task 0_1 |
| `write-0_1` | each write to them |

*Guarantees*: the errors have the text that RocksDB gives to those of a disk, and come from where the library is called.
*Assumes*: installed before the runtime makes anything; stores are persistent, on the default engine.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

from milestones.common.state.engines.rocksdict_engine import RocksDictEngine, RocksDictNamespace

REFUSED = "IO error: planted"
READ, WRITE = "read", "write"


def refusal(folder: Path, what: str, task: str) -> Path:
    """The file that has the stores of a task fail."""
    return folder / f"{what}-{task}"


def refuse(folder: Path) -> None:
    """Have stores fail as the files in this folder say."""
    engines: Any = RocksDictEngine
    namespaces: Any = RocksDictNamespace
    write, made = engines._write, namespaces.__init__

    @wraps(write)
    def writing(engine: RocksDictEngine, *arguments: Any) -> None:
        if _refuses(folder, WRITE, engine):
            raise OSError(REFUSED)
        write(engine, *arguments)

    @wraps(made)
    def making(namespace: RocksDictNamespace, engine: RocksDictEngine, *arguments: Any) -> None:
        made(namespace, engine, *arguments)
        read = namespace.get

        def get(key: bytes) -> bytes | None:
            if _refuses(folder, READ, engine):
                raise namespace.failed(OSError(REFUSED))
            return read(key)

        namespace.get = get

    engines._write, namespaces.__init__ = writing, making


def _refuses(folder: Path, what: str, engine: RocksDictEngine) -> bool:
    task = Path(str(engine.contents.path)).parts[-3]
    return refusal(folder, what, task).exists()
