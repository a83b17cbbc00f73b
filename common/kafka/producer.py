"""The one way into Kafka: a producer that sends tasks' outputs, with or without transactions.

| | at least once | exactly once |
|---|---|---|
| an output that is lost | is reported, each one | fails the transaction |
| the offset after a changelog's last record | the partition's end, once all is flushed | its report |

*Why this way*: a report of each acknowledged output would cost a twentieth of all work for a record, and the client
can't report errors and only some successes. Under at-least-once the end offset may include records of a zombie, which
has lost the partition and doesn't know it yet. The store lacks these records, as it lacks a zombie's earlier ones.

*Guarantees*: one owner thread, checked once per call. Outputs of one partition keep their order. No output is lost
silently, and a refused one takes no other with it. `close` takes at most `timeout_ms`.
*Assumes*: `partitioner=murmur2_random` in the settings, so that partition -1 means Kafka's own partitioning; records
are as `common.writable` asks for, so that they are read back as they were sent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from milestones.common.clock import Clock, Standstill, SystemClock
from milestones.common.dead_letters import smaller
from milestones.common.errors import ProductionError
from milestones.common.kafka.admin import Admin
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.begun_calls import BegunCalls
from milestones.common.kafka.blocking_call import LateError
from milestones.common.kafka.changelog_ends import ChangelogEnds, unknown
from milestones.common.kafka.clients import client_log
from milestones.common.kafka.failures import REFUSED_RECORD, REFUSED_TOPIC, TOO_LARGE, caught, error_of
from milestones.common.kafka.outputs import WhyFull, last_of_changelogs, reported, unwritable, why_full
from milestones.common.kafka.producer_log import ProducerWatch, watched
from milestones.common.kafka.refusals import Refused, RefusedInTransactionError, refusals_explained
from milestones.common.kafka.transaction_offsets import TransactionOffsets
from milestones.common.records import Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition
from milestones.common.steps import Steps, to_the_end, until_returned

log: Final = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 10_000
"""The longest wait for a close: librdkafka aborts an open transaction then, and waits for a broker's answer for
ever."""

MOST_POLLS = 100
"""When a producer is closed."""

LOOK_MS = 100
"""The time between two looks of a flush whether the transaction has failed."""

ROOM_POLL_S = 0.05
"""The time between two looks for room in the client."""

REPORTED_MS = 1_000
"""The longest wait for the reports of a batch that was refused."""

CONNECTED_S = 1.0
"""The longest wait for a first connection: without one librdkafka asks for a coordinator half a second later."""

TRANSACTIONS = "__transaction_state"

ASSUMED = (
    "records were taken for written, as later ones of their partition were, though Kafka may have refused them; they "
    "are made again"
)
"""The error text about records that `ProducerWatch` has found lost."""

Report = Callable[..., None]


class OutputProducer(BegunCalls):
    """A confluent-kafka producer for the outputs of tasks.

    `settings` with a `transactional.id` make the producer transactional. `acknowledged`: by changelog partition, the
    offset after the last record that Kafka acknowledged, complete after a `flush`. `refused`: the refused outputs, and,
    outside of transactions, those of the same batches. `send`, `poll` and `flush` fill both, in the owner's thread.
    `isolation`: how the producer finds out which output of a batch is refused. With it, `refused` also has outputs that
    were refused inside a transaction, and an output that was sent alone is in it without the others of a batch.
    `letters`: a user's dead letters that wait for room, by task; those of a transaction end with it, as do the
    `undecided`: refused outputs about which a user's handler is being asked. `contributors`: the tasks with outputs in
    the transaction that is open, or was last."""

    in_transaction: bool

    def __init__(
        self,
        settings: Mapping[str, Any],
        clock: Clock | None = None,
        *,
        admin: Admin | None = None,
        isolation: BatchIsolation | None = None,
    ) -> None:
        """`admin`: without transactions it is asked for the ends of changelogs."""
        super().__init__("producer-transactions", when_late=self._let_go)
        self._clock = clock or SystemClock()
        self._standstill = Standstill(self._clock)
        self.transactional: bool = "transactional.id" in settings
        reports = {"delivery.report.only.error": not self.transactional}
        self._watch = ProducerWatch(client_log, everything="debug" in settings)
        self.isolation = isolation
        small = {"batch.num.messages": isolation.most, "linger.ms": 0} if isolation else {}
        self._sent_alone = False
        self._producer = Producer({**watched(settings), **reports, **small}, logger=self._watch)
        self._ends = ChangelogEnds(admin)
        self._offsets = TransactionOffsets(settings)
        self.in_transaction = self._spoilt = self._has_offsets = self._closed = False
        self._began_ms = 0
        self.acknowledged: dict[TopicPartition, int] = {}
        self.refused: list[Refused] = []
        self.letters: dict[TaskId, Sequence[Emitted]] = {}
        self.undecided: set[Refused] = set()
        self.contributors: set[TaskId] = set()
        self._reports: dict[tuple[TaskId, bool], tuple[Report, Report]] = {}

    def _check_free(self) -> None:
        super()._check_free()
        if self._closed:
            raise KafkaException(KafkaError(KafkaError._STATE, "the producer is closed"))

    @property
    def disconnected(self) -> bool:
        """True if a connection has broken since the producer was made, by the last poll. The answer to the end of a
        transaction may have been lost then, and the end resent: the first request may still arrive, and end the
        next transaction of this producer."""
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
        """Hand `outputs` to the client, in order, in a transaction that is begun if there is none. An output that the
        client refuses (a too large one, say) goes to `refused`; of a dead letter what it says of its error is left out
        first. While the client's queue is full, waits at most `wait_ms` in all, then returns the outputs without room.
        Raises as `commit` when the transaction has failed, and
        the errors of `check`, which is called after each wait."""
        self.begin()
        self.contributors.add(task)
        produce = self._producer.produce
        reports = self._reports_for(task, outputs, changelogs, dead_letters=dead_letters)
        until_ms: int | None = None
        for index, (output, on_delivery) in enumerate(zip(outputs, reports, strict=True)):
            topic, partition, key, value, timestamp, headers, _ = output
            while True:
                try:
                    if self.isolation is None or self._may_follow(output, self.isolation):
                        produce(topic, value, key, partition, on_delivery, None, timestamp, headers)  # type: ignore[arg-type]
                        break
                except BufferError:
                    pass  # nothing is asked of the client in here: see `failures.caught`
                except KafkaException as exception:
                    refusal = self._refusal(exception)
                    if refusal.code() in TOO_LARGE and (less := smaller(headers)) is not None:
                        headers = less
                        continue
                    self.refused.append(Refused(task, refusal, Output(*output), dead_letters))
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

    def _reports_for(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str], *, dead_letters: bool
    ) -> Sequence[Report | None]:
        """The delivery reports of the outputs, one each; None where none is needed. Without transactions the ends of
        their changelogs are wanted instead."""
        acknowledge, refuse = self._reports_of(task, dead_letters)
        reports: list[Report | None] = [None if self.transactional else refuse] * len(outputs)
        for index in last_of_changelogs(outputs, changelogs):
            if self.transactional:
                reports[index] = acknowledge
            else:
                self._ends.wanted.add(TopicPartition(*outputs[index][:2]))
        if self.isolation is None:
            return reports
        told = zip(reports, outputs, strict=True)
        return [partial(report or refuse, output=Output(*output)) for report, output in told]

    def _may_follow(self, output: Emitted, isolation: BatchIsolation) -> bool:
        """True if there is room: where one of both is to be alone, once the one before is acknowledged."""
        alone = isolation.most > 1 and isolation.is_alone(output)
        if (alone or self._sent_alone) and len(self._producer):
            return False
        self._sent_alone = alone
        return True

    def _refusal(self, exception: KafkaException) -> KafkaError:
        """Why the client refuses one output; raises an error that isn't about that output alone."""
        error = error_of(exception)
        if error is not None and error.code() in REFUSED_RECORD | REFUSED_TOPIC:
            return error
        if self.in_transaction and error is not None and error.code() in (KafkaError._STATE, KafkaError._FATAL):
            # The transaction has failed. Only another transactional call names the cause; no such call can succeed.
            refused = caught(self._name_cause, RefusedInTransactionError)
            if refused is not None:
                if refused.single and self.isolation is not None:
                    self._await_refused()
                raise refused
        raise exception

    def _name_cause(self) -> None:
        with refusals_explained():
            self.commit(timeout_ms=10_000)

    def _await_refused(self) -> None:
        """A transaction is known to have failed a little before the reports come of the batch that it has failed of."""
        until_ms = self._clock.monotonic_ms() + REPORTED_MS
        while not self.refused and self._clock.monotonic_ms() < until_ms:
            self._producer.poll(ROOM_POLL_S)

    def _reports_of(self, task: TaskId, dead_letters: bool) -> tuple[Report, Report]:
        """Two delivery reports of a task: one for a transaction's last record of a changelog, which notes the offset,
        and one for all outputs without transactions, or that are told apart. A record that a transaction loses makes
        the transaction fail; only one that is refused for good is told."""
        if (task, dead_letters) not in self._reports:

            def refuse(error: KafkaError | None, message: Message, output: Output | None = None) -> None:
                self._spoilt |= self.transactional and error is not None
                if error is not None and (not self.transactional or error.code() in REFUSED_RECORD | REFUSED_TOPIC):
                    refused = output or reported(message)
                    self.refused.append(Refused(task, error, refused, dead_letters, sent=True))

            def acknowledge(error: KafkaError | None, message: Message, output: Output | None = None) -> None:
                self._spoilt |= error is not None
                if output is not None:
                    refuse(error, message, output)
                if error is None:
                    at = TopicPartition(message.topic() or "", message.partition() or 0)
                    self.acknowledged[at] = (message.offset() or 0) + 1

            self._reports[task, dead_letters] = acknowledge, refuse
        return self._reports[task, dead_letters]

    def why_full(self, topics: Collection[str]) -> WhyFull:
        """Why outputs for these topics wait, as far as Kafka says within `WHY_S`."""
        self._check_free()
        with self._waiting():
            why = why_full(self._producer, topics)
            return why._replace(text=f"{len(self._producer)} records wait in the client; {why.text}")

    @property
    def unacknowledged(self) -> int:
        """The number of records that wait to be sent or acknowledged."""
        return len(self._producer)

    def let_go(self, tasks: Collection[TaskId]) -> None:
        """Forget all tasks but these. Later reports of a forgotten task are noted all the same."""
        self._reports = {key: reports for key, reports in self._reports.items() if key[0] in tasks}

    def poll(self) -> None:
        """Serve delivery reports. Raises the fatal error of a dead producer."""
        self._check_free()
        self._producer.poll(0)

    def flush(self, timeout_ms: int) -> None:
        """Do `begin_flush`, and wait for the answers."""
        self.begin_flush(timeout_ms)
        self._finish(timeout_ms)

    def begin_flush(self, timeout_ms: int) -> None:
        """Begin to wait until all outputs are acknowledged or refused, and the changelogs' offsets are known. A passing
        `KafkaException` when the time is up, an abortable one when outputs may be lost."""
        self._check_free()
        until_ms = self._clock.monotonic_ms() + timeout_ms
        self._look = lambda wait_ms: self._flushed(wait_ms, until_ms, timeout_ms)

    def _flushed(self, wait_ms: int, until_ms: int, timeout_ms: int) -> bool:
        began_ms = self._clock.monotonic_ms()
        try:
            left = self._flush(max(1, min(wait_ms, until_ms - began_ms)))  # while it lasts nothing lingers
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
        if not self._ends.ask(timeout_ms):
            return True
        now_ms = self._clock.monotonic_ms()
        self._look = lambda wait_ms: self._ends_told(wait_ms, now_ms + timeout_ms)
        return self._look(wait_ms - (now_ms - began_ms))

    def _ends_told(self, wait_ms: int, until_ms: int) -> bool:
        left_ms = until_ms - self._clock.monotonic_ms()
        ends = self._ends.told(min(wait_ms, left_ms))
        if ends is not None:
            self.acknowledged.update(ends)
            return True
        if self._clock.monotonic_ms() < until_ms:
            return False
        raise unknown("no answer in time")

    def _flush(self, timeout_ms: int) -> int:
        """Flush, and return the number of unacknowledged records. A failed transaction isn't waited for: the client
        sends none of its other records, and the commit names the cause."""
        left = 0
        for _ in range(max(1, math.ceil(timeout_ms / LOOK_MS))):
            left = self._producer.flush(min(timeout_ms, LOOK_MS) / 1000)
            if not left or self._spoilt:
                return 0
        return left

    def begin_init_transactions(self, timeout_ms: int) -> None:
        """Begin to fence every earlier producer of this transactional id; its open transaction is aborted."""
        self._begin_call(lambda: self._init_transactions(timeout_ms / 1000), timeout_ms)

    def init_transactions(self, timeout_ms: int) -> None:
        """Do `begin_init_transactions`, and wait for the answer."""
        self.begin_init_transactions(timeout_ms)
        self._finish(timeout_ms)

    def _init_transactions(self, timeout_s: float) -> None:
        with suppress(KafkaException):
            self._producer.list_topics(TRANSACTIONS, timeout=min(CONNECTED_S, timeout_s))
        self._producer.init_transactions(timeout_s)

    def begin(self) -> None:
        """Open a transaction, unless one is open or the producer isn't transactional."""
        self._check_free()
        if self._call_thread.late:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the producer hung in a transactional call", True))
        if self.transactional and not self.in_transaction:
            self._producer.begin_transaction()
            self.in_transaction, self._began_ms = True, self._time_ms()
            self._spoilt = self._has_offsets = self._watch.assumed = False
            self.contributors.clear()

    def age_ms(self) -> int | None:
        """The time for which the transaction has been open; None without one. Kafka begins to count later, and counts
        while this machine stands still, too."""
        return self._time_ms() - self._began_ms if self.in_transaction else None

    def _time_ms(self) -> int:
        return self._clock.monotonic_ms() + self._standstill.ms()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """Do `begin_send_offsets`, and wait for the answer."""
        self.begin_send_offsets(offsets, group_metadata, timeout_ms)
        self._finish(timeout_ms)

    def begin_send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """Begin to put the offsets into the transaction, for the member and generation in `group_metadata`.
        Raises `ProductionError` if Kafka refused one of the transaction's records for good; `KafkaException` of the
        classes in `failures`."""
        self._check_free()
        self._producer.poll(0)  # for what the client's log says of its identity
        put_in = partial(self._put_in, offsets, group_metadata, timeout_ms)
        self._begin_call(put_in, timeout_ms, self._offsets_are_in, refusals_explained)

    def _put_in(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """Twice, as `TransactionOffsets` says: it puts in the metadata."""
        until_ms = self._clock.monotonic_ms() + timeout_ms
        positions = [Position(topic, partition, at.offset) for (topic, partition), at in offsets.items()]
        self._producer.send_offsets_to_transaction(positions, group_metadata, timeout_ms / 1000)
        if self._watch.identity is None:
            raise ProductionError(
                "this confluent-kafka doesn't log its producer id as milestones reads it; install a version that "
                "milestones supports (2.16)"
            )
        left_ms = max(0, until_ms - self._clock.monotonic_ms())
        self._offsets.send(offsets, group_metadata, self._watch.identity, left_ms)

    def _offsets_are_in(self) -> None:
        self._has_offsets = True

    def commit(self, timeout_ms: int) -> None:
        """Do `begin_commit`, and wait for the answer."""
        self.begin_commit(timeout_ms)
        self._finish(timeout_ms)

    def begin_commit(self, timeout_ms: int) -> None:
        """Begin to commit the open transaction. Errors: as in `send_offsets`. After `send_offsets` Kafka has taken all
        flushed records, so no error of the commit itself counts as the refusal of a record."""
        explained = nullcontext if self._has_offsets else refusals_explained
        self._begin_call(
            lambda: self._producer.commit_transaction(timeout_ms / 1000), timeout_ms, self._transaction_ended, explained
        )

    def _transaction_ended(self) -> None:
        self.in_transaction = False

    def abort(self, timeout_ms: int) -> None:
        """Do `begin_abort`, and wait for the answer."""
        self.begin_abort(timeout_ms)
        self._finish(timeout_ms)

    def begin_abort(self, timeout_ms: int) -> None:
        """Begin to abort the open transaction, if there is one, and forget what was noted about its outputs."""
        self._check_free()
        if self.in_transaction:
            self._begin_call(lambda: self._producer.abort_transaction(timeout_ms / 1000), timeout_ms, self._aborted)
        else:
            self._aborted()
            self._look = lambda _: True

    def _aborted(self) -> None:
        self.in_transaction = False
        self.acknowledged.clear()
        self.refused.clear()
        self.letters.clear()
        self.undecided.clear()
        self._ends.clear()

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Take all steps of `closing` at once."""
        to_the_end(self.closing(timeout_ms))

    def closing(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> Steps[None]:
        """Drop unsent outputs, abort an open transaction, close the client, in steps. A call under way is waited for; a
        client that hangs is left to close by itself. Harmless when repeated."""
        self._check_owner()
        if self._closed:
            return
        self._closed = True
        until_ms = self._clock.monotonic_ms() + timeout_ms
        yield from self._call_over(lambda: until_ms - self._clock.monotonic_ms())
        if self._call_thread.late:
            log.warning("a producer hangs in a transactional call and is left behind; its successor fences it")
            return
        self._producer.purge()
        self._serve_the_rest()
        self._call_thread.begin(self._let_go, max(1, until_ms - self._clock.monotonic_ms()))
        try:
            yield from until_returned(self._call_thread.returned)
        except LateError:
            log.info("a producer didn't close within %d ms: it ends once a broker answers", timeout_ms)
        finally:
            self._call_thread.close()

    def _serve_the_rest(self) -> None:
        """Serve all delivery reports: the client never frees unserved ones, which refer to this producer
        (confluent-kafka 2.16). Each poll serves some, and may raise the fatal error of a dead producer."""
        for _ in range(MOST_POLLS):
            served = 1
            with suppress(KafkaException, SystemError):
                served = self._producer.poll(0)
            if not served:
                return

    def _let_go(self) -> None:
        """Close the client, in the call's thread; a fenced producer raises at its close, and is closed all the same."""
        self._offsets.close()
        try:
            self._producer.close()
        except (KafkaException, RuntimeError, SystemError) as error:
            log.debug("producer close: %s", error)


def can_start_another_transaction(producer: OutputProducer) -> bool:
    """True if the producer may make a further transaction, by a poll now: it isn't dead, and has lost no connection
    (`disconnected`)."""
    try:
        producer.poll()
    except (KafkaException, SystemError):
        return False
    return not producer.disconnected
