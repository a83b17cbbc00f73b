"""The folder of a sub-topology's database: which database is current, and where a damaged one is set aside.

    engines/<sub-topology>/
        manifest.json
        rocksdb/        the first database
        rocksdb-2/      the copy that has replaced it, and so on
        current         the name of the current database; absent while that is the first one
        corrupt/        the last damaged database, set aside

*Guarantees*: another database becomes current in one step. At the next start at the latest, the files of an interrupted
mending are removed, and a damaged database that was replaced is set aside.
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
    """Return the number of the database with this name, from 1 on; None if no database has such a name."""
    found = re.fullmatch(rf"{DATABASE}(?:-([1-9]\d*))?", folder)
    return None if found is None else int(found[1] or 1)


def current(path: Path) -> str:
    """Return the name of the current database of a sub-topology. Raises `StateCorruptError`, `StateError`."""
    with explained("read", path / CURRENT):
        try:
            name = (path / CURRENT).read_text(errors="replace").strip()
        except FileNotFoundError:
            return DATABASE
    if number_of(name) is None:
        raise StateCorruptError(f"{path / CURRENT} names no database: {name[:50]!r}")
    return name


def engine_of(path: Path) -> str | None:
    """Return the name of the engine that has written a sub-topology's database; None if none has. Raises
    `StateError`."""
    written = TaskManifest.read(path)
    return None if written is None else next((store.engine for store in written.stores.values()), None)


def following(folder: str) -> str:
    """Return the name of the database that will replace the one in `folder`."""
    return f"{DATABASE}-{(number_of(folder) or 1) + 1}"


def make_current(path: Path, folder: str) -> None:
    """Make this database the current one. Raises `StateError`."""
    write_atomically(path / CURRENT, folder.encode() + b"\n")


def sweep(path: Path) -> None:
    """Remove the files of an interrupted mending, and set replaced databases aside. Raises `StateError`."""
    kept = number_of(current(path)) or 1
    for name in names(path):
        number = number_of(name)
        if number is not None and number > kept:
            remove_tree(path / name)
        elif number is not None and number < kept:
            set_aside(path / name, aside(path))


def begin_anew(path: Path) -> Path:
    """Set all databases of a sub-topology aside, so that it begins with a new one. Returns the folder that has the
    files of the last one. Raises `StateError`."""
    found = sorted((number, name) for name in names(path) if (number := number_of(name)) is not None)
    kept = aside(path)
    for _, name in found:
        kept = set_aside(path / name, kept)
    with explained("remove", path / CURRENT):
        (path / CURRENT).unlink(missing_ok=True)
    return kept


def aside(path: Path) -> Path:
    """Return the folder, on the same disk, that keeps the damaged files of a sub-topology's database."""
    return path / CORRUPT


def set_aside(path: Path, kept: Path) -> Path:
    """Move damaged files to `kept`, in place of those that were kept there before. The folder's time says since when
    they are kept. Returns `kept`. Raises `StateError`."""
    remove_tree(kept)
    make_directory(kept.parent)
    with explained("move aside", path):
        os.utime(path)
        path.rename(kept)
    return kept
