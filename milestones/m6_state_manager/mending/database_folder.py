"""The folder in which the database of a sub-topology lies, and the damaged one that it has replaced.

    engines/<sub-topology>/
        manifest.json
        rocksdb/        the first database
        rocksdb-2/      the one that was mended, and so on
        current         the name of the one that counts; absent while that is the first
        corrupt/        the last damaged one, set aside

*Guarantees*: another folder comes to count in one step. What a mending has left that broke off is removed, and a
damaged database that was replaced is set aside, at the next start at the latest.
*Assumes*: one process at a time.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateCorruptError
from milestones.common.state.disk import explained, make_directory, names, remove_tree, write_atomically
from milestones.common.state.manifest import TaskManifest

if TYPE_CHECKING:
    from pathlib import Path

DATABASE: Final = "rocksdb"
CURRENT: Final = "current"
CORRUPT: Final = "corrupt"


def number_of(folder: str) -> int | None:
    """Which one of the databases this is, from 1 on; None for what is no database's name."""
    found = re.fullmatch(rf"{DATABASE}(?:-([1-9]\d*))?", folder)
    return None if found is None else int(found[1] or 1)


def current(path: Path) -> str:
    """The folder that counts, in the folder of a sub-topology. `StateCorruptError`, `StateError`."""
    with explained("read", path / CURRENT):
        try:
            name = (path / CURRENT).read_text(errors="replace").strip()
        except FileNotFoundError:
            return DATABASE
    if number_of(name) is None:
        raise StateCorruptError(f"{path / CURRENT} names no database: {name[:50]!r}")
    return name


def engine_of(path: Path) -> str | None:
    """The engine that has written the database in the folder of a sub-topology; None where none has. `StateError`."""
    written = TaskManifest.read(path)
    return None if written is None else next((store.engine for store in written.stores.values()), None)


def following(folder: str) -> str:
    """The folder of the database that is to replace the one in `folder`."""
    return f"{DATABASE}-{(number_of(folder) or 1) + 1}"


def make_current(path: Path, folder: str) -> None:
    """Have this folder count from now on. `StateError`."""
    write_atomically(path / CURRENT, folder.encode() + b"\n")


def sweep(path: Path) -> None:
    """Remove what a mending has left that broke off, and set aside what was replaced. `StateError`."""
    kept = number_of(current(path)) or 1
    for name in names(path):
        number = number_of(name)
        if number is not None and number > kept:
            remove_tree(path / name)
        elif number is not None and number < kept:
            set_aside(path / name, aside(path))


def begin_anew(path: Path) -> Path:
    """Set the database aside that counts, or the last one, and have none count; where its files are then.
    `StateError`."""
    found = sorted((number, name) for name in names(path) if (number := number_of(name)) is not None)
    kept = aside(path)
    for _, name in found:
        kept = set_aside(path / name, kept)
    with explained("remove", path / CURRENT):
        (path / CURRENT).unlink(missing_ok=True)
    return kept


def aside(path: Path) -> Path:
    """Where the damaged files of a sub-topology's database are kept: on its own disk."""
    return path / CORRUPT


def set_aside(path: Path, kept: Path) -> Path:
    """Keep damaged files, in place of those that were kept there before; where they are then. The folder's time says
    since when. `StateError`."""
    remove_tree(kept)
    make_directory(kept.parent)
    with explained("move aside", path):
        os.utime(path)
        path.rename(kept)
    return kept
