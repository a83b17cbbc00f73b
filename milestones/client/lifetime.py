"""`Lifetime` has a client's state and the user's state listener, and waits for the end of the client.

*Guarantees*: each legal change of the state is logged, published and reported to the listener, once. Waiting for the
end of threads takes at most `close_timeout_ms`, even if the supervisor's thread hangs in the listener.
*Assumes*: one thread at a time changes the state: first the thread that starts the client, then the supervisor's
thread.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from milestones.client.client_events import LOOK_S, Closing, Joinable
from milestones.common.last_words import is_interrupt, report, say
from milestones.instance.context import UncaughtExceptionResponse
from milestones.instance.states import StreamsState, moved

if TYPE_CHECKING:
    from milestones.common.clock import Clock

log: Final = logging.getLogger(__name__)

Idents = Callable[[], Collection[int]]
"""Returns the idents of the threads that call user code for a thread."""


class Lifetime:
    """*Owns*: the client's state. `state`, `error`, `hanging` and `told` are replaced as a whole, and any thread may
    read them. `error`: the reason why the client has ended, or couldn't be closed in time. `hanging`: True if threads
    didn't end in time. `told`: True if the error was already logged, which `Streams.run` needs to know.
    """

    def __init__(self, clock: Clock, close_timeout_ms: int) -> None:
        self.state: StreamsState = StreamsState.CREATED
        self.error: BaseException | None = None
        self.listener: Callable[[StreamsState, StreamsState], None] | None = None
        self.handler: Callable[[BaseException], UncaughtExceptionResponse] | None = None
        self.hanging = self.told = False
        self._clock, self._close_timeout_ms = clock, close_timeout_ms
        self._stopped = threading.Event()
        self._closing: Closing | None = None
        self._thread: threading.Thread | None = None
        self._listening: int | None = None

    def _publish(self, *, at_once: bool) -> None:
        """Publish the client's metrics, immediately or when they are due."""
        raise NotImplementedError

    def _move(self, state: StreamsState) -> None:
        old, self.state = self.state, moved(self.state, state)
        say(log, "client state: %s -> %s", old.value, state.value)
        self._publish(at_once=True)
        if self.listener is not None:
            self._listening = threading.get_ident()
            try:
                self.listener(state, old)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                report(log, "the state listener raised", error=error)
            finally:
                self._listening = None

    def _stop(self) -> None:
        """End a client that has no threads."""
        self._move(StreamsState.PENDING_SHUTDOWN)
        self._move(StreamsState.NOT_RUNNING)
        self._stopped.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all threads have ended, also the supervisor's, or until it is known that threads hang. Returns
        False if the time is up before.
        """
        left_s = math.inf if timeout_s is None else timeout_s
        while not self._stopped.wait(min(left_s, LOOK_S)):
            left_s -= LOOK_S
            self._look_at_listener()
            if left_s <= 0 and not self._stopped.is_set():
                return False
        if not self.hanging and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return True

    def _await(self, threads: Iterable[Joinable], helped: Mapping[str, Idents] = MappingProxyType({})) -> None:
        """Wait for the end of these threads. After `close_timeout_ms` the client counts as stopped, with an error. The
        remaining resources are closed when the threads end. `helped`: helper threads, by the name of the thread that
        they work for.
        """
        closing = self._begin_closing()
        late = [thread for thread in threads if not closing.join(thread, helped.get(thread.name, frozenset))]
        if late and not self.hanging:
            self._give_up(closing)
        for thread in late:
            thread.join()

    def _begin_closing(self) -> Closing:
        """The time limit of the client's end, counted from the first request."""
        if self._closing is None:
            self._closing = Closing(self._clock, self._close_timeout_ms)
        return self._closing

    def _look_at_listener(self) -> None:
        """Let the client count as stopped if the time is over and the supervisor itself hangs in the state listener."""
        closing, thread = self._closing, self._thread
        if closing is None or thread is None or self.hanging or self._listening != thread.ident or not closing.over:
            return
        closing.hangs(thread)
        self._give_up(closing)

    def _give_up(self, closing: Closing) -> None:
        error = closing.error()
        log.error("%s", error)
        self.told = self.told or self.error is None
        self.error = self.error or error
        self.hanging = True
        self._stopped.set()

    def _decide(
        self,
        error: BaseException,
        default: UncaughtExceptionResponse = UncaughtExceptionResponse.SHUTDOWN_CLIENT,
        *,
        of_task: bool = False,
    ) -> UncaughtExceptionResponse:
        """Return the answer of the user's handler. Called in the dying thread, or in a separate thread."""
        if self.handler is None:
            return default
        try:
            decision = UncaughtExceptionResponse(self.handler(error))
        except BaseException as second:
            report(log, "the uncaught exception handler raised; the client shuts down", error=second)
            return UncaughtExceptionResponse.SHUTDOWN_CLIENT
        if decision is UncaughtExceptionResponse.END_TASK and not of_task:
            return UncaughtExceptionResponse.SHUTDOWN_CLIENT
        return decision
