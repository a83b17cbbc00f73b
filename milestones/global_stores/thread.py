"""`GlobalStreamThread`: an instance whose topology has global stores has one such thread, on every stage.

    CREATED --all stores are complete--> RUNNING --asked to end, or an error--> PENDING_SHUTDOWN --> DEAD

*Guarantees*: tasks start after the stores are complete. The stores stay open until the supervisor asks this thread to
end, even if it has died of an error. No other thread replaces it: an error ends the client, as in Kafka Streams.
*Assumes*: the supervisor asks this thread to end when no thread is left that has a task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milestones.common.diagnostics import text_of
from milestones.common.errors import StateCorruptError, TimeoutExceededError
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.retry import again_after_ms
from milestones.common.last_words import named, report
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import PUBLISH_INTERVAL_MS, GlobalThreadMetrics, Metrics
from milestones.common.records import GLOBAL, TopicPartition
from milestones.common.task.global_task import GlobalTask
from milestones.common.task.task_context import TaskSettings
from milestones.common.testing.faults import reach
from milestones.global_stores.follower import WAIT_MS, GlobalFollower
from milestones.instance.admin_thread import AskBounds, Bounds
from milestones.instance.context import (
    Decide,
    GlobalEvent,
    GlobalFailed,
    GlobalMoved,
    GlobalReport,
    UncaughtExceptionResponse,
)
from milestones.instance.states import ThreadState

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.state.global_stores import GlobalStores
    from milestones.common.state.storage import StateManager
    from milestones.common.task.profile import Profile
    from milestones.common.topology.nodes import SubTopology
    from milestones.instance.admin_thread import Requests
    from milestones.instance.listeners import Listeners

log: Final = logging.getLogger(__name__)

REPORT_INTERVAL_MS = 500


@dataclass(frozen=True)
class GlobalSurroundings:
    """Everything that the global thread needs from its instance. `partitions`: all partitions of the topics. `stores`:
    where tasks find the complete stores."""

    name: str
    config: StreamsConfig
    clock: Clock
    subtopology: SubTopology
    partitions: frozenset[TopicPartition]
    state: StateManager
    stores: GlobalStores
    metrics: Metrics
    housekeeper: Requests
    notify: Callable[[GlobalEvent], None]
    decide: Decide
    listeners: Listeners


def global_task(
    subtopology: SubTopology,
    partitions: frozenset[TopicPartition],
    config: StreamsConfig,
    clock: Clock,
    state: StateManager,
    stores: GlobalStores,
    *,
    count_nodes: bool = False,
    profile: Profile | None = None,
) -> GlobalTask:
    """Make the task of a process's global stores. The task isn't open yet."""
    settings = TaskSettings(
        application_id=config.application_id,
        clock=clock,
        partitions_of=lambda _: 1,
        config=config.as_dict(),
        max_task_idle_ms=-1,
        global_stores=stores,
        count_nodes=count_nodes,
        profile=profile,
        deserialization_handler=config.deserialization_exception_handler,
        processing_handler=config.processing_exception_handler,
        production_handler=config.production_exception_handler,
    )
    return GlobalTask(subtopology, partitions, settings, lambda: state.open_global(subtopology.stores))


class GlobalStreamThread(threading.Thread):
    """Restores the instance's global stores, then follows their topics.

    *Owns*: the stores, as their only writer, and the consumer, through its `GlobalFollower`. *Receives*: a request to
    end; `Bounds`. *Sends*: `AskBounds` to the housekeeper; `GlobalEvent`s to the client.
    """

    def __init__(self, surroundings: GlobalSurroundings) -> None:
        super().__init__(name=surroundings.name, daemon=True)
        self._around = around = surroundings
        self._follower = self._new_follower()
        self._asked_to_end = threading.Event()
        self._scope = around.metrics.add(GlobalThreadMetrics, thread_id=around.name)
        self._state = ThreadState.CREATED
        self._reported_ms = self._published_ms = -PUBLISH_INTERVAL_MS
        if around.metrics.profile is not None:
            around.metrics.profile.follow_thread(around.name, [(self, {"run_once": "follows topics of global stores"})])

    def _new_follower(self) -> GlobalFollower:
        around = self._around
        task = global_task(
            around.subtopology, around.partitions, around.config, around.clock, around.state, around.stores,
            count_nodes=around.metrics.debug, profile=around.metrics.profile,
        )  # fmt: skip
        return GlobalFollower(
            task, lambda: AssignedConsumer(around.config.global_consumer_settings(around.name)), around.listeners,
            around.clock,
        )  # fmt: skip

    def stop(self) -> None:
        """Ask the thread to close the stores and end. No task may read the stores any more. The caller joins the
        thread."""
        self._asked_to_end.set()

    def discard(self) -> None:
        """Remove the metrics of a thread that is never started."""
        self._around.metrics.remove(self._scope)

    def run(self) -> None:
        error: BaseException | None = None
        try:
            self._restore_all()
            while not self._asked_to_end.is_set():
                self.run_once()
        except BaseException as raised:
            error = raised
        if error is not None:
            self._die(error)
        self._move(ThreadState.PENDING_SHUTDOWN)
        self._close(error)
        self._move(ThreadState.DEAD)
        self._around.metrics.remove(self._scope)

    def _restore_all(self) -> None:
        """Restore the stores. A store that proves damaged is emptied, and filled from the beginning of its topic. This
        is safe because no task uses the store yet."""
        try:
            self._restore()
        except StateCorruptError as error:
            if not self._damaged(error):
                raise
            self._close(error)
            self._follower = self._new_follower()
            self._restore()

    def _damaged(self, error: BaseException) -> list[str]:
        """Return the global stores that are damaged, as the error says."""
        found = error.damaged if isinstance(error, StateCorruptError) else ()
        return [each.store for each in found if each.task == GLOBAL]

    def _restore(self) -> None:
        """Restore the stores: 1. open them; 2. ask where the topics end; 3. read up to these ends; 4. let tasks read
        the stores."""
        follower, task = self._follower, self._follower.task
        task.open()
        bounds = self._bounds()
        if bounds is None:
            return
        follower.begin(bounds)
        follower.read_to_the_ends(self._goes_on, self._around.config.task_timeout_ms)
        if not follower.complete:
            return
        task.show(self._around.stores)
        log.info("%s: the global stores are complete, %d records were restored", self.name, follower.restored)
        reach("global.complete")
        self._move(ThreadState.RUNNING)

    def _goes_on(self) -> bool:
        self._report()
        return not self._asked_to_end.is_set()

    def run_once(self) -> None:
        """Take one step: 1. follow the topics; 2. raise the damage that a task has met, if there is any; 3. report."""
        self._follower.run_once()
        if (damage := self._around.stores.damage) is not None:
            raise damage
        self._report()

    def _bounds(self) -> Bounds | None:
        """Ask for the first and last committed offsets of all partitions, until `task_timeout_ms` is over. Returns None
        when the thread must end."""
        around = self._around
        since_ms = around.clock.monotonic_ms()
        while not self._asked_to_end.is_set():
            # Each question has a mailbox of its own: the answer to an earlier question would name earlier ends.
            answers: Mailbox[Bounds] = Mailbox(1, f"{self.name} bounds of its topics")
            question = AskBounds(GLOBAL, around.partitions, answers, committed=True, topic_ids=True)
            around.housekeeper.put(question, timeout_ms=1_000)
            answer = self._answer(answers)
            if answer is None:
                return None
            if answer.error is None:
                return answer
            failing_ms = around.clock.monotonic_ms() - since_ms
            if failing_ms > around.config.task_timeout_ms:
                raise TimeoutExceededError(
                    f"{self.name} can't learn the ends of the topics of global stores: {answer.error}"
                ) from answer.error
            log.info("%s can't learn the ends of its topics now: %s", self.name, answer.error)
            self._asked_to_end.wait(again_after_ms(failing_ms) / 1000)
        return None

    def _answer(self, answers: Mailbox[Bounds]) -> Bounds | None:
        while not self._asked_to_end.is_set():
            answer = answers.get(WAIT_MS)
            if answer is not None:
                return answer
        return None

    # -- the end

    def _die(self, error: BaseException) -> None:
        """Report the error to the client, and keep the stores open for the tasks that still read them."""
        error = named(error)
        report(log, "%s dies: %s", self.name, text_of(error), error=error)
        decision = self._around.decide(error)
        if decision is UncaughtExceptionResponse.REPLACE_THREAD:
            log.warning("%s can't be replaced: the client shuts down", self.name)
            decision = UncaughtExceptionResponse.SHUTDOWN_CLIENT
        self._around.notify(GlobalFailed(error, decision))
        self._asked_to_end.wait()

    def _close(self, error: BaseException | None) -> None:
        try:
            self._follower.stop_fetching()
            for store in self._damaged(error) if error is not None else ():
                self._follower.task.clear(store, error)
        except BaseException as second:
            report(log, "%s: a store couldn't be set aside", self.name, error=second)
        try:
            self._follower.close()
        except BaseException as second:
            report(log, "%s didn't close cleanly", self.name, error=second)

    # -- what it tells

    def _move(self, state: ThreadState) -> None:
        self._state = state
        self._around.notify(GlobalMoved(state.value))
        self._publish(self._around.clock.monotonic_ms(), {})

    def _report(self) -> None:
        now_ms = self._around.clock.monotonic_ms()
        if now_ms - self._reported_ms < REPORT_INTERVAL_MS:
            return
        self._reported_ms, lags = now_ms, self._follower.lags()
        self._around.notify(GlobalReport(sum(self._follower.missing().values()), lags))
        if now_ms - self._published_ms >= PUBLISH_INTERVAL_MS:
            self._publish(now_ms, lags)

    def _publish(self, now_ms: int, lags: Mapping[TopicPartition, int]) -> None:
        self._published_ms, scope, task = now_ms, self._scope, self._follower.task
        scope.thread_state.value = self._state.value
        scope.process.total = task.counters.processed
        scope.dropped_records.total = task.dropped_records
        scope.restore.total = self._follower.restored
        scope.restore_remaining_records_total.value = sum(self._follower.missing().values())
        scope.records_lag.value = sum(lags.values())
        scope.publish(now_ms)
