"""Flags -> parts: the only place that knows which part belongs to which flag.

*Guarantees*: every legal set of flags that is built gives a complete `Parts`.
*Assumes*: the flags were validated by `flags.parse_milestones`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from milestones.baseline.clients import ThreadClients
from milestones.baseline.collection import DirectCollection
from milestones.baseline.committing import Committer, Confirmation, OffsetCommit
from milestones.baseline.next_producer import ThreadTransaction
from milestones.baseline.processing import InlineProcessing
from milestones.baseline.recovery import RejoinRecovery
from milestones.baseline.restoration import InlineRestoration
from milestones.baseline.state import TaskOwnedState
from milestones.common.clock import Clock
from milestones.common.kafka.partition_counts import PartitionCounts
from milestones.common.metrics import Metrics
from milestones.common.state.local import LocalState
from milestones.instance.context import ThreadContext
from milestones.m1_state_updater.engine_metrics import EngineMetricsThread
from milestones.m1_state_updater.restoration import UpdaterRestoration
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from milestones.parts import Clients, Commit, Observer, OutputCollection, Parts, Processing, StateOwnership

Confirmations = dict[str, Callable[[ThreadContext, Clients], Confirmation]]

CONFIRMATIONS: Confirmations = {
    "exactly_once_v2": ThreadTransaction,
    "at_least_once": OffsetCommit,
}
"""Step 3 of a commit, by processing guarantee."""


TOLERANT: Confirmations = {**CONFIRMATIONS, "exactly_once_v2": ResolvedTransaction}
"""The same with fencing tolerance."""


def _commit(
    confirmations: Confirmations,
    context: ThreadContext,
    clients: Clients,
    collection: OutputCollection,
    processing: Processing,
) -> Commit:
    confirmation = confirmations[context.config.processing_guarantee]
    return Committer(clients, collection, confirmation(context, clients), processing)


def _engine_metrics(name: str, state: LocalState, metrics: Metrics, clock: Clock) -> Observer:
    return EngineMetricsThread(name, state.statistics, metrics, clock)


def _state(context: ThreadContext, clients: Clients) -> StateOwnership:
    config = context.config
    counts = PartitionCounts(config.admin_settings(f"{context.name}-partitions"), config.request_timeout_ms)
    return TaskOwnedState(context, clients, counts.of)


BASELINE = Parts(
    clients=ThreadClients,
    state=TaskOwnedState,
    restoration=InlineRestoration,
    processing=InlineProcessing,
    collection=DirectCollection,
    commit=partial(_commit, CONFIRMATIONS),
    recovery=RejoinRecovery,
    observer=lambda *_: None,
)

REPLACEMENTS: dict[str, dict[str, Callable[..., object]]] = {
    "state_updater": {"restoration": UpdaterRestoration, "observer": _engine_metrics},
    "processing_threads": {"state": _state, "processing": ThreadedProcessing, "collection": BufferedCollection},
    "fencing_tolerance": {"commit": partial(_commit, TOLERANT), "recovery": InPlaceRecovery},
}
"""By flag, in the order of the stages: the parts that it puts in, by their name in `Parts`."""


def parts(flags: frozenset[str]) -> Parts:
    """The parts that these flags choose."""
    chosen = BASELINE
    for flag, replaced in REPLACEMENTS.items():
        if flag in flags:
            chosen = replace(chosen, **replaced)  # type: ignore[arg-type]
    return chosen
