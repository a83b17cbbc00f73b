"""`OutputProducer`: sends the outputs of tasks to Kafka, with or without transactions.

| | `at_least_once` | `exactly_once_v2` |
|---|---|---|
| if an output is lost | the client reports this output | the transaction fails |
| the offset after a changelog's last record | is the partition's end offset after a flush | is in the delivery report |

*Why this way*: without transactions the end offset is asked for, because delivery reports of all outputs would add a
twentieth to the work for each record. The client can report errors only, or all outcomes, but not errors and some
successes. Under `at_least_once` the end offset may include records of a zombie: a member that has lost the partition
and doesn't know it yet. The store lacks these records, as it lacks the zombie's earlier ones.

*Guarantees*: one owner thread, checked once per call. Outputs of one partition keep their order. No output is lost
silently. A refused output doesn't make other outputs fail, except in a transaction. `close` takes at most `timeout_ms`.
*Assumes*: the settings contain `partitioner=murmur2_random`, so that Kafka's own partitioning is used for partition -1.
Records meet the rules of `common.writable`, so that they are read as they were sent.
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
from milestones.common.kafka.outputs import (
    Report,
    WhyFull,
    hand_over,
    last_of_changelogs,
    reported,
    unwritable,
    why_full,
    with_reports,
)
from milestones.common.kafka.producer_log import ProducerWatch, watched
from milestones.common.kafka.refusals import Refused, RefusedInTransactionError, refusals_explained
from milestones.common.kafka.transaction_offsets import TransactionOffsets
from milestones.common.records import (
    PARTITION,
    TOPIC,
    Emitted,
    OffsetAndMetadata,
    Output,
    TaskId,
    TopicPartition,
    output_of,
)
from milestones.common.steps import Steps, to_the_end, until_returned

log: Final = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 10_000
"""The longest wait for a close. At its close librdkafka aborts an open transaction, and waits for the broker's answer
for ever."""

MOST_POLLS = 100
"""The most polls with which a close serves the remaining delivery reports."""

LOOK_MS = 100
"""The time after which a flush checks if the transaction has failed."""

ROOM_POLL_S = 0.05
"""The time of one poll while `send` waits for room in the client's queue."""

REPORTED_MS = 1_000
"""The longest wait for the delivery reports of a refused batch."""

CONNECTED_S = 1.0
"""The longest wait for a first connection. If librdkafka has none, it asks for the coordinator half a second later."""

TRANSACTIONS = "__transaction_state"

ASSUMED = (
    "the client took records for written because later ones of their partition were written, though Kafka may have "
    "refused them; the records are produced once more"
)
"""The error text about records that `ProducerWatch` has found lost."""


