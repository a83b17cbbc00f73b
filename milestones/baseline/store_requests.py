"""Requests to open and to close a task's stores, and `carry_out`, which any thread may call.

*Guarantees*: `carry_out` raises nothing: an error is in the answer.
*Assumes*: the context's state manager may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.parts import ClosedStores, OpenedStores, StoreAnswer

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext


@dataclass(frozen=True)
class OpenRequest:
    """Lock the task, and open its stores."""

    task: TaskId


@dataclass(frozen=True)
class CloseRequest:
    """Close the task's stores, and free its lock."""

    task: TaskId
    stores: TaskStorage


StoreRequest = OpenRequest | CloseRequest


def carry_out(context: ThreadContext, request: StoreRequest) -> StoreAnswer:
    """Carry the request out, and return the answer."""
    match request:
        case OpenRequest(task):
            try:
                return OpenedStores(task, open_stores(context, task))
            except BaseException as error:
                return OpenedStores(task, error=error)
        case CloseRequest(task, stores):
            try:
                stores.close()
            except BaseException as error:
                return ClosedStores(task, error)
            return ClosedStores(task)


def open_stores(context: ThreadContext, task: TaskId) -> TaskStorage:
    """Lock the task for the stream thread, and open its stores. `StateLockedError`, `StateError`."""
    specs = context.application.subtopology(task.subtopology).stores
    transactional_id = context.transactional_id if context.config.exactly_once else None
    return context.state.open(task, specs, transactional_id, context.name)
