"""The classes of a client's errors, by the runtime's answer to them: one table.

*Guarantees*: every `KafkaError` falls into exactly one class.
*Assumes*: librdkafka's own marks (`fatal`, `txn_requires_abort`, `retriable`) are right; an error of a transactional
call with none of them counts as fatal, as librdkafka's INTRODUCTION asks for.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import SecurityError

E = TypeVar("E", bound=BaseException)


class ErrorClass(enum.Enum):
    """The three classes of a transactional producer's errors (KIP-691 draws the same line)."""

    RETRIABLE = "the same call again, until task_timeout_ms"
    ABORTABLE = "abort the transaction, keep the producer"
    FATAL = "the producer is dead"


UNKNOWN_TOPIC = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
"""Codes of a topic that is gone, or that was just made and a broker doesn't know yet."""

UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)
"""Codes that pass when brokers come back: calls without a transaction retry on them."""

STALE_MEMBER = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""Codes by which the group refuses a commit: abort; the membership learns the rest by itself."""

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

REFUSED_RECORD = TOO_LARGE | UNKNOWN_TOPIC | frozenset(
    {
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Codes by which the broker, or the client at once, refuses a record for good; others may pass."""

REFUSED_BATCH = TOO_LARGE | frozenset(
    {
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Codes of a batch that is refused for one of its records. The broker doesn't always name the record: the others may
have the same code."""

REFUSED_TOPIC = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN,
    }
)
"""Codes that aren't about one record: no handler is asked about them, as in Kafka Streams."""

PASSING_DELIVERY = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""Codes of a record that the client has given up after `message.timeout.ms`, and that may succeed when resent."""

UNDELIVERED = frozenset({KafkaError._TIMED_OUT, KafkaError._INCONSISTENT})
"""Codes of a transaction some of whose records had no answer in time, or failed by their delivery reports."""

PENDING = frozenset(
    {
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._WAIT_CACHE,
        KafkaError._NOENT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_CONTROLLER,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes of an answer that Kafka can't give yet: a transaction pends on the offsets, a leader or the controller moves, a
quota is used up."""


_FORBIDDEN = frozenset({KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


def refuse_forbidden_id(transactional_id: str, exception: KafkaException) -> None:
    """Raise `SecurityError` if the principal may not use the transactional id."""
    error = error_of(exception)
    if error is not None and error.code() in _FORBIDDEN:
        raise SecurityError(
            f"this principal may not use the transactional id {transactional_id}: {error}; grant it WRITE on the "
            "transactional ids that begin with application_id (docs/rights.md)"
        ) from exception


def error_of(exception: BaseException) -> KafkaError | None:
    """The `KafkaError` inside an exception of confluent-kafka, None when there is none."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    return None


def classify(exception: BaseException) -> ErrorClass:
    """The class of an error that a producer call raised."""
    error = error_of(exception)
    if error is None or error.fatal():
        return ErrorClass.FATAL
    if error.txn_requires_abort() or error.code() in STALE_MEMBER:
        return ErrorClass.ABORTABLE
    if error.retriable() or error.code() in UNREACHABLE:
        return ErrorClass.RETRIABLE
    return ErrorClass.FATAL


def is_retriable(exception: BaseException) -> bool:
    """True if a producer call is to be made again as it was."""
    return classify(exception) is ErrorClass.RETRIABLE


def is_undelivered(exception: BaseException) -> bool:
    """True if a transaction failed because records of it weren't delivered in time, or at all. The client doesn't say
    which."""
    error = error_of(exception)
    return error is not None and error.txn_requires_abort() and error.code() in UNDELIVERED


def is_fenced(exception: BaseException) -> bool:
    """True if the producer is dead because its transaction timed out or its id was taken over: one code for both."""
    error = error_of(exception)
    return error is not None and error.code() == KafkaError._FENCED


def is_stale_member(exception: BaseException) -> bool:
    """True if a transactional call was refused because the membership or its generation is over."""
    error = error_of(exception)
    return error is not None and error.code() in STALE_MEMBER


def may_succeed_later(error: KafkaError) -> bool:
    """True if an output with this delivery error may be taken when it is produced again."""
    return error.retriable() or error.code() in UNREACHABLE | PASSING_DELIVERY


def is_passing(exception: BaseException) -> bool:
    """True if a non-transactional call (metadata, offsets, committed) may succeed when it is made again."""
    error = error_of(exception)
    return error is not None and not error.fatal() and (error.retriable() or error.code() in UNREACHABLE | PENDING)


def caught(call: Callable[[], object], *kinds: type[E]) -> E | None:
    """The error of these kinds that `call` raises, returned outside of an `except` block; None without one.

    A client's calls in answer to an error are made outside of `except`: confluent-kafka 2.16 never frees an error that
    one of its calls raises, and such an error keeps, as its context, the exception that is being handled, with all
    objects of that one's frames: tasks, stores and buffers of a thread.
    """
    try:
        call()
    except kinds as error:
        return error
    return None
