"""Errors of `ResolvedTransaction` that say how a commit without an answer ended. These errors only steer the runtime:
no user code gets them.

*Guarantees*: `cause` is the client's error, and `age_ms` the age of the transaction when it came. From these two
`InPlaceRecovery` learns whether the transactional id was taken over.
*Assumes*: nothing.
"""

from __future__ import annotations

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, TaskMigratedError


class RolledBackError(MilestonesError):
    """The transaction of a commit was certainly rolled back, and a new producer has replaced its producer."""

    cause: KafkaException
    age_ms: int | None

    def __init__(self, cause: KafkaException, age_ms: int | None) -> None:
        super().__init__(f"the transaction was rolled back: {cause}")
        self.cause, self.age_ms = cause, age_ms


class UnknownOutcomeError(TaskMigratedError):
    """How a commit ended can't be found out, or another process has committed since. The transaction's producer was
    replaced, or can't send any more."""

    cause: KafkaException
    age_ms: int | None

    def __init__(self, message: str, cause: KafkaException, age_ms: int | None) -> None:
        super().__init__(message)
        self.cause, self.age_ms = cause, age_ms


class NoAnswerError(MilestonesError):
    """The group's coordinator didn't answer in time."""
