"""Checks whether the data of stores on disk without a changelog belongs to the offsets in Kafka.

*Guarantees*: has no effect except for a warning in the log.
*Assumes*: the storage keeps commit numbers. Without them, nothing is checked.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateError

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task_stores import TaskStores

log: Final = logging.getLogger(__name__)


def check_unlogged(task: TaskId, stores: TaskStores, number: int, *, refuses: bool) -> None:
    """Check whether the data of a task's stores is that of its last commit in Kafka, which has this number.

    Other stores are named in a warning. If the application `refuses` them, they are named in a `StateError`.
    """
    if not (behind := stores.behind(number)):
        return
    written = stores.storage.commit_number() or 0
    told = f"task {task}: stores without changelog {sorted(behind)} are "
    if written < 0:
        told += "what is left of them after their files were damaged: they, or one of them, begin empty"
    else:
        told += (
            f"of commit {written}, Kafka's offsets of commit {number}: they lack writes, or another instance has had "
            "the task meanwhile"
        )
    if refuses:
        raise StateError(
            f"{told}. Give them a changelog, reset the application, or accept what they have: unlogged_state='accept'"
        )
    log.warning("%s; the task begins with what they have (unlogged_state='accept')", told)
