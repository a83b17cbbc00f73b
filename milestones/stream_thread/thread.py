"""The stream thread: runs the loop, and closes everything at the end.

*Guarantees*: for whatever reason the thread ends, its tasks and clients are closed, and the supervisor gets the reason.
*Assumes*: `ThreadContext` and `ThreadParts` keep their guarantees.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from milestones.common.diagnostics import text_of
from milestones.common.errors import ApplicationShutdownError
from milestones.common.kafka.failures import caught
from milestones.common.last_words import named, report
from milestones.common.mailbox import Mailbox
from milestones.instance.context import ThreadContext, ThreadFailed, ThreadMoved, UncaughtExceptionResponse
from milestones.instance.states import ThreadState, thread_moved
from milestones.parts import ClientFactory, Clients, DecidedError, ThreadParts
from milestones.stream_thread.loop import StreamLoop
from milestones.stream_thread.start_line import StartLine

log: Final = logging.getLogger(__name__)

STOP_PATIENCE_MS = 10_000
"""The longest time for which a thread that must stop retries its last commit while Kafka doesn't answer. It is half of
`close_timeout_ms` if that is less."""


@dataclass(frozen=True)
class Stop:
    leave_group: bool


@dataclass(frozen=True)
class RequestRejoin:
    reason: str


@dataclass(frozen=True)
class ShutApplicationDown:
    error: BaseException


class StreamThread(threading.Thread):
    """Polls, processes and commits. Its `StreamLoop` does the work.

    *Owns*: its clients, its tasks, and all that its parts own. *Receives*: membership events; `Stop`, `RequestRejoin`,
    `ShutApplicationDown`.
    *Sends*: thread states, reports, its failure to the client; questions and purges to the housekeeper.
    """

    def __init__(
        self,
        context: ThreadContext,
        parts: ThreadParts,
        client_factory: Callable[[ThreadContext], ClientFactory],
        start_line: StartLine | None = None,
    ) -> None:
        """`start_line`: the start line of the threads that start together; None if this thread starts alone."""
        super().__init__(name=context.name, daemon=True)
        self._start_line = start_line or StartLine(1)
        self._surroundings, self._parts, self._client_factory = context, parts, client_factory
        self._state = ThreadState.CREATED
        self.left_group: bool = False
        self._requests: Mailbox[Stop | RequestRejoin | ShutApplicationDown] = Mailbox(
            capacity=100, name=f"{context.name} requests"
        )

    def stop(self, *, leave_group: bool) -> None:
        """Ask the thread to commit, close and end; the caller joins it."""
        self._surroundings.retry_policy.hurry(min(STOP_PATIENCE_MS, self._surroundings.config.close_timeout_ms // 2))
        self._requests.put(Stop(leave_group), timeout_ms=1_000)
        self._start_line.drop_out()

    def rejoin(self, reason: str) -> None:
        """Ask the group member for a rebalance."""
        self._requests.try_put(RequestRejoin(reason))

    def shut_application_down(self, error: BaseException) -> None:
        """Ask the thread to end all instances of the application, and itself, as if it had failed with `error`."""
        self._requests.try_put(ShutApplicationDown(error))

    def run(self) -> None:
        clients: Clients | None = None
        loop: StreamLoop | None = None
        error: BaseException | None = None
        failure: ThreadFailed | None = None
        leave_group = self._surroundings.config.group_instance_id is None
        try:
            self._move(ThreadState.STARTING)
            clients = self._parts.clients(self._surroundings, self._client_factory(self._surroundings))
            loop = StreamLoop(self._surroundings, self._parts, clients, self._move)
            self._start_line.cross()
            clients.member.start()
            stop = loop.run(partial(self._next_stop, clients))
            leave_group = stop.leave_group
            self._move(ThreadState.PENDING_SHUTDOWN)
            loop.shut_down(leave_group=leave_group)
        except BaseException as raised:
            error = raised
        self._start_line.drop_out()
        if error is not None:
            failure = self._fail(loop, error)  # not in the handler: see `failures.caught`
        if clients is not None:
            self._try("its clients", partial(self._close_clients, clients, leave_group))
        if loop is not None:
            self._try("a task", loop.close)
        self._try("its share of the memory", self._surroundings.memory.leave)
        self._end(failure)

    def _end(self, failure: ThreadFailed | None) -> None:
        """Send the end of the thread and its failure as one message. So no request is sent to a dead thread whose
        failure isn't known yet."""
        if failure is None:
            self._move(ThreadState.DEAD)
            return
        self._state = thread_moved(self._state, ThreadState.DEAD)
        self._surroundings.notify(failure)

    def _close_clients(self, clients: Clients, leave_group: bool) -> None:
        clients.close(leave_group=leave_group)
        self.left_group = clients.member.left

    def _next_stop(self, clients: Clients) -> Stop | None:
        for request in self._requests.drain():
            match request:
                case Stop():
                    return request
                case RequestRejoin(reason):
                    clients.member.request_rejoin(reason)
                case ShutApplicationDown(error):
                    raise DecidedError(error, UncaughtExceptionResponse.SHUTDOWN_APPLICATION)
        return None

    def _fail(self, loop: StreamLoop | None, error: BaseException) -> ThreadFailed:
        error = named(error)
        report(log, "%s dies: %s", self.name, text_of(error), error=error)
        decided = error if isinstance(error, DecidedError) else None
        told = isinstance(error, ApplicationShutdownError)
        if decided is not None:
            error, decision = decided.error, decided.decision
        else:
            decision = UncaughtExceptionResponse.SHUTDOWN_CLIENT if told else self._asked(error)
        if self._state is not ThreadState.PENDING_SHUTDOWN:
            self._move(ThreadState.PENDING_SHUTDOWN)
        if loop is not None:
            everyone = decision is UncaughtExceptionResponse.SHUTDOWN_APPLICATION
            reason = f"{self.name} died: {text_of(error)}" if everyone else None
            self._try("a task", partial(loop.fail, shut_application_down=reason))
        return ThreadFailed(self.name, error, decision)

    def _asked(self, error: BaseException) -> UncaughtExceptionResponse:
        """Return the decision of the user's handler. If the handler can't be asked, the client shuts down."""
        decisions: list[UncaughtExceptionResponse] = []
        second = caught(lambda: decisions.append(self.decision(self._surroundings, error)), BaseException)
        if second is not None:
            report(log, "%s: the uncaught exception handler can't be asked", self.name, error=second)
        return decisions[0] if decisions else UncaughtExceptionResponse.SHUTDOWN_CLIENT

    def decision(self, context: ThreadContext, error: BaseException) -> UncaughtExceptionResponse:
        """Return the decision of the user's handler about this thread's death."""
        return context.decide(error)

    def _try(self, what: str, close: Callable[[], object]) -> None:
        """Close something. If that fails, log the error, so that everything else is closed, too."""
        if (error := caught(close, BaseException)) is not None:
            report(log, "%s: %s didn't close cleanly", self.name, what, error=error)

    def _move(self, state: ThreadState) -> None:
        if state is not self._state:
            self._state = thread_moved(self._state, state)
            self._surroundings.notify(ThreadMoved(self.name, state.value))
