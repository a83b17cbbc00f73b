"""`InlineOpening` is the store opening of the baseline: the stream thread opens and closes stores itself.

*Guarantees*: `run_once` begins no request after `STORES_MS`. A request that is under way then is finished.
*Assumes*: the thread that owns the tasks makes all calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from milestones.shared_parts.store_requests import CloseRequest, OpenRequest, SetAsideRequest, StoreRequest, carry_out

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts import StoreAnswer

STORES_MS = 100
"""The time for which `run_once` opens and closes stores. The last request may take longer."""


class InlineOpening:
    """*Owns*: requests until they are carried out."""

    def __init__(self, context: ThreadContext) -> None:
        self._context = context
        self._requests: deque[StoreRequest] = deque()

    def open(self, task: TaskId) -> None:
        self._requests.append(OpenRequest(task))

    def cancel(self, task: TaskId) -> None:
        """Do nothing: the request is carried out in any case."""

    def set_aside(self, task: TaskId, stores: TaskStorage, damage: Mapping[str, object]) -> None:
        self._requests.append(SetAsideRequest(task, stores, damage))

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        self._requests.append(CloseRequest(task, stores))

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        answers: list[StoreAnswer] = []
        clock = self._context.clock
        until_ms = clock.monotonic_ms() + STORES_MS
        while self._requests and (at_once or clock.monotonic_ms() < until_ms):
            answers.append(carry_out(self._context, self._requests.popleft()))
        return answers

    def wait(self, timeout_ms: int) -> None:
        """Do nothing: no request is carried out between two calls."""

    def close(self, timeout_ms: int) -> None:
        """Do nothing: no request is carried out between two calls."""
