"""Sorts the errors of Kafka clients by what the runtime does about them.

*Guarantees*: `classify` puts every error into exactly one class.
*Assumes*: librdkafka's own marks (`fatal`, `txn_requires_abort`, `retriable`) are right. An error of a transactional
call without any of these marks counts as fatal, as librdkafka's INTRODUCTION.md demands.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import SecurityError

E = TypeVar("E", bound=BaseException)


class ErrorClass(enum.Enum):
    """The three classes of a transactional producer's errors, as in KIP-691."""

    RETRIABLE = "repeat the same call, until task_timeout_ms"
    ABORTABLE = "abort the transaction, keep the producer"
    FATAL = "the producer is dead"


UNKNOWN_TOPIC = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
"""Codes of a topic that was deleted, or that is so new that the broker doesn't know it yet."""

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
"""Codes of errors that pass when the brokers are back. Calls outside of a transaction are repeated after them."""

STALE_MEMBER = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""Codes with which the group refuses the commit of a member whose generation is over. The transaction is aborted. The
group member finds out by itself why its generation is over."""

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

REFUSED_RECORD = TOO_LARGE | UNKNOWN_TOPIC | frozenset(
    {
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Codes with which the broker, or the client before it sends, refuses a record for ever. With other codes the record
may be accepted later."""

REFUSED_BATCH = TOO_LARGE | frozenset(
    {
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Codes of a batch that is refused because of one of its records. The broker doesn't always name this record. Then all
records of the batch may be reported with the same code."""

REFUSED_TOPIC = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN,
    }
)
"""Codes of errors that concern a whole topic. As in Kafka Streams, `production_exception_handler` isn't asked about
them."""

PASSING_DELIVERY = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""Codes of a record that the client has stopped sending, for example after `message.timeout.ms`. It may succeed when it
is resent."""

UNDELIVERED = frozenset({KafkaError._TIMED_OUT, KafkaError._INCONSISTENT})
"""Codes of a failed transaction in which some records got no answer in time, or were reported as failed."""

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
"""Codes of a question that Kafka can't answer yet. A transaction on the offsets is still open, a leader or the
controller is changing, or a quota is used up."""


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
    """Returns the `KafkaError` inside an exception of confluent-kafka, or None if the exception has none."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    return None


def classify(exception: BaseException) -> ErrorClass:
    """Returns the class of an error that a producer call raised."""
    error = error_of(exception)
    if error is None or error.fatal():
        return ErrorClass.FATAL
    if error.txn_requires_abort() or error.code() in STALE_MEMBER:
        return ErrorClass.ABORTABLE
    if error.retriable() or error.code() in UNREACHABLE:
        return ErrorClass.RETRIABLE
    return ErrorClass.FATAL


def is_retriable(exception: BaseException) -> bool:
    """True if the same producer call must be repeated."""
    return classify(exception) is ErrorClass.RETRIABLE


def is_undelivered(exception: BaseException) -> bool:
    """True if a transaction failed because some of its records weren't delivered. The client doesn't name these
    records."""
    error = error_of(exception)
    return error is not None and error.txn_requires_abort() and error.code() in UNDELIVERED


def is_fenced(exception: BaseException) -> bool:
    """True if the producer can't be used any more because its transaction timed out, or because another producer uses
    its transactional id. Kafka has the same code for both."""
    error = error_of(exception)
    return error is not None and error.code() == KafkaError._FENCED


def is_stale_member(exception: BaseException) -> bool:
    """True if Kafka refused a transactional call because the member has left the group, or its generation is over."""
    error = error_of(exception)
    return error is not None and error.code() in STALE_MEMBER


def may_succeed_later(error: KafkaError) -> bool:
    """True if Kafka may accept the output when it is produced a second time."""
    return error.retriable() or error.code() in UNREACHABLE | PASSING_DELIVERY


def is_passing(exception: BaseException) -> bool:
    """True if the same call may succeed later. For calls outside of transactions: metadata, offsets, committed."""
    error = error_of(exception)
    return error is not None and not error.fatal() and (error.retriable() or error.code() in UNREACHABLE | PENDING)


def caught(call: Callable[[], object], *kinds: type[E]) -> E | None:
    """Call `call`, and return the error if it raises one of these kinds. Returns None without an error.

    Code that calls a client in reaction to an error must not do so inside an `except` block. confluent-kafka 2.16 never
    frees an error that one of its calls raises. Inside an `except` block such an error would keep the exception being
    handled alive, as its context, with all objects of that exception's frames: tasks, stores and buffers of a thread.
    """
    try:
        call()
    except kinds as error:
        return error
    return None
