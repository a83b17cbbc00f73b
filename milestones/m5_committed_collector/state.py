"""`CommitLoggedState`, the state ownership of M5: stores write their changelog only at a commit, and emit each update.

*Guarantees*: per commit interval, a changelog gets only the last value of each key, with the time of this value. A
changelog that is a history, such as that of a versioned store, gets every write. Every update is emitted when it is
made, whatever `statestore_cache_max_bytes` says.
*Assumes*: everything that `TaskOwnedState` assumes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milestones.shared_parts.state import TaskOwnedState

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext

log: Final = logging.getLogger(__name__)


class CommitLoggedState(TaskOwnedState):
    """Makes tasks whose changelogs have one record per key and commit."""

    def __init__(self, context: ThreadContext, partitions_of: Callable[[str], int]) -> None:
        super().__init__(context, partitions_of)
        self.settings = self.settings.with_thin_logs()
        cache_bytes = context.config.statestore_cache_max_bytes
        if cache_bytes > 0:
            log.info(
                "%s: statestore_cache_max_bytes (%d) changes no output at this stage: every update is emitted, and "
                "changelogs have one record per key and commit; a sink that needs the last one only says "
                "to(..., upserts=True)", context.name, cache_bytes,
            )  # fmt: skip
