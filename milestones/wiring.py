"""`parts` returns the parts that a set of flags chooses. Only this module knows which part belongs to which flag.

*Guarantees*: every legal set of flags leads to complete `Parts`. If neither of two flags needs the other, they replace
different parts, so that their order doesn't matter. A test checks this. The observers of all flags are added together.
*Assumes*: the flags were validated by `flags.parse_milestones`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from milestones.baseline.collection import DirectCollection
from milestones.baseline.committing import Transaction, WaitingCommitter
from milestones.baseline.failed_commit import DroppedCommit
from milestones.baseline.isolating_processing import IsolatingProcessing
from milestones.baseline.opening import InlineOpening
from milestones.baseline.processing import InlineProcessing
from milestones.baseline.recovery import RejoinRecovery
from milestones.baseline.restoration import InlineRestoration
from milestones.baseline.task_failure_policy import ThreadEndingPolicy
from milestones.common.clock import Clock
from milestones.common.config.keys import SHUTDOWN_CLIENT
from milestones.common.metrics import Metrics
from milestones.common.state.storage import StateManager
from milestones.ended_tasks.task_failure_policy import TaskEndingPolicy
from milestones.instance.context import ThreadContext
from milestones.m1_state_updater.engine_metrics import EngineMetricsThread
from milestones.m1_state_updater.opening import ThreadedOpening
from milestones.m1_state_updater.restoration import UpdaterRestoration
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from milestones.m4_polling_thread.collection import polling_collection
from milestones.m4_polling_thread.counted_threads import counted_processing
from milestones.m4_polling_thread.workforce import PollingWorkforce
from milestones.m5_committed_collector.collector import CommittedCollector
from milestones.m5_committed_collector.committing import confirmation
from milestones.m5_committed_collector.failed_commit import RetainedCommit
from milestones.m5_committed_collector.recovery import ResendingRecovery
from milestones.m5_committed_collector.state import CommitLoggedState
from milestones.m5_committed_collector.task_failure_policy import ResendingPolicy
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.opening import StateThreadOpening
from milestones.parts import Clients, Confirmation, InstanceParts, Observer, Parts, ThreadParts
from milestones.parts.transaction import CommitStage
from milestones.shared_parts.clients import ThreadClientFactory, ThreadClients
from milestones.shared_parts.committer import Committer
from milestones.shared_parts.offset_commit import OffsetCommit
from milestones.shared_parts.partition_counts import asked_of_admin, asked_of_consumer
from milestones.shared_parts.state import TaskOwnedState
from milestones.stream_thread.workforce import StreamThreads

Confirming = Callable[[ThreadContext, Clients, Callable[[CommitStage], None]], Confirmation]
P = TypeVar("P")


def _by_guarantee(exactly_once: Confirming) -> Confirming:
    """Return a factory that chooses the confirmation by the processing guarantee: `exactly_once`, or an
    OffsetCommit."""
    return lambda context, clients, move: (
        exactly_once(context, clients, move) if context.config.exactly_once else OffsetCommit(context, clients)
    )


def _by_task_failed(
    with_the_thread: Callable[[ThreadContext], P], alone: Callable[[ThreadContext], P]
) -> Callable[[ThreadContext], P]:
    """Return a factory that chooses a part by what a failed task ends. `with_the_thread`: its thread, and so the
    client, as in Kafka Streams. `alone`: only itself."""
    return lambda context: (with_the_thread if context.config.task_failed == SHUTDOWN_CLIENT else alone)(context)


def _engine_metrics(client_id: str, state: StateManager, metrics: Metrics, clock: Clock) -> Observer:
    return EngineMetricsThread(f"{client_id}-metrics", state.statistics, metrics, clock)


BASELINE = Parts(
    InstanceParts(
        workforce=StreamThreads,
        client_factory=ThreadClientFactory,
        state_manager=folder_state_manager,
        observers=(),
    ),
    ThreadParts(
        clients=ThreadClients,
        collection=DirectCollection,
        processing=_by_task_failed(InlineProcessing, IsolatingProcessing),
        restoration=InlineRestoration,
        recovery=RejoinRecovery,
        partition_counts=asked_of_consumer,
        state=TaskOwnedState,
        opening=InlineOpening,
        failed_commit=DroppedCommit,
        confirmation=_by_guarantee(Transaction),
        task_failure_policy=_by_task_failed(ThreadEndingPolicy, TaskEndingPolicy),
        commit=WaitingCommitter,
    ),
)


@dataclass(frozen=True)
class Replacement:
    """The changes of a flag: parts of the instance and of its threads, keyed by name, and observers that the flag
    adds."""

    instance: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    thread: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    observers: tuple[Callable[..., Observer], ...] = ()


REPLACEMENTS: Mapping[str, Replacement] = {
    "state_updater": Replacement(
        thread={"restoration": UpdaterRestoration, "opening": ThreadedOpening}, observers=(_engine_metrics,)
    ),
    "processing_threads": Replacement(
        thread={
            "processing": ThreadedProcessing,
            "collection": BufferedCollection,
            # Tasks don't need the stream thread while it commits, so the group can have it.
            "commit": Committer,
            "partition_counts": asked_of_admin,
        }
    ),
    "fencing_tolerance": Replacement(
        thread={"confirmation": _by_guarantee(ResolvedTransaction), "recovery": InPlaceRecovery}
    ),
    "polling_thread": Replacement(
        instance={"workforce": PollingWorkforce},
        thread={
            "processing": counted_processing,
            "collection": polling_collection,
            "task_failure_policy": TaskEndingPolicy,
        },
    ),
    "committed_collector": Replacement(
        thread={
            "state": CommitLoggedState,
            "collection": CommittedCollector,
            "failed_commit": RetainedCommit,
            "confirmation": confirmation,
            "recovery": ResendingRecovery,
            "task_failure_policy": ResendingPolicy,
        }
    ),
    "state_manager": Replacement(
        instance={"state_manager": RangeStateManager}, thread={"opening": StateThreadOpening}
    ),
}
"""The replacements, keyed by flag, in the order of the stages."""


def parts(
    flags: frozenset[str], replacements: Mapping[str, Replacement] = REPLACEMENTS, baseline: Parts = BASELINE
) -> Parts:
    """Return the parts that these flags choose."""
    instance, thread = baseline.instance, baseline.thread
    for flag, put in replacements.items():
        if flag in flags:
            instance = replace(instance, **put.instance, observers=instance.observers + put.observers)  # type: ignore[arg-type]
            thread = replace(thread, **put.thread)  # type: ignore[arg-type]
    return Parts(instance, thread)
