"""`PollingThread`: the one thread of an instance that polls.

*Guarantees*: everything that `StreamThread` guarantees. The polling thread drives the same loop as a stream thread,
over all tasks of the instance. No user code runs in the polling thread. When it dies, it waits for the user's handler,
for `longest_wait_ms` at most.
*Assumes*: an instance has one polling thread at a time.
"""

from __future__ import annotations

import logging
from typing import Final

from milestones.common.mailbox import Mailbox
from milestones.ended_tasks.handler_thread import HandlerThread
from milestones.instance.context import ThreadContext, UncaughtExceptionResponse
from milestones.stream_thread.thread import StreamThread

log: Final = logging.getLogger(__name__)


class PollingThread(StreamThread):
    """Answers the group, fetches records, gives them to tasks, sends outputs and commits.

    *Owns*: the consumer, the producer and the group member of the instance; the list of its tasks. *Receives*: what a
    stream thread receives; outputs and failures of processing threads, tasks of the state updater, stores of the store
    openers, decisions of handler threads. *Sends*: what a stream thread sends; a message to the client when a
    processing thread comes or ends.
    """

    def decision(self, context: ThreadContext, error: BaseException) -> UncaughtExceptionResponse:
        """Return the decision of the user's handler, which a handler thread calls."""
        answers: Mailbox[UncaughtExceptionResponse] = Mailbox(1, f"{self.name} decision")
        inside = context.thread_registry.helping(context.number)
        handler = HandlerThread(
            context.identity.helper("UncaughtExceptionHandler"), inside, [lambda: context.decide(error)], answers
        )
        try:
            handler.start()
        except RuntimeError as unstarted:
            log.error("the uncaught exception handler isn't asked, the client shuts down: %s", unstarted)
            return UncaughtExceptionResponse.SHUTDOWN_CLIENT
        decision = answers.get(context.longest_wait_ms)
        if decision is None:
            log.error(
                "the uncaught exception handler hasn't answered within %d ms, the client shuts down",
                context.longest_wait_ms,
            )
        return decision or UncaughtExceptionResponse.SHUTDOWN_CLIENT
