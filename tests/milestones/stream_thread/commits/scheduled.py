"""A commit driver over tasks that only say what a test wants of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.baseline.failed_commit import DroppedCommit
from milestones.baseline.task_failure_policy import ThreadEndingPolicy
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.parts.transaction import CommitStage
from milestones.stream_thread.commits.driver import CommitDriver
from milestones.stream_thread.commits.transaction_register import TransactionRegister
from milestones.stream_thread.rollback_metrics import RollBacks
from tests.milestones.fakes import A, World, passing


class FakeTask:
    """`looks`: how often its bytes were asked for."""

    def __init__(self, id: TaskId = A, *, needed: bool = True) -> None:
        self.id, self.needed, self.committable = id, needed, True
        self.requested = self.applying = False
        self.bytes = self.outputs = self.looks = 0
        self.times: dict[TopicPartition, int] = {}

    def freeze_if_flushed(self) -> object:
        return object()

    def commit_needed(self) -> bool:
        return self.needed

    def commit_requested(self) -> bool:
        return self.requested

    def uncommitted_bytes(self) -> int:
        self.looks += 1
        return self.bytes

    def output_bytes(self) -> int:
        return self.outputs

    def gone(self) -> dict[TopicPartition, int]:
        return self.times


class Scheduled:
    """A schedule over fake tasks; `commits` has the tasks of each commit."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(passing(), {"commit_interval_ms": 100, **settings})
        self.task = FakeTask()
        self.processing: dict[TaskId, FakeTask] = {A: self.task}
        self.commits: list[list[FakeTask]] = []
        self.error: Exception | None = None
        self.roll_backs = RollBacks(self.world.clock)
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.prepared, self.released = True, 0
        self.withheld = False
        self.is_void: Any = lambda _: False
        parts: Any = self
        part: Any = SimpleNamespace(prepare_commit=lambda now_ms: self.prepared, unlock=self._unlock)
        ends, clients = ThreadEndingPolicy(self.world.context), self.world.clients
        failed = DroppedCommit(self.world.context)
        self.register = TransactionRegister(ends.admits, failed.answers)
        self.schedule = CommitDriver(
            self.world.context, clients, parts, parts, part, ends, self.register, failed  # type: ignore[arg-type]
        )  # fmt: skip

    def _unlock(self) -> None:
        self.released += 1

    def begin(self, commit_set: dict[FakeTask, object]) -> None:
        self.begun = list(commit_set)
        self.register.move(CommitStage.SENDING)

    def run_once(self, wait_ms: int) -> dict[TopicPartition, OffsetAndMetadata] | None:
        if self.withheld:
            return None
        self.register.commit_is_over()
        if self.error is not None:
            raise self.error
        self.commits.append(self.begun)
        return self.offsets

    def abandon(self) -> None:
        self.register.commit_is_over()

    def after(self, ms: int) -> int:
        """Commits so far, `ms` later."""
        self.world.clock.advance(ms)
        self.schedule.note_changed(self.processing.values())  # type: ignore[arg-type]
        self.schedule.run_once(self.world.clock.monotonic_ms())
        return len(self.commits)
