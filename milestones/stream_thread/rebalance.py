"""The stream thread's answers to its group.

*Guarantees*: a task that is given away is committed before another member may get it. If that fails, no more of its
outputs are sent. The task is closed, or becomes a standby, in this turn or in one of the next turns. Tasks that stay
are processed meanwhile. When a warm-up has caught up, the thread asks the group for a new assignment.
*Assumes*: driven by the thread that owns the member and the tasks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Set
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol

from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.errors import ApplicationShutdownError, MilestonesError, SourceTopicError
from milestones.common.kafka.membership import Assigned, Failed, JoinNeeded, Lost, MemberEvent
from milestones.common.testing.faults import reach
from milestones.instance.states import ThreadState
from milestones.stream_thread.warmups import WarmUps

if TYPE_CHECKING:
    from milestones.common.records import TaskId, TopicPartition
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients
    from milestones.stream_thread.tasks import ThreadTasks

log: Final = logging.getLogger(__name__)

LAST_WORDS_MS = 30_000
"""How long a dying thread tries to tell the group that the application must shut down."""


class Answering(Protocol):
    """The stream thread's preparations for an answer to the group."""

    def may_join(self, now_ms: int) -> bool:
        """True if the member may join now. The first call for an answer begins a commit of all tasks. The member may
        join when this commit has succeeded, or has failed and the thread has recovered from that. The member may also
        join during the commit, once joining does the commit no harm."""
        ...

    def may_release(self, now_ms: int, leaving: Set[TaskId]) -> bool:
        """True if the tasks in `leaving` may be given away now. The first call begins their last commit; from then on
        they aren't processed. They may be given away when this commit is over."""
        ...

    def may_abandon(self) -> bool:
        """True if the tasks may be dropped now: no commit of them waits for Kafka's answer."""
        ...

    def answered(self) -> None:
        """Record that the leaving tasks have been given away."""
        ...

    def part(self) -> None:
        """Make sure that no more outputs of the tasks are sent that are given away now. If that fails, this method
        recovers from the error itself."""
        ...

    def abandon(self, reason: str) -> None:
        """Drop all active tasks without a commit."""
        ...


