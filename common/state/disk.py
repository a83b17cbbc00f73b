"""Files of the state directory: errors that say what to do, atomic writes, atomic removal.

*Guarantees*: `explained` turns each `OSError` into a `StateError`. After a crash, a file of `write_atomically` has the
old content or the new one. `remove_tree` removes a tree in one step. `sweep` deletes the temporary files that a crash
leaves behind. If the disk refuses to delete files of a removed tree, `delete_left` deletes them later.
*Assumes*: a POSIX file system, on which a rename is atomic. Called from any thread.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from milestones.common.errors import StateError, StateFullError

log: Final = logging.getLogger(__name__)

TRASH = ".trash-"
"""The names of files and folders that are being deleted begin with this."""
TEMPORARY = ".*.tmp"
"""The pattern of the names of files that are being written."""

_NO_PERMISSION = "let this user own it, or set state_dir to a directory that it may write"
_FULL = "free some space, or set state_dir to a directory on a larger disk"
_NOT_A_DIRECTORY = "a file stands where a directory is needed: move it away, or choose another state_dir"
REMEDIES: Mapping[int, str] = {
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: "the file system is read-only: mount it for writing, or choose another state_dir",
    errno.ENOSPC: "disk full: " + _FULL,
    errno.EDQUOT: "disk quota used up: " + _FULL,
    errno.ENOTDIR: _NOT_A_DIRECTORY,
    errno.EEXIST: _NOT_A_DIRECTORY,
    errno.EMFILE: "too many open files: raise the limit of this process (ulimit -n)",
    errno.ENFILE: "too many open files on this machine",
    errno.ENOLCK: "the file system has no locks to give: keep state_dir on a local disk",
    errno.ENAMETOOLONG: "the path is too long: choose a shorter state_dir",
}


@contextmanager
def explained(doing: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `StateError` that names the path and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "see that the disk is sound, or choose another state_dir")
        kind = StateFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StateError
        raise kind(f"can't {doing} {path}: {error.strerror or error}; {remedy}") from error


def exists(path: Path) -> bool:
    """True if there is such a file or folder. Raises `StateError` if the disk gives an error."""
    with explained("look for", path):
        return path.exists()


def make_directory(path: Path) -> None:
    """Make the directory `path` and its missing parents. As in Kafka Streams, other users can't read new
    directories."""
    with explained("create the directory", path):
        for missing in reversed([parent for parent in (path, *path.parents) if not parent.exists()]):
            missing.mkdir(mode=0o750, exist_ok=True)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace the content of `path` in one step. With `sync` the new content survives a power failure; without it a
    crash of the machine may lose the content.

    The steps are: write a temporary file, fsync it, rename it, fsync the directory. Without `sync` there is no
    fsync."""
    temporary = path.with_name(f".{path.name}.tmp")
    with explained("write", path):
        with temporary.open("wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    if sync:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names of the entries of the directory `path` durable, so that they survive a power failure."""
    with explained("write", path):
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def scratch(directory: Path) -> Path:
    """Make a folder in `directory` for temporary files; `sweep` removes it after a crash."""
    path = directory / f"{TRASH}{uuid.uuid4().hex}"
    make_directory(path)
    return path


_left: dict[Path, Path] = {}
"""Folders with files that the disk didn't delete, each with the former path of the removed tree. Each change is one
step, so that no lock is needed."""


def remove_tree(path: Path) -> None:
    """Delete `path` with everything below it. Does nothing if `path` doesn't exist.

    Raises `StateError` in two cases. Either nothing was removed, and `path` still exists. Or `path` is gone, but some
    files are still on the disk under another name, and `delete_left` will delete them."""
    trash = path.with_name(f"{TRASH}{uuid.uuid4().hex}")
    with explained("remove", path):
        try:
            path.rename(trash)
        except FileNotFoundError:
            return
    _delete(trash, path)


def _delete(trash: Path, path: Path) -> None:
    """Delete the folder `trash`, whose content was removed from `path`. Raises `StateError` if files are left in
    `trash`."""
    with explained(f"delete {trash.name}, which was", path):
        try:
            shutil.rmtree(trash)
        except OSError:
            if trash.exists():  # otherwise another thread has deleted it at the same time
                _left[trash] = path
                raise
    _left.pop(trash, None)


def delete_left(below: Path) -> None:
    """Delete the files that are left of trees that were removed below this folder.

    Tries all of these trees. Raises the `StateError` of the first tree of which files are still left."""
    errors: list[StateError] = []
    for trash, path in list(_left.items()):
        if trash.is_relative_to(below):
            try:
                _delete(trash, path)
            except StateError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def sweep(directory: Path) -> None:
    """Delete the temporary files that unfinished removals and writes have left in `directory`.

    Files that the disk doesn't delete are logged as a warning, and `delete_left` deletes them later."""
    with explained("clean", directory), suppress(FileNotFoundError):
        for entry in directory.iterdir():
            if entry.name.startswith(TRASH):
                try:
                    _delete(entry, entry)
                except StateError as error:
                    log.warning("files of state that was removed before are still on the disk: %s", error)
            elif fnmatch(entry.name, TEMPORARY):
                entry.unlink(missing_ok=True)


def names(directory: Path) -> list[str]:
    """List the names in `directory`, sorted, without this module's temporary files. Empty if it is no directory."""
    with explained("list", directory):
        try:
            found = os.listdir(directory)  # noqa: PTH208  names only
        except (FileNotFoundError, NotADirectoryError):
            return []
    return sorted(name for name in found if not (name.startswith(TRASH) or fnmatch(name, TEMPORARY)))


def is_plain_name(text: str) -> bool:
    """True if `text` can be the name of an entry below a directory."""
    return text not in ("", ".", "..") and not {"/", "\0"} & set(text)


def some(found: list[str]) -> str:
    """Join the first names of a list, for a message."""
    return ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
