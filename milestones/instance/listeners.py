"""Calls the user's listeners of restorations (Kafka's `StateRestoreListener`) and of standbys (KIP-869).

*Guarantees*: calls about one partition come in order, from one thread at a time; an error of a listener is logged and
has no other effect.
*Assumes*: listeners are set before the client starts. A call delays the restoration, so it should be short. Several
threads may call one listener at the same time, about different partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, ParamSpec

from milestones.common.last_words import report, typed
from milestones.common.records import TaskId, TopicPartition

log: Final = logging.getLogger(__name__)

P = ParamSpec("P")


class StateRestoreListener:
    """Follows active tasks that restore. Override what you need."""

    def on_restore_start(self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int) -> None:
        """A restoration begins, from `starting_offset` to before `ending_offset`. There may be no record to restore."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """A batch of records was restored, the last one at `batch_end_offset`."""

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The store is complete."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The restoration ends before the store is complete, because the task moves to another instance, or begins its
        restoration anew.
        """


class SuspendReason(Enum):
    """Why a standby is no longer updated."""

    MIGRATED = "it is closed here"
    PROMOTED = "it becomes the active task"


class StandbyUpdateListener:
    """Follows standby tasks (KIP-869). Override what you need."""

    def on_update_start(self, partition: TopicPartition, store: str, starting_offset: int) -> None:
        """A standby's store begins to follow its changelog at `starting_offset`. Called before any record is loaded."""

    def on_batch_loaded(
        self,
        partition: TopicPartition,
        store: str,
        task_id: TaskId,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        """A batch of records was loaded, the last one at `batch_end_offset`; `current_end_offset` is the last known end
        of the changelog.
        """

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        store_offset: int,
        current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        """The standby isn't updated any more. The store is still open and complete up to before `store_offset`. If the
        standby becomes an active task, this is called before `on_restore_start` of that task.
        """


class Listeners:
    """The user's listeners. *Concurrency*: set before threads start, read only from then on."""

    def __init__(self) -> None:
        self.restore: StateRestoreListener = StateRestoreListener()
        self.standby: StandbyUpdateListener = StandbyUpdateListener()

    @staticmethod
    def tell(call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a listener; its error is logged."""
        try:
            call(*args, **kwargs)
        except BaseException as error:
            report(log, "a listener of restoration raised, and is called again: %s", typed(error), error=error)
