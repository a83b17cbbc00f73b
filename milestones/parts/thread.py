"""`ThreadParts`: one factory of each part of a thread that polls.

*Guarantees*: the stream thread knows only the parts' Protocols; `wiring.py` alone knows the classes behind them.
*Assumes*: every part is made in the thread that drives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts.clients import ClientFactory, Clients
    from milestones.parts.commit import Commit, Confirmation, OutputCollection, Recovery, StageRegister
    from milestones.parts.failed_commit import FailedCommit
    from milestones.parts.processing import CommitGate, Processing
    from milestones.parts.restoration import Restoration
    from milestones.parts.state import StateOwnership, StoreOpening
    from milestones.parts.task_failure_policy import TaskFailurePolicy
    from milestones.parts.transaction import CommitStage


@dataclass(frozen=True)
class ThreadParts:
    """The factories of a polling thread's parts, one for each part. Each is called once per thread that polls, in that
    thread, in the order of the fields."""

    clients: Callable[[ThreadContext, ClientFactory], Clients]
    collection: Callable[[ThreadContext, Clients], OutputCollection]
    processing: Callable[[ThreadContext], Processing]
    restoration: Callable[[ThreadContext, Clients], Restoration]
    recovery: Callable[[ThreadContext, Clients], Recovery]
    partition_counts: Callable[[ThreadContext, Clients], Callable[[str], int]]
    """Makes a function that returns a topic's partition count. Every thread that runs user code may call this function;
    on the baseline that is only the stream thread."""
    state: Callable[[ThreadContext, Callable[[str], int]], StateOwnership]
    opening: Callable[[ThreadContext], StoreOpening]
    failed_commit: Callable[[ThreadContext], FailedCommit]
    confirmation: Callable[[ThreadContext, Clients, Callable[[CommitStage], None]], Confirmation]
    """Makes the confirmation. The last argument is a function that moves the transaction to another stage."""
    task_failure_policy: Callable[[ThreadContext], TaskFailurePolicy]
    commit: Callable[[OutputCollection, Confirmation, CommitGate, StageRegister, FailedCommit], Commit]
