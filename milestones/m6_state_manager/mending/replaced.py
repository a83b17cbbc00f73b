"""`ReplacedDatabases` keeps damaged databases open until their last scan has ended, and then sets their files aside.

*Guarantees*: the files are set aside, unless their folder is gone.
*Assumes*: one thread calls `let_go`; any thread may call `add`.
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
    """A database that was replaced, and when."""

    engine: Engine
    folder: Path
    at_ms: int


class ReplacedDatabases:
    """*Owns*: the engines of a sub-topology's databases that were replaced. `path`: the sub-topology's folder."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._replaced: list[Replaced] = []

    def add(self, engine: Engine, folder: Path) -> None:
        """Keep an engine that another one has replaced."""
        self._replaced.append(Replaced(engine, folder, self._clock.monotonic_ms()))

    def let_go(self, after_ms: int) -> None:
        """Close engines that were replaced `after_ms` ago, and set their files aside. An engine in which a scan is open
        is passed over, unless `after_ms` is 0."""
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
