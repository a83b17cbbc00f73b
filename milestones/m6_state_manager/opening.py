"""Store opening: messages to the instance's state thread.

*Guarantees*: no call uses a disk, and none but `wait` and `close` waits. Stores that are opened after the end of the
polling thread are closed by the state thread.
*Assumes*: driven by the polling thread; the context's state is a `RangeStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from milestones.baseline.store_requests import CloseRequest, OpenRequest, SetAsideRequest, StoreRequest
from milestones.common.mailbox import Mailbox
from milestones.m6_state_manager.state_thread import CAPACITY, StateKeeper, StateRequest, StateThread
from milestones.parts import OpenedStores

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.m6_state_manager.manager import RangeStateManager
    from milestones.parts import StoreAnswer


def start(name: str, keeper: StateKeeper) -> StateThread:
    thread = StateThread(name, keeper)
    thread.start()
    return thread


class StateThreadOpening:
    """*Owns*: the state thread's life. *Sends*: `StateRequest`s. *Receives*: `StoreAnswer`s."""

    def __init__(
        self,
        context: ThreadContext,
        launch: Callable[[str, StateKeeper], StateThread] = start,
        wait: Callable[[Mailbox[StoreAnswer], int], object] = Mailbox.wait,
    ) -> None:
        """`launch` starts the state thread; `wait`: for an answer, at most so many ms; others than the defaults are for
        tests."""
        self._context, self._wait = context, wait
        manager = cast("RangeStateManager", context.state)
        self._keeper = StateKeeper(manager, context.clock, context.config.state_sync_interval_ms)
        self._answers: Mailbox[StoreAnswer] = Mailbox(CAPACITY, f"{context.name} opened and closed stores")
        self._thread = launch(context.identity.helper("State"), self._keeper)

    def open(self, task: TaskId) -> None:
        self._send(OpenRequest(task))

    def cancel(self, task: TaskId) -> None:
        if self._keeper.requests.take_back(self._message(OpenRequest(task))):
            self._answers.put(OpenedStores(task), timeout_ms=1_000)

    def set_aside(self, task: TaskId, stores: TaskStorage, damage: Mapping[str, object]) -> None:
        self._send(SetAsideRequest(task, stores, damage))

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        self._send(CloseRequest(task, stores), first=True)

    def _send(self, request: StoreRequest, *, first: bool = False) -> None:
        self._keeper.requests.put(self._message(request), timeout_ms=1_000, first=first)

    def _message(self, request: StoreRequest) -> StateRequest:
        return StateRequest(self._context, request, self._answers)

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        return self._answers.drain() if len(self._answers) else []

    def wait(self, timeout_ms: int) -> None:
        self._wait(self._answers, timeout_ms)

    def close(self, timeout_ms: int) -> None:
        """The state thread ends once it has done what was asked for, closed what was opened too late, and synced."""
        self._answers.close()
        for answer in self.run_once():
            if isinstance(answer, OpenedStores) and answer.stores is not None:
                self.close_stores(answer.task, answer.stores)
        self._keeper.requests.close()
        until_ms = self._context.clock.monotonic_ms() + timeout_ms
        self._thread.join(timeout_ms / 1000)
        self._keeper.end(max(0, until_ms - self._context.clock.monotonic_ms()) / 1000)
