"""The errors of the producer's client, by code and flag, with the reaction to each: one table.

`common/kafka/failures.py` sorts the same errors into three classes, for a runtime that loses its tasks with its
producer. This table also distinguishes errors that need a new producer from those that end the thread.

*Guarantees*: every error of a producer has exactly one reaction: that of the first rule with its code and its flag. If
the three classes wouldn't repeat a call, this table doesn't either.
*Assumes*: the client is librdkafka 2.16. `source` names the functions of its `rdkafka_txnmgr.c` and
`rdkafka_idempotence.c` (without `rd_kafka_`) that were read. "tried" means that the error was also provoked.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from confluent_kafka import KafkaError

from milestones.common.kafka.failures import UNREACHABLE, error_of


class ProducerReaction(enum.Enum):
    """How the runtime reacts to an error."""

    RETRY = "the same call again while there is time; then as rebuild"
    ABORT = "abort, roll back, keep the producer; rebuild when the abort fails"
    REBUILD = "a new producer; ask the group; roll back in place, or lose the tasks when the membership is over"
    FAIL = "the thread ends: no repetition helps"


class ErrorFlag(enum.Enum):
    """The client's flag of an error. An error with two flags counts as the first of them."""

    FATAL = "fatal"
    ABORTABLE = "abort"
    RETRIABLE = "retriable"
    NONE = "none"


ANY = frozenset(ErrorFlag)
INIT, BEGIN, PRODUCE, FLUSH = "init_transactions", "begin_transaction", "produce", "poll, flush"
OFFSETS, COMMIT, ABORT = "send_offsets_to_transaction", "commit_transaction", "abort_transaction"
CALLS = (INIT, BEGIN, PRODUCE, FLUSH, OFFSETS, COMMIT, ABORT)


@dataclass(frozen=True)
class ErrorRule:
    """Errors with one reaction. `codes`: no codes means every code. `calls`: the calls that can raise such an error,
    for the reader of the table."""

    reaction: ProducerReaction
    codes: tuple[str, ...]
    flags: frozenset[ErrorFlag]
    calls: tuple[str, ...]
    meaning: str
    source: str

    def has(self, name: str, flag: ErrorFlag) -> bool:
        return flag in self.flags and (not self.codes or name in self.codes)


TABLE: tuple[ErrorRule, ...] = (
    ErrorRule(
        ProducerReaction.FAIL,
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
        ANY,
        (INIT, FLUSH, OFFSETS, COMMIT, ABORT),
        "the user lacks a right",
        "idemp_check_error, txn_handle_AddPartitionsToTxn, _AddOffsetsToTxn, _TxnOffsetCommit, _EndTxn",
    ),
    ErrorRule(
        ProducerReaction.FAIL,
        (
            "INVALID_TRANSACTION_TIMEOUT",
            "UNSUPPORTED_VERSION",
            "_UNSUPPORTED_FEATURE",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        ),
        ANY,
        (INIT, OFFSETS),
        "the broker can't do it, or not for so long (transaction.max.timeout.ms)",
        "idemp_check_error, txn_handle_AddOffsetsToTxn, _TxnOffsetCommit",
    ),
    ErrorRule(
        ProducerReaction.REBUILD,
        ("_FENCED",),
        ANY,
        CALLS,
        "the transaction timed out, or another producer took the transactional id: one code for both",
        "txn_normalize_err (of INVALID_PRODUCER_EPOCH and PRODUCER_FENCED); tried",
    ),
    ErrorRule(
        ProducerReaction.REBUILD,
        ("INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"),
        ANY,
        (FLUSH, OFFSETS, COMMIT, ABORT),
        "the transactional id has expired. The client would bump its epoch in some of these calls; whether the "
        "membership holds is to be asked all the same (KAFKA-18019)",
        "txn_handle_AddPartitionsToTxn, _TxnOffsetCommit, _EndTxn; tried",
    ),
    ErrorRule(
        ProducerReaction.REBUILD,
        (),
        frozenset({ErrorFlag.FATAL}),
        CALLS,
        "INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER, a commit that the broker made and the client had given up, "
        "a call that hangs: this producer can't be used any more",
        "txn_set_fatal_error, txn_handle_EndTxn, handle_Produce_error",
    ),
    ErrorRule(
        ProducerReaction.ABORT,
        ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "REBALANCE_IN_PROGRESS"),
        ANY,
        (OFFSETS,),
        "the group has begun another generation; it is asked whether the membership holds",
        "txn_handle_TxnOffsetCommit; tried",
    ),
    ErrorRule(
        ProducerReaction.ABORT,
        (),
        frozenset({ErrorFlag.ABORTABLE}),
        (FLUSH, OFFSETS, COMMIT, ABORT),
        "a record that couldn't be delivered or may not have been written, OFFSET_METADATA_TOO_LARGE, a partition that "
        "can't be added",
        "txn_set_abortable_error, txn_op_commit_transaction; dr_implicit_ack by our watch of the log; tried",
    ),
    ErrorRule(
        ProducerReaction.RETRY,
        (),
        frozenset({ErrorFlag.RETRIABLE}),
        (INIT, FLUSH, OFFSETS, COMMIT, ABORT),
        "no answer in time, the coordinator moves or loads, an earlier transaction is still ending",
        "txn_op_req, txn_curr_api_return, txn_handle_AddOffsetsToTxn, _EndTxn; tried",
    ),
    ErrorRule(
        ProducerReaction.REBUILD,
        (),
        frozenset({ErrorFlag.NONE}),
        CALLS,
        "_STATE, _CONFLICT, _PREV_IN_PROGRESS: a producer that isn't initialised, or is still in another call",
        "txn_require_states, txn_curr_api_begin; INTRODUCTION.md, transactional producer: what has no flag is fatal",
    ),
)


def flag_of(error: KafkaError) -> ErrorFlag:
    """Return the client's flag of the error. Codes that say "broker not reachable" count as retriable in any case."""
    if error.fatal():
        return ErrorFlag.FATAL
    if error.txn_requires_abort():
        return ErrorFlag.ABORTABLE
    return ErrorFlag.RETRIABLE if error.retriable() or error.code() in UNREACHABLE else ErrorFlag.NONE


def reaction_to(exception: BaseException) -> ProducerReaction:
    """Return the reaction to this error of a producer call."""
    error = error_of(exception)
    if error is None:
        return ProducerReaction.REBUILD
    name, flag = error.name(), flag_of(error)
    return next(rule.reaction for rule in TABLE if rule.has(name, flag))


def is_retriable(exception: BaseException) -> bool:
    """Return whether the same call is repeated after this error."""
    return reaction_to(exception) is ProducerReaction.RETRY
