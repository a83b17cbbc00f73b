"""The one way into Kafka: a producer that sends tasks' outputs, with or without transactions.

| | at least once | exactly once |
|---|---|---|
| an output that is lost | is reported, each one | fails the transaction |
| the offset after a changelog's last record | the partition's end, once all is flushed | its report |

A report of each output that was taken would cost a twentieth of all that is done for a record, and the client can't be
told to report errors and some successes. The end may lie behind records of somebody who has lost the partition and
doesn't know yet. The store is without them, as it is without those that he wrote before our last one.

*Guarantees*: one owner thread, checked once per call; outputs of one partition keep their order; no output is lost
silently, and one that is refused takes no other with it. `close` takes no longer than it is told to.
*Assumes*: `partitioner=murmur2_random` in the settings, so that partition -1 means Kafka's own partitioning; records
are as `common.writable` asks for, so that they are read back as they were sent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from milestones.common.clock import Clock, Standstill, SystemClock
from milestones.common.errors import ProductionError
from milestones.common.kafka.begun_calls import BegunCalls
from milestones.common.kafka.blocking_call import LateError
from milestones.common.kafka.clients import client_log
from milestones.common.kafka.failures import (
    REFUSED_RECORD,
    REFUSED_TOPIC,
    REFUSED_WITH_ANOTHER,
    TOO_LARGE,
    UNKNOWN_TOPIC,
    error_of,
    is_passing,
)
from milestones.common.kafka.outputs import last_of_changelogs, reported, unwritable, why_full
from milestones.common.kafka.producer_log import ProducerWatch, watched
from milestones.common.kafka.topics import Cluster
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition

log = logging.getLogger(__name__)

BY_SIZE = (
    "a broker that finds a record too large refuses the whole batch it is in, the small ones too. To have the handler "
    "decide about single records, set producer_message_max_bytes to 200 less than the topic's max.message.bytes: then "
    "batches are small enough, and a record that is too large is refused by the client before it is sent"
)
"""What to do about a topic that takes less than the client sends."""

REFUSED_IN_TRANSACTION = (
    "Under exactly_once_v2 a record that the broker refuses fails its whole transaction, whatever "
    "production_exception_handler says, and it would again: mend the cause (size limits, rights, the topic)"
)


class RefusedInTransactionError(ProductionError):
    """The broker refused a record of a transaction. `single`: a producer of batches of one record could tell which
    record it was; False: the error is about a topic. `unknown_topic`: the broker doesn't know the topic, or not yet."""

    def __init__(self, message: str, *, single: bool, unknown_topic: bool = False) -> None:
        super().__init__(message)
        self.single, self.unknown_topic = single, unknown_topic


CLOSE_TIMEOUT_MS = 10_000
"""librdkafka's close aborts an open transaction, and waits for a broker to take that: for ever if there is none."""

MOST_POLLS = 100
"""When a producer is closed."""

LOOK_MS = 100
"""How long a flush waits until it looks whether the transaction has failed meanwhile."""

ROOM_POLL_S = 0.05
"""How long is waited for room before it is looked for again."""

CONNECTED_S = 1.0
"""How long a first connection is waited for: without one librdkafka asks for a coordinator only half a second later."""

TRANSACTIONS = "__transaction_state"

ONLY_PRODUCERS = frozenset({"acks", "enable.idempotence", "partitioner"})
"""Settings that mean nothing to the client that asks for ends, or cost it something."""

ASSUMED = (
    "records were taken for written, as later ones of their partition were, though Kafka may have refused them; they "
    "are made again"
)
"""Of what `ProducerWatch` saw."""

Report = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True)
class Refused:
    """An output that wasn't taken: by the client itself, at once (`sent` is False), or by Kafka, as the delivery report
    tells: outside of transactions, or of a producer that `one_record_per_batch`. Only from the latter it is known as a
    whole: a report of an error lacks node, headers and timestamp."""

    task: TaskId
    error: KafkaError
    output: Output
    dead_letter: bool = False
    sent: bool = False


