"""The parts that a milestone may replace, as Protocols: the parts of an instance, and the parts of a thread that
polls."""

from milestones.parts.clients import ClientFactory, Clients, CommitMember, ReadClients, Sending
from milestones.parts.commit import Commit, Confirmation, OutputCollection, Recovered, Recovery
from milestones.parts.failed_commit import FailedCommit
from milestones.parts.instance import InstanceParts, InstanceThread, Observer, Parts, Workforce
from milestones.parts.processing import PREPARE_MS, CloseMode, CommitGate, Loop, Processing, RemovedTask
from milestones.parts.restoration import FailedTask, Restoration
from milestones.parts.state import ClosedStores, OpenedStores, StateOwnership, StoreAnswer, StoreOpening
from milestones.parts.task_failure_policy import (
    Attribution,
    DecidedError,
    OpenTransaction,
    TaskDecision,
    TaskFailurePolicy,
)
from milestones.parts.thread import ThreadParts

__all__ = [
    "PREPARE_MS",
    "Attribution",
    "ClientFactory",
    "Clients",
    "CloseMode",
    "ClosedStores",
    "Commit",
    "CommitGate",
    "CommitMember",
    "Confirmation",
    "DecidedError",
    "FailedCommit",
    "FailedTask",
    "InstanceParts",
    "InstanceThread",
    "Loop",
    "Observer",
    "OpenTransaction",
    "OpenedStores",
    "OutputCollection",
    "Parts",
    "Processing",
    "ReadClients",
    "Recovered",
    "Recovery",
    "RemovedTask",
    "Restoration",
    "Sending",
    "StateOwnership",
    "StoreAnswer",
    "StoreOpening",
    "TaskDecision",
    "TaskFailurePolicy",
    "ThreadParts",
    "Workforce",
]  # fmt: skip
