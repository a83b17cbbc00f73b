"""The seams that a milestone may replace: those of an instance and those of a thread that polls."""

from milestones.parts.instance import ClientFactory, InstanceParts, InstanceThread, Observer, Parts, Workforce
from milestones.parts.state import ClosedStores, OpenedStores, StateOwnership, StoreAnswer, StoreOpening
from milestones.parts.thread import (
    PREPARE_MS,
    Clients,
    CloseMode,
    Commit,
    CommitMember,
    CommitStep,
    Confirmation,
    FailedTask,
    OutputCollection,
    Processing,
    ReadClients,
    Recovery,
    RemovedTask,
    Restoration,
    Sending,
    ThreadParts,
)

__all__ = [
    "PREPARE_MS", "ClientFactory", "Clients", "CloseMode", "ClosedStores", "Commit", "CommitMember", "CommitStep",
    "Confirmation", "FailedTask", "InstanceParts", "InstanceThread", "Observer", "OpenedStores", "OutputCollection",
    "Parts", "Processing", "ReadClients", "Recovery", "RemovedTask", "Restoration", "Sending", "StateOwnership",
    "StoreAnswer", "StoreOpening", "ThreadParts", "Workforce",
]  # fmt: skip