class Rebalance:
    """*Owns*: the generation. *Receives*: membership events. *Sends*: the thread's subscription, through its member.

    For metrics: `completed`: the number of completed rebalances; `elapsed_ns`: their time, from join to assignment;
    `failed`: rebalances in which the membership was lost, or another join was needed, before there was an assignment;
    `ended_ms`: when the last rebalance was completed.
    """

    completed: int
    elapsed_ns: int
    failed: int

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        tasks: ThreadTasks,
        answering: Answering,
    ) -> None:
        self._context, self._member, self._tasks, self._answering = context, clients.member, tasks, answering
        self._events: deque[MemberEvent] = deque()
        self._warm_ups = WarmUps(context.config.acceptable_recovery_lag)
        self._reason = ""
        self._promised: frozenset[TaskId] = frozenset()
        self.generation: int = -1
        self.joining: bool = True
        self.completed = self.elapsed_ns = self.failed = 0
        self.ended_ms: int | None = None
        self._began_ns: int | None = None

    @property
    def warm_ups(self) -> frozenset[TaskId]:
        """The standbys that are warm-ups according to the last assignment."""
        return self._warm_ups.tasks

    @property
    def preparing(self) -> bool:
        """True while an answer to the group waits for tasks that must be committed first. Begin no other commit then:
        it would delay the answer."""
        return bool(self._events)

    def run_once(self) -> list[ThreadState]:
        """Answer the membership events since the last call. Returns the thread states that this led to."""
        states: list[ThreadState] = []
        self._events += self._member.poll()
        while self._events and self._ready_for(self._events[0]):
            match self._events.popleft():
                case JoinNeeded(reason):
                    states.append(self._join(reason))
                case Assigned(generation, _, assignment):
                    self.generation, self.joining = generation, False
                    self._context.thread_registry.generation = generation
                    self._completed()
                    states += self._assigned(assignment)
                case Lost(reason):
                    log.warning("%s: membership lost (%s): its tasks are dropped", self._context.name, reason)
                    self.joining = True
                    self._failed()
                    self._answering.abandon(reason)
                    states.append(ThreadState.PARTITIONS_REVOKED)
                case Failed(error):
                    raise error
        if self._warm_ups.waiting and not self.joining:
            self._look_after_warm_ups()
        return states

    def _ready_for(self, event: MemberEvent) -> bool:
        """True if the tasks are ready for this event. If they aren't, this event and all later ones wait."""
        now_ms = self._context.clock.monotonic_ms()
        match event:
            case JoinNeeded():
                return self._answering.may_join(now_ms)
            case Assigned(assignment=assignment) if leaving := self._tasks.changed(_active(assignment)):
                return self._answering.may_release(now_ms, leaving)
            case Lost():
                return self._answering.may_abandon()
            case _:
                return True

    def _look_after_warm_ups(self) -> None:
        caught_up = self._warm_ups.due(self._tasks.lags(), self._context.clock.monotonic_ms())
        if caught_up:
            self._member.request_rejoin(f"warm-up {', '.join(map(str, caught_up))} has caught up")

    def _join(self, reason: str) -> ThreadState:
        """Join the group. The tasks have been committed before: from JoinGroup on, commits wait for the new
        generation."""
        log.info("%s: joins the group: %s", self._context.name, reason)
        self.joining, self._reason = True, reason
        self._failed()
        reach("rebalance.before-join")
        self._began_ns = perf_counter_ns()
        self._member.join(self._subscription())
        return ThreadState.PARTITIONS_REVOKED

    def _completed(self) -> None:
        if self._began_ns is not None:
            self.completed += 1
            self.elapsed_ns += perf_counter_ns() - self._began_ns
            self.ended_ms, self._began_ns = self._context.clock.monotonic_ms(), None

    def _failed(self) -> None:
        if self._began_ns is not None:
            self.failed += 1
            self._began_ns = None

    def shut_application_down(self, reason: str) -> None:
        """Tell every other instance to shut down, as the last act of this member. All tasks are closed already."""
        last_words = replace(self._subscription(), shutdown=reason)
        deadline = self._context.clock.monotonic_ms() + LAST_WORDS_MS
        try:
            # Join without waiting for `JoinNeeded`: if the thread died during the answer to it, no other will come.
            self._member.join(last_words)
            while self._context.clock.monotonic_ms() < deadline:
                for event in self._member.poll():
                    match event:
                        case Assigned(assignment=assignment) if assignment.shutdown:
                            return
                        case JoinNeeded() | Assigned():
                            self._member.join(last_words)
                        case Failed(error):
                            raise error
                self._context.clock.sleep_ms(20)
        except MilestonesError as error:
            log.error("%s: the others can't be told to shut down: %s", self._context.name, error)
            return
        log.error("%s: the others couldn't be told to shut down within %d ms", self._context.name, LAST_WORDS_MS)

    def _subscription(self) -> Subscription:
        context, application = self._context, self._context.application
        return Subscription(
            process_id=context.process_id,
            stage=context.stage,
            capacity=context.identity.capacity(),
            # Name the topics of patterns, too: the coordinator keeps the offsets of the topics that are named here.
            topics=tuple(sorted(context.thread_registry.sources.union(application.source_topics))),
            fingerprint=application.fingerprint,
            active=self._tasks.owned,
            standby=frozenset(self._tasks.standbys),
            promised=self._promised,
            positions=self._tasks.positions(),
            lags=self._tasks.lags(),
            generation=self.generation,
            client_tags=context.config.client_tags,
            reason=self._reason,
            endpoint=context.metrics.address,
        )

    def _assigned(self, assignment: Assignment) -> list[ThreadState]:
        reach("rebalance.assigned")
        if assignment.error is not None:
            raise (ApplicationShutdownError if assignment.shutdown else SourceTopicError)(assignment.error)
        active = _active(assignment)
        standbys = assignment.standby | assignment.warmup
        revoked = self._tasks.owned - assignment.active
        if self._tasks.changed(active):
            self._answering.part()
        try:
            self._tasks.assign(active, standbys)
        finally:  # all tasks have been released, even if a task didn't close cleanly
            self._answering.answered()
            self._warm_ups.assigned(assignment.warmup)
            self._promised = assignment.promised
            if revoked:
                reach("rebalance.revoked")
                self._member.request_rejoin("tasks were released to their new owners")
        log.info(
            "%s: generation %d, tasks %s, standbys %s, warm-ups %s, revoked %s",
            self._context.name, self.generation,
            *(sorted(map(str, tasks)) for tasks in (active, assignment.standby, assignment.warmup, revoked)),
        )  # fmt: skip
        return [ThreadState.PARTITIONS_ASSIGNED]


def _active(assignment: Assignment) -> dict[TaskId, frozenset[TopicPartition]]:
    return {id: frozenset(assignment.partitions.get(id, ())) for id in assignment.active}
