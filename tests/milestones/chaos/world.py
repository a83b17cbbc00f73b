"""The surroundings of an instance of stage m4, of m4 without fencing tolerance, or of a later stage, in which each
thread runs when it is told to."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

from milestones import wiring
from milestones.client.thread_roster import ThreadRoster
from milestones.common.records import TaskId, TopicPartition
from milestones.common.topology.handlers import Action, ErrorContext, Response
from milestones.ended_tasks.task_failure_policy import TaskEndingPolicy
from milestones.flags import parse_milestones
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m4_polling_thread.counted_threads import CountedThreads
from milestones.m4_polling_thread.workforce import PollingWorkforce
from milestones.m5_committed_collector.collector import CommittedCollector
from milestones.m5_committed_collector.task_failure_policy import ResendingPolicy
from tests.milestones.chaos.kafka import AskedClock, ChaosClients, Group
from tests.milestones.chaos.moods import THE_GROUP, Moods, Waits
from tests.milestones.chaos.stores import ChaosState
from tests.milestones.chaos.threads import (
    ChaosHandler,
    ChaosOpeners,
    ChaosUpdater,
    ChaosWorker,
    SteppedPolling,
    UnderWay,
    next_context,
)
from tests.milestones.chaos.topology import of_everything
from tests.milestones.chaos.windows import PARTITIONS
from tests.milestones.m4_polling_thread.polling import PollingWorld
from tests.milestones.stepped_workers import UserCode

TOLERANT = "fencing_tolerance"
INTOLERANT = "state_updater+processing_threads+polling_thread"
MOST_POLL_MS, TASK_TIMEOUT_MS = 24_000, 20_000
SETTINGS: dict[str, Any] = {
    "commit_interval_ms": 50, "transaction_timeout_ms": 1_000, "task_timeout_ms": TASK_TIMEOUT_MS,
    "heartbeat_interval_ms": 10, "max_poll_interval_ms": MOST_POLL_MS, "close_timeout_ms": 300,
}  # fmt: skip


class ChaosWorld(PollingWorld):
    """Real parts of a stage from M4 on: the polling thread's loop, updaters, openers, workers, handler threads, a
    roster. The counts go to `out`, and to `latest`, where the last one per key and commit may do. `fate`: what the
    production exception handler says; `ticking`: there are punctuations, while `ticks`; `wide`: there is what
    `windows.py` has a model of."""

    def __init__(
        self,
        chance: random.Random,
        stage: str,
        *,
        cached: bool = False,
        ticking: bool = False,
        wide: bool = False,
        **settings: Any,
    ) -> None:
        self.chance, self._flags = chance, parse_milestones(stage)
        self.fate = "fail"
        user_code = UserCode()
        self.ticks, self.ticks_are_on = True, ticking
        self.wide, self.totalled = wide, list[str]()
        self.tasks = [TaskId(0, p) for p in range(4)] + [TaskId(1, p) for p in range(PARTITIONS if wide else 0)]
        topology = of_everything(
            user_code,
            cached=cached,
            ticks=(lambda: self.ticks) if ticking else None,
            total=self.totalled.append if wide else None,
        )
        defaults = {**SETTINGS, "production_exception_handler": self._handle}
        super().__init__(topology, user_code=user_code, **{**defaults, **settings})

    def _handle(self, context: ErrorContext, error: BaseException) -> Response:
        """The production exception handler does what `fate` says. Its dead letters have the counts of what was left
        out."""
        output = context.output
        match self.fate:
            case "continue" if output is not None:
                return Response(Action.CONTINUE, (output._replace(topic="letters", partition=0, node=None),))  # type: ignore[arg-type]
            case "retry":
                return Response(Action.RETRY)
            case "raise":
                raise RuntimeError("the handler fails")
        return Response(Action.FAIL)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.running = UnderWay()
        self.wrong: list[str] = []
        self.handler_threads: list[threading.Thread] = []
        self.clock = AskedClock()
        self.waits = self.clock.waits = Waits(MOST_POLL_MS // 4, polling=lambda: self.running.on_top(SteppedPolling))
        # A commit of which Kafka may have an answer, one of this answer's own, and a recovery.
        self.waits.repeated = {THE_GROUP: MOST_POLL_MS // 4}
        if TOLERANT not in self._flags:
            self.waits.repeated |= dict.fromkeys(("send_offsets", "commit"), TASK_TIMEOUT_MS)
            self.waits.repeated[THE_GROUP] += TASK_TIMEOUT_MS
        self.state = ChaosState(self)
        self.openers = ChaosOpeners(self)
        self.state.orphaned = self.openers.for_an_ended_thread
        self.updaters.launch = self._launch_updater  # type: ignore[method-assign]
        self.workers.launch, self.workers.wait = self._launch_worker, self._wait  # type: ignore[method-assign]
        self.context = replace(self.context, clock=self.clock, state=self.state, identity=self.context.identity)
        self.moods = Moods()
        keeps = "committed_collector" in self._flags
        self.wrong_order = self.wrong if keeps else list[str]()
        self.clients = self._new_clients()
        self.group = Group(self)
        chosen = wiring.parts(self._flags).thread
        collection = CommittedCollector if keeps else BufferedCollection
        task_failure_policy = ResendingPolicy if keeps else TaskEndingPolicy
        self.parts = replace(
            self.parts,
            opening=self.openers.opening,
            confirmation=chosen.confirmation,
            commit=chosen.commit,
            failed_commit=chosen.failed_commit,
            recovery=chosen.recovery,
            processing=lambda context: ThreadedProcessing(
                context, self._launch_worker, self._wait, CountedThreads(context)
            ),
            collection=lambda context, clients: collection(context, clients, ChaosHandler(self, context)),
            task_failure_policy=lambda context: task_failure_policy(context, self.handler_threads.append),
        )
        self.state.ownership = chosen.state  # type: ignore[assignment]
        self.polling: list[SteppedPolling] = []
        registry = self.context.thread_registry
        factory: Any = lambda context: None  # noqa: E731
        workforce = PollingWorkforce(self.config, "app", registry, self.parts, factory)
        self.roster = ThreadRoster(workforce, registry, self._make, lambda _: None)

    def _new_clients(self) -> ChaosClients:
        return ChaosClients(self, self.chance, self.moods, self.waits, self.wrong_order)

    def _make(self, _: int) -> Any:
        self.polling.append(SteppedPolling(self))
        return self.polling[-1]

    def renew(self) -> None:
        """Have surroundings for the next polling thread: new clients, of the same logs and the same group."""
        before, self.clients = self.clients, self._new_clients()
        self.clients.succeed(before)
        self.context = next_context(self)

    def _launch_updater(self, handover: Any) -> Any:
        if self.updaters.refusing:
            raise RuntimeError("can't start new thread")
        self.updaters.all.append(ChaosUpdater(self, handover))
        return self.updaters.newest

    def _launch_worker(self, worker: Any, _: object) -> Any:
        failed = lambda error: self.wrong.append(f"a processing thread died: {error!r}")  # noqa: E731
        self.workers.all.append(ChaosWorker(worker, self.running, failed))
        return self.workers.all[-1]

    def _wait(self, condition: threading.Condition, timeout_ms: int) -> None:
        """The polling thread waits for news; a worker that sleeps is asked again later."""
        if not self.running.on_top(SteppedPolling):
            return
        self.waits.ask("news", timeout_ms)
        condition.release()
        try:
            self.clock.advance(min(5, timeout_ms))
            self.waits.others()
        finally:
            condition.acquire()

    def keys_of(self, partition: int) -> list[str]:
        """The keys of the input of 0_p."""
        entries: list[Any] = self.logs[TopicPartition("in", partition)].entries
        return [message.key().decode() for message in entries]

    def out(self, topic: str = "out") -> list[tuple[str, int]]:
        """Key and count of each output that readers of the topic see."""
        entries: list[Any] = [
            message
            for at, log in self.logs.items()
            if at.topic == topic
            for message in log.entries
            if message is not None
        ]
        return [(message.key().decode(), int.from_bytes(message.value(), "big")) for message in entries]
