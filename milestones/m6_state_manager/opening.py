"""`StateThreadOpening` opens and closes stores for the polling thread, by messages to the instance's state thread.

*Guarantees*: no call uses a disk, and only `wait` and `close` wait. Stores that the state thread opens after the end of
the polling thread are closed by the state thread.
*Assumes*: the polling thread makes all calls; the context's state is a `RangeStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from milestones.common.mailbox import Mailbox
from milestones.m6_state_manager.snapshots.maker import snapshots
from milestones.m6_state_manager.state_thread import StateKeeper, StateRequest, StateThread
from milestones.shared_parts.opening_by_message import OpeningByMessage

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.m6_state_manager.manager import RangeStateManager
    from milestones.parts import StoreAnswer
    from milestones.shared_parts.store_requests import StoreRequest


def start(name: str, keeper: StateKeeper) -> StateThread:
    thread = StateThread(name, keeper)
    thread.start()
    return thread


class StateThreadOpening(OpeningByMessage):
    """*Owns*: the start and the end of the state thread. *Sends*: `StateRequest`s. *Receives*: `StoreAnswer`s."""

    def __init__(
        self,
        context: ThreadContext,
        launch: Callable[[str, StateKeeper], StateThread] = start,
        wait: Callable[[Mailbox[StoreAnswer], int], object] = Mailbox.wait,
    ) -> None:
        """`launch` starts the state thread, and `wait` waits for an answer. Tests give others than the defaults."""
        super().__init__(context, wait)
        manager = cast("RangeStateManager", context.state)
        manager.room.stops = context.config.state_full == "stop"
        name = context.identity.helper("State")
        interval_ms, made = context.config.state_sync_interval_ms, snapshots(manager, context)
        self._keeper = StateKeeper(manager, context.clock, interval_ms, made, name, context.metrics)
        self._keeper.tell_death = self.died
        self._thread = launch(name, self._keeper)

    def take_back(self, request: StoreRequest) -> bool:
        return self._keeper.requests.take_back(self._message(request))

    def put(self, request: StoreRequest, *, first: bool) -> None:
        self._keeper.requests.put(self._message(request), timeout_ms=1_000, first=first)

    def take_left(self) -> Sequence[StoreRequest]:
        requests = self._keeper.requests
        requests.close()
        return [one.request for one in (requests.drain() if len(requests) else ()) if isinstance(one, StateRequest)]

    def _message(self, request: StoreRequest) -> StateRequest:
        return StateRequest(self.context, request, self.answers)

    def close(self, timeout_ms: int) -> None:
        """End the state thread. The thread first carries out all requests, closes stores that were opened too late, and
        syncs."""
        self.take_no_more_answers()
        self._keeper.requests.close()
        until_ms = self.context.clock.monotonic_ms() + timeout_ms
        self._thread.join(timeout_ms / 1000)
        self._keeper.end(max(0, until_ms - self.context.clock.monotonic_ms()) / 1000)
