"""Defines every error that a user can meet, and the exit code of each.

*Guarantees*: the message of a `MilestonesError` says what happened, where, and what to do. `exit_code` is one of the
table below. Three kinds of errors only steer the runtime, and never reach a user: `TaskMigratedError`,
`TaskCorruptedError` and `StateBusyError`.
*Assumes*: nothing.

| exit code | meaning |
|---|---|
| 0 | ok |
| 1 | failed, or some threads had not ended when `close_timeout_ms` was over |
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
    """Base class of all errors of this package. `exit_code`: the exit code of the process if nothing handles the
    error."""

    exit_code = 1


class ConfigError(MilestonesError):
    """A config value can't be used. The error names the key, the value and the reason. Secrets are hidden in all
    three."""

    key: str
    value: object
    reason: str

    exit_code = 2

    def __init__(self, key: str, value: object, reason: str) -> None:
        self.key, self.value, self.reason = key, shown(key, value), without_credentials(reason)
        super().__init__(without_credentials(f"config {key}={self.value!r}: {reason}"))


class TopologyError(MilestonesError):
    """A topology can't be built or run as it is written."""

    exit_code = 2


class SourceTopicError(MilestonesError):
    """A source topic is missing, was deleted, or changed its partition count while the application was running."""

    exit_code = 2


class KafkaUnreachableError(MilestonesError):
    """No broker answered within the time allowed."""

    exit_code = 3


class StateError(MilestonesError):
    """The state directory, or a store in it, can't be used."""

    exit_code = 4


class StateLockedError(StateError):
    """Another live process or thread uses the state. The runtime tries for a while to get it, because the other one may
    be about to end."""


class StateFullError(StateError):
    """The disk of the state directory is full."""


class StateCorruptError(StateError):
    """Files of stores are damaged. `damaged`: the damaged stores, if they are known. They can be restored from their
    changelogs."""

    def __init__(self, message: str, damaged: Iterable[StoreId] = ()) -> None:
        super().__init__(message)
        self.damaged: frozenset[StoreId] = frozenset(damaged)


class StateBusyError(StateError):
    """A write isn't possible now, because RocksDB would stall it or the disk is full. This error only steers the
    runtime: confirmed data stays safe, and the write is retried.

    `pause_ms`: the time before the next try. `where`: the stores. `reason`: the reason why no write is possible.
    `remedy`: what the user can do. `limit_ms`: the longest time for which the write is retried; None means without a
    limit. `full`: True if the disk is full. `told`: True once the error was logged."""

    def __init__(
        self, where: str, reason: str, remedy: str, pause_ms: int, limit_ms: int | None = None, *, full: bool = False
    ) -> None:
        super().__init__(f"{where}: no write is possible now, as {reason}: {remedy}")
        self.where, self.reason, self.remedy = where, reason, remedy
        self.pause_ms, self.limit_ms, self.full, self.told = pause_ms, limit_ms, full, False


class StateFormatError(StateError):
    """This version doesn't know the format of a manifest or of a state directory. `newer`: True if a newer version has
    probably written it. A damaged file can look the same."""

    def __init__(self, message: str, *, newer: bool = False) -> None:
        super().__init__(message)
        self.newer = newer


class SerializationError(MilestonesError):
    """A serde refused a key or value."""


class ProcessingError(MilestonesError):
    """The user's code raised an error while it processed a record, and the handler chose to fail."""

    task: TaskId
    node: str | None

    def __init__(self, message: str, task: TaskId, node: str | None = None) -> None:
        super().__init__(message)
        self.task, self.node = task, node


class UserExitError(MilestonesError):
    """A function of the user raised an error that isn't an `Exception`, such as that of `sys.exit()`. The text names
    the function. The record is neither skipped nor retried. `__cause__` is the error that was raised."""


class SuppressBufferFullError(MilestonesError):
    """A suppress buffer would exceed its bounds, and may not emit early. No data is lost: the records since the last
    commit are read once more after a restart."""


class ProductionError(MilestonesError):
    """Kafka refused a record that a task produced, and the handler chose to fail."""

    def __init__(self, message: str, task: TaskId | None = None) -> None:
        super().__init__(message)
        self.task = task


class TimeoutExceededError(MilestonesError):
    """A call to Kafka kept failing for longer than `task_timeout_ms`."""

    exit_code = 3


class MembershipError(MilestonesError):
    """The group refused this member permanently, because of its protocol, a missing right, or a duplicate static
    id."""


class OffsetsRefusedError(MembershipError):
    """Kafka refused to commit the offsets of these `partitions`. It may have committed the other offsets of the same
    request."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(message)
        self.partitions: frozenset[TopicPartition] = frozenset(partitions)


class SecurityError(MembershipError):
    """Kafka refused the login, or no TLS connection is possible, or the principal lacks the right to the group or to a
    transactional id. In the first two cases check `security_protocol` and the settings that begin with `sasl_` or
    `ssl_`."""

    exit_code = 2


class TransactionalIdError(MilestonesError):
    """A transactional id can't be used: another process uses it, too, or the user has no right to it."""

    exit_code = 2


class ApplicationShutdownError(MilestonesError):
    """An instance asked the whole application to shut down (KIP-671). The message says which instance, and why."""


class CloseTimeoutError(MilestonesError):
    """Threads hang in user code or in calls to Kafka. The client that closes, or its process, has stopped waiting for
    them."""


class OwnershipError(MilestonesError):
    """A bug in this package: a thread used an object that another thread owns."""


class TaskMigratedError(MilestonesError):
    """Other members may own this thread's tasks now. The thread drops them and rejoins the group. This error only
    steers the runtime."""


class TaskCorruptedError(MilestonesError):
    """The uncommitted work of these `tasks` is void. Their thread rolls all of its processing tasks back. This error
    only steers the runtime."""

    def __init__(self, message: str, tasks: Iterable[TaskId]) -> None:
        super().__init__(message)
        self.tasks: frozenset[TaskId] = frozenset(tasks)


class UnsentError(TaskCorruptedError):
    """Outputs of these `tasks` aren't in Kafka, and the tasks aren't the cause. The runtime has kept the outputs, and
    resends them."""


class LeftOutError(UnsentError):
    """The user's handler returned CONTINUE. The failed transaction is repeated without the outputs that Kafka
    refused."""


class SendAgainError(UnsentError):
    """The user's handler returned RETRY. The outputs of these tasks are resent, for at most `task_timeout_ms`."""


class RefusedTogetherError(UnsentError):
    """Kafka refused a whole batch of outputs because of one output in it. `tasks`: the tasks of the outputs. The
    outputs are resent in smaller batches, to find the refused one. `suspects`: the outputs of the batch, if they are
    known."""

    def __init__(self, message: str, tasks: Iterable[TaskId], suspects: Iterable[Output] = ()) -> None:
        super().__init__(message, tasks)
        self.suspects = tuple(suspects)


class RejectionIdentifiedError(TaskCorruptedError):
    """The runtime has found out which output Kafka refuses. The producer needn't send small batches any more."""