class OutputProducer(BegunCalls):
    """A confluent-kafka producer for the outputs of tasks.

    A `transactional.id` in `settings` makes the producer transactional. `send`, `poll` and `flush` fill `acknowledged`
    and `refused`, in the owner's thread.

    `acknowledged`: for each changelog partition, the offset after the last record that Kafka acknowledged. It is
    complete after a `flush`. `refused`: the refused outputs; outside of transactions also all other outputs of a
    refused batch. `isolation`: how the producer finds the one output of a batch that Kafka refuses. With `isolation`,
    `refused` also contains outputs that were refused inside a transaction, and a refused output that was sent alone is
    its only entry for that batch.

    `letters`: dead letters of a user's handler that wait for room in the client, by task. `undecided`: refused outputs
    about which a user's handler is being asked. The end of a transaction clears `letters` and `undecided`.
    `contributors`: the tasks with outputs in the open transaction, or in the last one."""

    in_transaction: bool

    def __init__(
        self,
        settings: Mapping[str, Any],
        clock: Clock | None = None,
        *,
        admin: Admin | None = None,
        isolation: BatchIsolation | None = None,
    ) -> None:
        """`admin`: is asked for the end offsets of changelogs if the producer isn't transactional."""
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
        """True if a connection of the producer has broken, as far as its last poll has shown.

        Then the answer to the end of a transaction may have been lost, so that the client sent the request for the end
        twice. A late first request may end the next transaction of this producer."""
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
        """Hand `outputs` to the client, in order. A transactional producer begins a transaction if none is open. An
        output that the client refuses, for example a too large one, goes to `refused`. If a dead letter is too large,
        the headers about its error are left out first.

        While the client's queue is full, `send` waits, at most `wait_ms` in all. Returns the outputs that found no
        room. Calls `check` after each wait, and raises its errors. Raises the errors of `commit` if the transaction has
        failed."""
        self.begin()
        self.contributors.add(task)
        produce = self._producer.produce
        reports, usual = self._reports_for(task, outputs, changelogs, dead_letters=dead_letters)
        taken = 0 if self.isolation is not None else hand_over(produce, with_reports(outputs, reports), usual)
        until_ms: int | None = None
        for index in range(taken, len(outputs)):  # the first of these has failed
            output, report = outputs[index], reports.get(index, usual)
            topic, value, key, partition, _, _, timestamp, headers = output
            while True:
                try:
                    if self.isolation is None or self._may_follow(output_of(output), self.isolation):
                        produce(topic, value, key, partition, report, None, timestamp, headers)  # type: ignore[arg-type]
                        break
                except BufferError:
                    pass  # calls no client inside `except`: see `failures.caught`
                except KafkaException as exception:
                    refusal = self._refusal(exception)
                    if refusal.code() in TOO_LARGE and (less := smaller(headers)) is not None:
                        headers = less
                        continue
                    self.refused.append(Refused(task, refusal, output_of(output), dead_letters))
                    break
                except (TypeError, ValueError, OverflowError) as error:
                    raise unwritable(task, output_of(output), error) from error
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
    ) -> tuple[Mapping[int, Report], Report | None]:
        """Returns delivery reports of single outputs, by index, and the report of all others, or None if these need
        none. Without transactions, the end offsets of the outputs' changelogs are noted as wanted."""
        acknowledge, refuse = self._reports_of(task, dead_letters)
        last = last_of_changelogs(outputs, changelogs)
        reports = dict.fromkeys(last, acknowledge if self.transactional else refuse)
        if not self.transactional:
            self._ends.wanted.update(TopicPartition(outputs[at][TOPIC], outputs[at][PARTITION]) for at in last)
        if self.isolation is not None:
            reports = {at: partial(reports.get(at, refuse), output=output_of(one)) for at, one in enumerate(outputs)}
        return reports, None if self.transactional else refuse

    def _may_follow(self, output: Output, isolation: BatchIsolation) -> bool:
        """True if the output may be sent now. If this output or the previous one must be alone in its batch, it may be
        sent only after the previous one was acknowledged."""
        alone = isolation.most > 1 and isolation.is_alone(output)
        if (alone or self._sent_alone) and len(self._producer):
            return False
        self._sent_alone = alone
        return True

    def _refusal(self, exception: KafkaException) -> KafkaError:
        """Returns the error with which the client refuses one output. Raises the exception if it isn't about this
        output alone."""
        error = error_of(exception)
        if error is not None and error.code() in REFUSED_RECORD | REFUSED_TOPIC:
            return error
        if self.in_transaction and error is not None and error.code() in (KafkaError._STATE, KafkaError._FATAL):
            # The transaction has failed, so every transactional call fails. Such a call is made to learn the cause.
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
        """Wait for the delivery reports of the refused batch. They come a little after the transaction has failed."""
        until_ms = self._clock.monotonic_ms() + REPORTED_MS
        while not self.refused and self._clock.monotonic_ms() < until_ms:
            self._producer.poll(ROOM_POLL_S)

    def _reports_of(self, task: TaskId, dead_letters: bool) -> tuple[Report, Report]:
        """Returns the two delivery reports of a task, `acknowledge` and `refuse`.

        `acknowledge` notes the offset of a changelog's last record in a transaction. `refuse` notes a refused output.
        It is used for all outputs without transactions, and for all outputs with `isolation`. Inside a transaction a
        lost record makes the transaction fail, so `refuse` notes only a record that is refused for ever."""
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
        """Ask Kafka why outputs for these topics wait, for at most `WHY_S`. Returns the reason as a text."""
        self._check_free()
        with self._waiting():
            why = why_full(self._producer, topics)
            return why._replace(text=f"{len(self._producer)} records wait in the client; {why.text}")

    @property
    def unacknowledged(self) -> int:
        """The number of records that wait to be sent or acknowledged."""
        return len(self._producer)

    def forget_all_but(self, tasks: Collection[TaskId]) -> None:
        """Drop the delivery reports of all tasks except these. Reports that still arrive for other tasks are noted all
        the same."""
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
        """Begin to wait until all outputs are acknowledged or refused, and the changelogs' offsets are known.
        `returned` raises a retriable `KafkaException` when the time is up. It raises an abortable one if outputs may be
        lost."""
        self._check_free()
        until_ms = self._clock.monotonic_ms() + timeout_ms
        self._look = lambda wait_ms: self._flushed(wait_ms, until_ms, timeout_ms)

    def _flushed(self, wait_ms: int, until_ms: int, timeout_ms: int) -> bool:
        began_ms = self._clock.monotonic_ms()
        try:
            left = self._flush(max(1, min(wait_ms, until_ms - began_ms)))  # a flush ignores `linger.ms`
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
        """Flush, and return the number of unacknowledged records. Returns 0 if the transaction has failed, because the
        client sends none of its other records. The commit will raise the cause."""
        left = 0
        for _ in range(max(1, math.ceil(timeout_ms / LOOK_MS))):
            left = self._producer.flush(min(timeout_ms, LOOK_MS) / 1000)
            if not left or self._spoilt:
                return 0
        return left

    def begin_init_transactions(self, timeout_ms: int) -> None:
        """Begin to fence every earlier producer with this transactional id. Kafka aborts their open transaction."""
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
        """Returns the time for which the transaction has been open, or None without a transaction. Time in which this
        machine was suspended counts, as it does for Kafka. Kafka itself begins to count a little later."""
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
        `returned` raises `ProductionError` if Kafka refused a record of the transaction for ever. Other errors are
        `KafkaException`, to be sorted by `failures.classify`."""
        self._check_free()
        self._producer.poll(0)  # delivers the log line with the producer id
        put_in = partial(self._put_in, offsets, group_metadata, timeout_ms)
        self._begin_call(put_in, timeout_ms, self._offsets_are_in, refusals_explained)

    def _put_in(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        """Send the offsets twice: with the client's own call, then with their metadata (see `TransactionOffsets`)."""
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
        """Begin to commit the open transaction. The errors are those of `begin_send_offsets`. After `send_offsets` has
        succeeded, Kafka has accepted all flushed records. So an error of the commit never means that Kafka refused a
        record."""
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
        """Begin to abort the open transaction, if there is one. Everything noted about its outputs is cleared."""
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
        """Take all steps of `closing`, without pauses."""
        to_the_end(self.closing(timeout_ms))

    def closing(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> Steps[None]:
        """Drop unsent outputs, abort an open transaction and close the client, in steps. A running call is waited for.
        A client that hangs isn't waited for: it closes by itself later. A second close is harmless."""
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
        """Serve all delivery reports. confluent-kafka 2.16 never frees reports that weren't served, and they keep this
        producer alive. Each poll serves some reports, and may raise the fatal error of a dead producer."""
        for _ in range(MOST_POLLS):
            served = 1
            with suppress(KafkaException, SystemError):
                served = self._producer.poll(0)
            if not served:
                return

    def _let_go(self) -> None:
        """Close the client, in the call's thread. The close of a fenced producer raises an error, but succeeds."""
        self._offsets.close()
        try:
            self._producer.close()
        except (KafkaException, RuntimeError, SystemError) as error:
            log.debug("producer close: %s", error)


def can_start_another_transaction(producer: OutputProducer) -> bool:
    """Poll the producer. Returns True if it can be used for another transaction: it isn't dead, and has lost no
    connection (`disconnected`)."""
    try:
        producer.poll()
    except (KafkaException, SystemError):
        return False
    return not producer.disconnected