class OutputProducer(BegunCalls):
    """A confluent-kafka producer for the outputs of tasks.

    `settings` with a `transactional.id` make it transactional. `acknowledged` holds, by changelog partition, the
    offset after the last record that Kafka acknowledged, complete after a `flush`; `refused` the outputs that weren't
    taken, and, outside of transactions, those that another one of their batch was refused with. Both are filled by
    `send`, `poll` and `flush`, in the owner's thread. `one_record_per_batch`: `refused` has only what was refused
    itself, of transactions too; each output is sent alone, as a broker that refuses one refuses the batch it is in:
    very slow. `letters`: a user's dead letters that wait for room, by task: those of a transaction end with it.
    """

    def __init__(
        self, settings: Mapping[str, Any], clock: Clock | None = None, *, one_record_per_batch: bool = False
    ) -> None:
        super().__init__("producer-transactions", when_late=self._let_go)
        self._clock = clock or SystemClock()
        self._standstill = Standstill(self._clock)
        self.transactional = "transactional.id" in settings
        reports = {"delivery.report.only.error": not self.transactional}
        self._watch = ProducerWatch(client_log, everything="debug" in settings)
        self.one_record_per_batch = one_record_per_batch
        alone = {"batch.num.messages": 1} if one_record_per_batch else {}
        self._producer = Producer({**watched(settings), **reports, **alone}, logger=self._watch)
        self._settings = {key: value for key, value in settings.items() if key not in ONLY_PRODUCERS}
        self._cluster: Cluster | None = None
        self._logged: set[TopicPartition] = set()
        self.in_transaction = self._spoilt = self._has_offsets = self._closed = False
        self._began_ms = 0
        self.acknowledged: dict[TopicPartition, int] = {}
        self.refused: list[Refused] = []
        self.letters: dict[TaskId, Sequence[Emitted]] = {}
        self._reports: dict[tuple[TaskId, bool], tuple[Report, Callable[..., None]]] = {}

    @property
    def disconnected(self) -> bool:
        """Whether a connection has broken since the producer was made, as far as it was polled. The answer to the end
        of a transaction may have been lost then, and the end sent again: what was sent first may still arrive, and end
        the next transaction of this producer."""
        return self._watch.lost

    def send(
        self,
        task: TaskId,
        outputs: Sequence[Emitted],
        changelogs: Collection[str] = (),
        *,
        dead_letters: bool = False,
        wait_ms: int = 0,
        check: Callable[[], None] | None = None,
    ) -> Sequence[Emitted]:
        """Hand `outputs` to the client, in order; begins the transaction when there is none. What the client refuses
        (too large, say) is left out and goes to `refused`. While the client's queue is full it waits, for `wait_ms` at
        most in all, then gives back what there was no room for. Raises as `commit` when the transaction has failed,
        and what `check` raises, which is called after each wait."""
        self.begin()
        produce = self._producer.produce
        acknowledge, refuse = self._reports_of(task, dead_letters)
        reports: list[Report | None] = [None if self.transactional else refuse] * len(outputs)
        if self.one_record_per_batch:
            reports = [partial(refuse, output=Output(*output)) for output in outputs]
        for index in last_of_changelogs(outputs, changelogs):
            if self.transactional:
                reports[index] = acknowledge
            else:
                self._logged.add(TopicPartition(*outputs[index][:2]))
        until_ms: int | None = None
        for index, (output, on_delivery) in enumerate(zip(outputs, reports, strict=True)):
            topic, partition, key, value, timestamp, headers, _ = output
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery, None, timestamp, headers)  # type: ignore[arg-type]
                    break
                except BufferError:
                    pass  # nothing is asked of the client in here: see `failures.caught`
                except KafkaException as exception:
                    self.refused.append(Refused(task, self._refusal(exception), Output(*output), dead_letters))
                    break
                except (TypeError, ValueError, OverflowError) as error:
                    raise unwritable(task, Output(*output), error) from error
                now_ms = self._clock.monotonic_ms()
                until_ms = now_ms + wait_ms if until_ms is None else until_ms
                if now_ms >= until_ms:
                    return outputs[index:]
                with self._waiting():
                    self._producer.poll(ROOM_POLL_S)
                if check is not None:
                    check()
        return ()

    def _refusal(self, exception: KafkaException) -> KafkaError:
        """Why the client refuses one output; raises when it's more than that output."""
        error = error_of(exception)
        if error is not None and error.code() in REFUSED_RECORD | REFUSED_TOPIC:
            return error
        if self.in_transaction and error is not None and error.code() in (KafkaError._STATE, KafkaError._FATAL):
            # The transaction has failed. Only another transactional call names the cause; none can succeed now.
            with self._explained():
                self.commit(timeout_ms=10_000)
        raise exception

    def _reports_of(self, task: TaskId, dead_letters: bool) -> tuple[Report, Callable[..., None]]:
        """Two delivery reports of a task: of a transaction's last record of a changelog, that notes its offset, and of
        all outputs without one, or when they are told apart. What a transaction loses makes it fail as a whole."""
        if (task, dead_letters) not in self._reports:

            def refuse(error: KafkaError | None, message: Message, output: Output | None = None) -> None:
                self._spoilt |= self.transactional and error is not None
                if error is not None and not (self.transactional and error.code() in REFUSED_WITH_ANOTHER):
                    refused = output or reported(message)
                    self.refused.append(Refused(task, error, refused, dead_letters, sent=True))

            def acknowledge(error: KafkaError | None, message: Message) -> None:
                self._spoilt |= self.transactional and error is not None
                if error is None:
                    at = TopicPartition(message.topic() or "", message.partition() or 0)
                    self.acknowledged[at] = (message.offset() or 0) + 1

            self._reports[task, dead_letters] = acknowledge, refuse
        return self._reports[task, dead_letters]

    def why_full(self, topics: Collection[str]) -> str:
        """What keeps outputs for these topics waiting, as far as Kafka can be asked within `WHY_S`."""
        self._check_free()
        with self._waiting():
            return f"{len(self._producer)} records wait in the client; {why_full(self._producer, topics)}"

    @property
    def unacknowledged(self) -> int:
        """Records that wait for their answer, or for being sent."""
        return len(self._producer)

    def let_go(self, tasks: Collection[TaskId]) -> None:
        """Forget all tasks but these. What is still reported of one that has left is noted all the same."""
        self._reports = {key: reports for key, reports in self._reports.items() if key[0] in tasks}

    def poll(self) -> None:
        """Serve delivery reports. Raises the fatal error of a dead producer."""
        self._check_free()
        self._producer.poll(0)

    def flush(self, timeout_ms: int) -> None:
        """As `begin_flush`, and wait for it."""
        self.begin_flush(timeout_ms)
        self._finish(timeout_ms)

    def begin_flush(self, timeout_ms: int) -> None:
        """It is over when all that was sent is acknowledged or refused, and the offsets are known. A passing
        `KafkaException` when time is up, an abortable one when nobody knows whether all of it was written. The request
        for the ends of changelogs, without transactions, is waited for."""
        self._check_free()
        until_ms = self._clock.monotonic_ms() + timeout_ms
        self._look = lambda wait_ms: self._flushed(wait_ms, until_ms, timeout_ms)

    def _flushed(self, wait_ms: int, until_ms: int, timeout_ms: int) -> bool:
        try:
            left = self._flush(max(0, min(wait_ms, until_ms - self._clock.monotonic_ms())))
        except SystemError as exception:
            # A fenced producer raises this from a flush with reports; the next transaction call names the cause.
            log.debug("flush: %s", exception)
            left = 0 if self.transactional else len(self._producer)
        if left:
            if self._clock.monotonic_ms() < until_ms:
                return False
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records weren't acknowledged in time"))
        if self._watch.assumed:
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, ASSUMED, False, False, True))
        if self._logged:
            self._ask_for_ends(timeout_ms)
        return True

    def _flush(self, timeout_ms: int) -> int:
        """How many records are left that wait for an answer. A transaction that a record has failed isn't waited for:
        the client sends nothing more of it, and the commit will say why."""
        left = 0
        for _ in range(max(1, math.ceil(timeout_ms / LOOK_MS))):
            left = self._producer.flush(min(timeout_ms, LOOK_MS) / 1000)
            if not left or self._spoilt:
                return 0
        return left

    def _ask_for_ends(self, timeout_ms: int) -> None:
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        try:
            self.acknowledged.update(self._cluster.ends(self._logged, timeout_ms))
        except KafkaException as exception:
            if not is_passing(exception):
                raise
            what = f"the ends of changelogs aren't known yet: {exception}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, what)) from exception
        self._logged.clear()

    def init_transactions(self, timeout_ms: int) -> None:
        """Fence every earlier producer of this transactional id; what it left open is aborted."""
        self._check_free()
        self._call(lambda: self._init_transactions(timeout_ms / 1000), timeout_ms)

    def _init_transactions(self, timeout_s: float) -> None:
        with suppress(KafkaException):
            self._producer.list_topics(TRANSACTIONS, timeout=min(CONNECTED_S, timeout_s))
        self._producer.init_transactions(timeout_s)

    def begin(self) -> None:
        """Open a transaction, unless one is open or the producer has none."""
        self._check_free()
        if self._call_thread.late:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the producer hung in a transactional call", True))
        if self.transactional and not self.in_transaction:
            self._producer.begin_transaction()
            self.in_transaction, self._began_ms = True, self._time_ms()
            self._spoilt = self._has_offsets = self._watch.assumed = False

    def age_ms(self) -> int | None:
        """How long the transaction has been open; None when there is none. Kafka counts from later on, and while this
        machine stands still, too."""
        return self._time_ms() - self._began_ms if self.in_transaction else None

    def _time_ms(self) -> int:
        return self._clock.monotonic_ms() + self._standstill.ms()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """As `begin_send_offsets`, and wait for it."""
        self.begin_send_offsets(offsets, group_metadata, timeout_ms)
        self._finish(timeout_ms)

    def begin_send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """Put the offsets into the transaction, for the member and generation that `group_metadata` names.
        `ProductionError` when Kafka refused one of its records, and would again; `KafkaException` of the classes in
        `failures`."""
        positions = [Position(t, p, at.offset, at.metadata) for (t, p), at in offsets.items()]
        seconds = timeout_ms / 1000
        self._begin_call(
            lambda: self._producer.send_offsets_to_transaction(positions, group_metadata, seconds),
            timeout_ms, self._explained, self._offsets_are_in,
        )  # fmt: skip

    def _offsets_are_in(self) -> None:
        self._has_offsets = True

    def commit(self, timeout_ms: int) -> None:
        """As `begin_commit`, and wait for it."""
        self.begin_commit(timeout_ms)
        self._finish(timeout_ms)

    def begin_commit(self, timeout_ms: int) -> None:
        """Commit the open transaction. Errors as of `send_offsets`; once that has succeeded Kafka has taken all records
        that were flushed, so no error of the end itself is taken for the refusal of one."""
        explained = nullcontext if self._has_offsets else self._explained
        self._begin_call(
            lambda: self._producer.commit_transaction(timeout_ms / 1000), timeout_ms, explained, self._transaction_ended
        )

    def _transaction_ended(self) -> None:
        self.in_transaction = False

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            error = error_of(exception)
            if error is not None and error.txn_requires_abort() and error.code() in REFUSED_RECORD | REFUSED_TOPIC:
                advice = f"; {BY_SIZE}" if error.code() in TOO_LARGE else ""
                single, unknown = error.code() in REFUSED_RECORD, error.code() in UNKNOWN_TOPIC
                raise RefusedInTransactionError(
                    f"{error.str()}. {REFUSED_IN_TRANSACTION}{advice}", single=single, unknown_topic=unknown
                ) from exception
            raise

    def abort(self, timeout_ms: int) -> None:
        """End the open transaction, if there is one; none of its records will be read."""
        self._check_free()
        if self.in_transaction:
            self._call(lambda: self._producer.abort_transaction(timeout_ms / 1000), timeout_ms)
            self.in_transaction = False
        self.acknowledged.clear()
        self.refused.clear()
        self.letters.clear()
        self._logged.clear()

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Drop what wasn't sent, abort an open transaction, let the client go. One that hangs is left to close by
        itself, should it ever return; a call that is under way is waited for. Harmless when repeated."""
        self._check_owner()
        if self._closed:
            return
        self._closed = True
        self._cluster = None
        until_ms = self._clock.monotonic_ms() + timeout_ms
        self._wait_for_call(timeout_ms)
        if self._call_thread.late:
            log.warning("a producer hangs in a transactional call and is left behind; its successor fences it")
            return
        self._producer.purge()
        self._serve_the_rest()
        try:
            self._call_thread.call(self._let_go, max(1, until_ms - self._clock.monotonic_ms()))
        except LateError:
            log.info("a producer didn't close within %d ms: it ends once a broker answers", timeout_ms)
        self._call_thread.close()

    def _serve_the_rest(self) -> None:
        """Reports that were never served are never let go by the client, nor is what they know: this producer. Each
        call serves some, and may raise that the producer is dead."""
        for _ in range(MOST_POLLS):
            served = 1
            with suppress(KafkaException, SystemError):
                served = self._producer.poll(0)
            if not served:
                return

    def _let_go(self) -> None:
        """Called by the caller's thread; a fenced producer raises at its close, and is closed then all the same."""
        try:
            self._producer.close()
        except (KafkaException, RuntimeError, SystemError) as error:
            log.debug("producer close: %s", error)


def can_start_another_transaction(producer: OutputProducer) -> bool:
    """Whether it may make a further transaction, as far as it knows when it is polled now: it lives, and has lost no
    connection (`disconnected`)."""
    try:
        producer.poll()
    except (KafkaException, SystemError):
        return False
    return not producer.disconnected
