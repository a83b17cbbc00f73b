"""The stream thread: a loop, and an end with everything closed.

*Guarantees*: whatever ends it, its tasks and clients are closed, and the client is told why.
*Assumes*: nothing but what `ThreadContext` and `Parts` say.
"""

from __future__ import annotations

import logging
import threading

from milestones.baseline.stream_loop import StreamLoop
from milestones.common.errors import ApplicationShutdownError
from milestones.common.mailbox import Mailbox
from milestones.context import Exceptions, ThreadContext, ThreadFailed, ThreadMoved
from milestones.parts import Clients, Parts
from milestones.states import ThreadState, thread_moved

log = logging.getLogger(__name__)


class StreamThread(threading.Thread):
    """Polls, processes, commits, by its `StreamLoop`.

    *Owns*: its clients, its tasks, everything that its parts own. *Receives*: membership events; a request to stop.
    *Sends*: thread states, reports, its failure to the client; questions and purges to the housekeeper.
    """

    def __init__(self, context: ThreadContext, parts: Parts) -> None:
        super().__init__(name=context.name, daemon=True)
        self._context, self._parts = context, parts
        self._state = ThreadState.CREATED
        self._stop_requests: Mailbox[bool] = Mailbox(capacity=1, name=f"{context.name} stop")

    def stop(self, *, leave_group: bool) -> None:
        """Ask the thread to commit, close and end; the caller joins it."""
        self._stop_requests.try_put(leave_group)

    def run(self) -> None:
        clients: Clients | None = None
        loop: StreamLoop | None = None
        failure: ThreadFailed | None = None
        leave_group = self._context.config.group_instance_id is None
        try:
            self._move(ThreadState.STARTING)
            clients = self._parts.clients(self._context)
            loop = StreamLoop(self._context, self._parts, clients, self._move)
            clients.member.start()
            while not (stopping := self._stop_requests.drain()):
                loop.run_once(self._context.clock.monotonic_ms())
            leave_group = stopping[0]
            self._move(ThreadState.PENDING_SHUTDOWN)
            loop.shut_down()
        except BaseException as error:
            failure = self._fail(loop, error)
        if clients is not None:
            clients.close(leave_group=leave_group)
        self._move(ThreadState.DEAD)
        if failure is not None:
            self._context.notify(failure)

    def _fail(self, loop: StreamLoop | None, error: BaseException) -> ThreadFailed:
        log.error("%s dies: %s", self.name, error, exc_info=error)
        told = isinstance(error, ApplicationShutdownError)
        decision = Exceptions.SHUTDOWN_CLIENT if told else self._context.decide(error)
        if self._state is not ThreadState.PENDING_SHUTDOWN:
            self._move(ThreadState.PENDING_SHUTDOWN)
        try:
            if loop is not None:
                everyone = decision is Exceptions.SHUTDOWN_APPLICATION
                loop.fail(shut_application_down=f"{self.name} died: {error}" if everyone else None)
        except BaseException:
            log.exception("%s: a task didn't close cleanly", self.name)
        return ThreadFailed(self.name, error, decision)

    def _move(self, state: ThreadState) -> None:
        if state is not self._state:
            self._state = thread_moved(self._state, state)
            self._context.notify(ThreadMoved(self.name, state.value))
