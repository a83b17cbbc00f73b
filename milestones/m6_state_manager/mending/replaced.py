"""Damaged databases that were replaced: open until no scan is in them, their files kept afterwards.

*Guarantees*: the files are set aside, unless the folder is gone.
*Assumes*: one thread lets go; any other may add.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from milestones.common.errors import StateError
from milestones.common.state.disk import exists
from milestones.m6_state_manager.mending.database_folder import aside, set_aside

if TYPE_CHECKING:
    from pathlib import Path

    from milestones.common.clock import Clock
    from milestones.common.state.engine import Engine

log: Final = logging.getLogger(__name__)


class Replaced(NamedTuple):
    """One of them."""

    engine: Engine
    folder: Path
    at_ms: int


class ReplacedDatabases:
    """*Owns*: the engines of one sub-topology's databases that count no more. `path`: the sub-topology's folder."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._replaced: list[Replaced] = []

    def add(self, engine: Engine, folder: Path) -> None:
        """Another one has taken this one's place."""
        self._replaced.append(Replaced(engine, folder, self._clock.monotonic_ms()))

    def let_go(self, after_ms: int) -> None:
        """Close those that were replaced `after_ms` ago, once no scan is open in them, or at any rate when that is 0;
        set their files aside."""
        for replaced in list(self._replaced):
            if self._clock.monotonic_ms() - replaced.at_ms >= after_ms and not (after_ms and replaced.engine.scanned()):
                replaced.engine.close()
                try:
                    if exists(replaced.folder):
                        set_aside(replaced.folder, aside(self._path))
                except StateError as error:
                    log.warning("the damaged files in %s stay there until the next start: %s", replaced.folder, error)
                self._replaced.remove(replaced)

    def __len__(self) -> int:
        return len(self._replaced)
