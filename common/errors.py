"""Every error that a user can meet, each with what to do about it and the exit code it leads to.

*Guarantees*: a `MilestonesError` has a message that names what, where and what to do; `exit_code` is one of the
table below. Errors that only steer the runtime (`TaskMigratedError`, `TaskCorruptedError`, `StateBusyError`) never
reach a user.
*Assumes*: nothing.

| exit code | meaning |
|---|---|
| 0 | ok |
| 1 | failed; or closed by `close_timeout_ms`, with threads that hadn't come back |
| 2 | bad config or topology |
| 3 | Kafka unreachable |
| 4 | state unusable |
| 130 | interrupted |
"""

from __future__ import annotations

from collections.abc import Iterable

from milestones.common.records import Output, StoreId, TaskId, TopicPartition
from milestones.common.secrets import shown, without_credentials


class MilestonesError(Exception):
    """Any error of this package. `exit_code` is what the process ends with when nothing handles it."""

    exit_code = 1


class ConfigError(MilestonesError):
    """A config value that can't be used: names the key, the value, the reason; secrets are hidden in all of them."""

    key: str
    value: object
    reason: str

    exit_code = 2

    def __init__(self, key: str, value: object, reason: str) -> None:
        self.key, self.value, self.reason = key, shown(key, value), without_credentials(reason)
        super().__init__(without_credentials(f"config {key}={self.value!r}: {reason}"))


class TopologyError(MilestonesError):
    """A topology that can't be built or run as written."""

    exit_code = 2


class SourceTopicError(MilestonesError):
    """A source topic is missing, was deleted, or changed its partition count under a running application."""

    exit_code = 2


class KafkaUnreachableError(MilestonesError):
    """No broker answered within the time allowed."""

    exit_code = 3


class StateError(MilestonesError):
    """The state directory, or a store in it, can't be used."""

    exit_code = 4


class StateLockedError(StateError):
    """Another live process or thread holds the state; retried while that may end."""


class StateFullError(StateError):
    """The disk of the state directory is full."""


class StateCorruptError(StateError):
    """Files of stores are damaged. `damaged`: the stores, if they are known; their content can be rebuilt from their
    changelogs."""

    def __init__(self, message: str, damaged: Iterable[StoreId] = ()) -> None:
        super().__init__(message)
        self.damaged: frozenset[StoreId] = frozenset(damaged)


class StateBusyError(StateError):
    """A write isn't possible now: RocksDB would stall it, or the disk is full. Steers the runtime only: nothing of what
    was confirmed is lost, and the write is made again.

    `pause_ms`: the time before the next try. `where`: the stores; `reason`: what has to pass; `remedy`: what helps.
    `limit_ms`: for how long a write is made again at most; None: for as long as it takes. `full`: as the disk is;
    `told`: the log has it already."""

    def __init__(
        self, where: str, reason: str, remedy: str, pause_ms: int, limit_ms: int | None = None, *, full: bool = False
    ) -> None:
        super().__init__(f"{where}: no write is possible now, as {reason}: {remedy}")
        self.where, self.reason, self.remedy = where, reason, remedy
        self.pause_ms, self.limit_ms, self.full, self.told = pause_ms, limit_ms, full, False


class StateFormatError(StateError):
    """A manifest or layout that this version doesn't know. `newer`: a version that it doesn't know has written it, as
    far as damage and a new version can be told apart."""

    def __init__(self, message: str, *, newer: bool = False) -> None:
        super().__init__(message)
        self.newer = newer


class SerializationError(MilestonesError):
    """A serde refused a key or value."""


class ProcessingError(MilestonesError):
    """The user's code raised while processing a record, and the handler chose to fail."""

    task: TaskId
    node: str | None

    def __init__(self, message: str, task: TaskId, node: str | None = None) -> None:
        super().__init__(message)
        self.task, self.node = task, node


class UserExitError(MilestonesError):
    """The user's code left a function by an error that isn't an `Exception`, such as that of `sys.exit()`. The text
    names the function. Nothing is skipped, or retried. `__cause__` is what was raised."""


class SuppressBufferFullError(MilestonesError):
    """A suppress buffer would exceed its bounds, and may not emit early. Nothing is lost: what was processed since the
    last commit is read again."""


class ProductionError(MilestonesError):
    """Kafka refused a record that a task produced, and the handler chose to fail."""

    def __init__(self, message: str, task: TaskId | None = None) -> None:
        super().__init__(message)
        self.task = task


class TimeoutExceededError(MilestonesError):
    """A call to Kafka kept failing for longer than `task_timeout_ms`."""

    exit_code = 3


class MembershipError(MilestonesError):
    """The group refused this member for good: protocol, authorisation, or a duplicate static id."""


class OffsetsRefusedError(MembershipError):
    """Kafka doesn't take the offsets of these `partitions`; those of others in the same commit it may have taken."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(message)
        self.partitions: frozenset[TopicPartition] = frozenset(partitions)


class SecurityError(MembershipError):
    """Kafka refused the login, or TLS with it isn't possible: `security_protocol`, or a `sasl_` or `ssl_` setting; or
    the principal has no right to the group, or to a transactional id."""

    exit_code = 2


class TransactionalIdError(MilestonesError):
    """A transactional id that can't be used: another process uses it too, or the user may not."""

    exit_code = 2


class ApplicationShutdownError(MilestonesError):
    """Some instance asked the whole application to shut down (KIP-671); the message says which, and why."""


class CloseTimeoutError(MilestonesError):
    """A client that closes, or its process, waits no longer: threads hang in user code or in calls to Kafka."""


class OwnershipError(MilestonesError):
    """A bug: a thread touched an object that another thread owns."""


class TaskMigratedError(MilestonesError):
    """Other members may own this thread's tasks now: drop them and rejoin. Steers the runtime only."""


class TaskCorruptedError(MilestonesError):
    """The uncommitted work of these `tasks` is void; their thread rolls all its processing tasks back. Steers the
    runtime only."""

    def __init__(self, message: str, tasks: Iterable[TaskId]) -> None:
        super().__init__(message)
        self.tasks: frozenset[TaskId] = frozenset(tasks)


class UnsentError(TaskCorruptedError):
    """Outputs of these `tasks` aren't in Kafka, and the tasks aren't at fault. Kept outputs are resent."""


class LeftOutError(UnsentError):
    """The handler answered CONTINUE: the transaction that failed is repeated without the refused outputs."""


class SendAgainError(UnsentError):
    """The handler answered RETRY: the outputs of these tasks are resent, for `task_timeout_ms` at most."""


class RefusedTogetherError(UnsentError):
    """Kafka refused a batch of outputs of these tasks because of one in it. They are resent in smaller batches to find
    out which one. `suspects`: the outputs of the batch, as far as they are known."""

    def __init__(self, message: str, tasks: Iterable[TaskId], suspects: Iterable[Output] = ()) -> None:
        super().__init__(message, tasks)
        self.suspects = tuple(suspects)


class RejectionIdentifiedError(TaskCorruptedError):
    """The output that Kafka refuses is known. The producer needn't send small batches any more."""
