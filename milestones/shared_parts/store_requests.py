"""Requests to open, to set aside and to close a task's stores, and `carry_out`, which any thread may call.

*Guarantees*: `carry_out` raises nothing: errors are in the answer.
*Assumes*: any thread may call the context's state manager.
"""

from __future__ import annotations

from collections.abc import Mapping
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
class SetAsideRequest:
    """Set the task's damaged stores aside, and open empty ones in their place. `damage`: the damaged stores, each with
    the reason."""

    task: TaskId
    stores: TaskStorage
    damage: Mapping[str, object]


@dataclass(frozen=True)
class CloseRequest:
    """Close the task's stores, and free its lock."""

    task: TaskId
    stores: TaskStorage


StoreRequest = OpenRequest | SetAsideRequest | CloseRequest


def carry_out(context: ThreadContext, request: StoreRequest) -> StoreAnswer:
    """Carry the request out, and return the answer."""
    match request:
        case OpenRequest(task):
            try:
                return OpenedStores(task, open_stores(context, task))
            except BaseException as error:
                return OpenedStores(task, error=error)
        case SetAsideRequest(task, stores, damage):
            try:
                for store, reason in damage.items():
                    stores.clear(store, reason)
            except BaseException as error:
                carry_out(context, CloseRequest(task, stores))
                return OpenedStores(task, error=error)
            return OpenedStores(task, stores)
        case CloseRequest(task, stores):
            try:
                stores.close()
            except BaseException as error:
                return ClosedStores(task, error)
            return ClosedStores(task)


def open_stores(context: ThreadContext, task: TaskId) -> TaskStorage:
    """Lock the task for the stream thread, and open its stores. Raises `StateLockedError` or `StateError`."""
    specs = context.application.subtopology(task.subtopology).stores
    transactional_id = context.transactional_id if context.config.exactly_once else None
    stores = context.state.open(task, specs, transactional_id, context.name)
    return context.memory.waiting.of(stores, specs, context.clock)
