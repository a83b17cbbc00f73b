"""Removes files that were set aside because they are damaged, or were written by another engine.

| in `engines/` | files of |
|---|---|
| `<n>/corrupt/` | a database that was mended, or replaced by an empty one |
| `<n>-corrupt/`, `<task>-<store>-corrupt/` | ranges, or a folder, that a conversion couldn't read |
| `<n>-<rocksdb_engine>/` | a database that another engine has written |

*Guarantees*: files are kept for `KEPT_MS`. Files that may be the only copy are kept for good. So nothing is removed if
the sub-topology has, or had, a store without changelog, or if none of its tasks was opened since the start.
*Assumes*: one thread at a time calls.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateError
from milestones.common.state.disk import exists, explained, names, remove_tree, some
from milestones.common.state.engines.by_name import ENGINES
from milestones.common.state.manifest import TaskManifest
from milestones.m6_state_manager.mending.database_folder import CORRUPT, aside

if TYPE_CHECKING:
    from pathlib import Path

    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

log: Final = logging.getLogger(__name__)

KEPT_MS: Final = 7 * 24 * 60 * 60 * 1_000

_ASIDE: Final = re.compile(rf"(\d+)(?:_\d+-.+)?-{CORRUPT}|(\d+)-(?:{'|'.join(ENGINES)})")


def remove_old(databases: Iterable[SubtopologyEngine], now_ms: int) -> bool:
    """Remove files that were set aside `KEPT_MS` ago and aren't needed. Returns True if there were some. `now_ms`: wall
    clock."""
    removed: list[str] = []
    for database in databases:
        try:
            # The files of a replaced database will be set aside next, in place of files that are looked at here.
            for path in () if len(database.replaced) else kept_of(database.path):
                if now_ms - _since_ms(path) >= KEPT_MS and restorable(database, path):
                    remove_tree(path)
                    removed.append(str(path))
        except StateError as error:
            log.warning("files of sub-topology %d that were set aside can't be removed: %s", database.number, error)
    if removed:
        log.info("removed files that were set aside %d days ago: %s", KEPT_MS // 86_400_000, some(removed))
    return bool(removed)


def restorable(database: SubtopologyEngine, kept: Path) -> bool:
    """Return whether all stores that the sub-topology has, or had when `kept` was set aside, are known to have a
    changelog. Raises `StateError`."""
    if database.agreed is None or database.manifest is None:
        return False
    logged = {spec.name for spec in database.agreed if spec.logged or spec.source_topic is not None}
    then = TaskManifest.read(kept)
    return logged.issuperset(database.manifest.stores) and (then is None or logged.issuperset(then.stores))


def kept_of(path: Path) -> list[Path]:
    """Return the folders of a sub-topology's files that were set aside. `path`: its folder. Raises `StateError`."""
    found = [(name, _ASIDE.fullmatch(name)) for name in names(path.parent)]
    beside = [path.with_name(name) for name, match in found if match is not None and path.name in match.groups()]
    return [kept for kept in (aside(path), *beside) if exists(kept)]


def _since_ms(path: Path) -> int:
    with explained("look at", path):
        return path.stat().st_mtime_ns // 1_000_000
