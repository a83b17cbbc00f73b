"""The state updater restores active tasks and updates standbys, in a thread of its own.

*Guarantees*: the updater hands every task that it gets out once. A request waits for one round at most. A round writes
to the store of each partition that has records, waits 10 ms (`WAIT_MS`) at most for records, and a second at most for
room in the housekeeper's mailbox.
*Assumes*: tasks come with open stores, in the state IN_TRANSIT. The committed offsets of their inputs were read while
no transaction was pending on them.
"""

from __future__ import annotations

import logging
import threading
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from milestones.common.last_words import report
from milestones.common.task.lifecycle import TaskState
from milestones.m1_state_updater.messages import (
    Add,
    AddStandby,
    Limit,
    Pause,
    Remove,
    Request,
    RestoreProgress,
    StopUpdater,
)
from milestones.m1_state_updater.metrics import UpdaterMeasures
from milestones.m1_state_updater.reader_hooks import UpdaterHooks
from milestones.restoration.changelog_reader import ChangelogReader

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.m1_state_updater.handover import TaskHandover
    from milestones.parts import Clients

log: Final = logging.getLogger(__name__)

PUBLISH_MS = 100
FIRST_IDLE_MS, LONGEST_IDLE_MS = 5, 100
"""The wait for a request after a round without work. The wait doubles each time, because standbys can wait. While
active tasks restore, the wait stays at `FIRST_IDLE_MS`."""
NOTHING_TO_DO_MS = 1_000


class StateUpdater:
    """The step function of the updater's thread, which also makes it.

    *Owns*: the restore consumer; the tasks in `handover.held`. *Receives*: `Request`s, `Bounds`. *Sends*: `Answer`s,
    `AskBounds`; publishes `RestoreProgress`s.
    """

    def __init__(self, context: ThreadContext, clients: Clients, handover: TaskHandover) -> None:
        self._handover = handover
        self._hooks = UpdaterHooks(context.config.restore_active_weight, context.config.task_priorities)
        self._reader = ChangelogReader(context, clients, self._hooks)
        self._measures = UpdaterMeasures(context, handover.name, self._reader, self._hooks)
        self._next_publication_ms = 0
        self._idle_ms = FIRST_IDLE_MS
        self.stopping: bool = False
        if context.metrics.profile is not None:
            context.metrics.profile.follow_thread(handover.name, [(self, {"run_once": "restores, follows changelogs"})])

    def run_once(self, now_ms: int) -> bool:
        """Make one round: 1. carry out requests; 2. read and apply a batch; 3. hand out tasks that are restored or have
        failed; 4. publish the progress."""
        began, waited = perf_counter_ns(), self._reader.blocked_ns
        requests = self._handover.take()
        for request in requests:
            self._answer(request)
            self._hand_out()
        worked = self._reader.run_once(now_ms)
        handed = self._hand_out()
        if requests or handed or now_ms >= self._next_publication_ms:
            self._publish(now_ms)
        self._measures.turn(now_ms, perf_counter_ns() - began - (self._reader.blocked_ns - waited))
        busy = worked or handed or bool(requests)
        self._idle_ms = FIRST_IDLE_MS if busy else min(2 * self._idle_ms, LONGEST_IDLE_MS)
        return busy

    def idle_ms(self) -> int:
        """Return how long to wait for the next request after a round that had nothing to do."""
        if not self._handover.held:
            return NOTHING_TO_DO_MS
        return FIRST_IDLE_MS if self._reader.restores else self._idle_ms

    def _answer(self, request: Request) -> None:
        match request:
            case Add(_, task, committed):
                task.lifecycle.move(TaskState.RESTORING)
                self._reader.add(task, committed)
            case AddStandby(_, standby):
                standby.lifecycle.move(TaskState.STANDBY)
                self._reader.add_standby(standby)
            case Remove(number, id, recycled):
                if self._handover.has(number, id):
                    self._reader.remove(id, recycled=recycled)
                    for removed in self._reader.take_removed():
                        self._handover.removed(removed)
            case Pause(subtopologies):
                self._reader.pause(subtopologies)
            case Limit(committed):
                self._reader.limit(committed)
            case StopUpdater():
                self.stopping = True

    def _hand_out(self) -> bool:
        restored, failed = self._reader.take_restored(), self._hooks.take_errors()
        for task in restored:
            self._handover.restored(task)
        for failing, error in failed:
            self._handover.failed(failing, error)
        return bool(restored or failed)

    def _publish(self, now_ms: int) -> None:
        self._next_publication_ms = now_ms + PUBLISH_MS
        held, remaining, lags = self._handover.held, self._reader.remaining(), self._reader.lags()
        progress = {
            held[id][0]: RestoreProgress(position, remaining.get(id), lags.get(id))
            for id, position in self._reader.positions().items()
            if id in held
        }
        self._handover.progress = MappingProxyType(progress)

    def close(self) -> None:
        """Close the restore consumer, and remove the metrics."""
        self._measures.close()
        self._reader.close(0)


class UpdaterThread(threading.Thread):
    """Drives a `StateUpdater` until it is stopped, or dies.

    *Owns*: the updater. *Receives* and *sends* the same as the updater. At its end it sends `Ended`, and every task
    that it still has.
    """

    def __init__(self, context: ThreadContext, clients: Clients, handover: TaskHandover) -> None:
        super().__init__(name=handover.name, daemon=True)
        self._surroundings, self._clients, self._handover = context, clients, handover

    def run(self) -> None:
        # This thread calls the user's listeners.
        with self._surroundings.thread_registry.helping(self._surroundings.number):
            self._run()

    def _run(self) -> None:
        updater: StateUpdater | None = None
        failure: BaseException | None = None
        try:
            updater = StateUpdater(self._surroundings, self._clients, self._handover)
            while not updater.stopping:
                if not updater.run_once(self._surroundings.clock.monotonic_ms()):
                    self._handover.requests.wait(updater.idle_ms())
        except BaseException as error:
            failure = error
            report(log, "%s dies", self.name, error=error)
        end(self._handover, updater, failure)


def end(handover: TaskHandover, updater: StateUpdater | None, failure: BaseException | None) -> None:
    """Hand out every task, then close the updater. An error of the close is only logged."""
    handover.end(failure)
    try:
        if updater is not None:
            updater.close()
    except BaseException as error:
        report(log, "%s: the restore consumer didn't close cleanly", handover.name, error=error)
