"""A producer that is fenced, times out, or loses its broker: each call's class as measured on a real broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.clock import Clock
from milestones.common.errors import OwnershipError
from milestones.common.kafka.batch_isolation import BatchIsolation, suspects
from milestones.common.kafka.blocking_call import CallThread, LateError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.failures import ErrorClass, classify
from milestones.common.kafka.membership import group_metadata
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.records import KEY, VALUE, Emitted, OffsetAndMetadata, Output, TaskId, TopicPartition, output_of
from milestones.testing import KafkaProbe, StepClock
from tests.common.clocks import Machine
from tests.outputs import emitted
from tests.topics import named, new_topic

TASK, TIMEOUT_MS = TaskId(0, 0), 20_000


class Transacting(ExitStack):
    """A transactional producer, its topic and its changelog."""

    def __init__(self, kafka: str, **settings: Any) -> None:
        super().__init__()
        self.kafka, self.id = kafka, named("tx")
        self.out, self.changelog = new_topic(kafka), new_topic(kafka)
        self.producer = self.another(**settings)

    def another(
        self, clock: Clock | None = None, *, isolation: BatchIsolation | None = None, **settings: Any
    ) -> OutputProducer:
        """A producer of the same transactional id: it fences the one before."""
        ours = {"bootstrap.servers": self.kafka, "transactional.id": self.id, "linger.ms": 5, **settings}
        made = OutputProducer(ours, clock, isolation=isolation)
        self.callback(made.close)
        made.init_transactions(TIMEOUT_MS)
        return made

    def send(self, producer: OutputProducer | None = None) -> None:
        outputs = [emitted(topic) for topic in (self.out, self.changelog)]
        (producer or self.producer).send(TASK, outputs, {self.changelog})

    @property
    def log(self) -> TopicPartition:
        return TopicPartition(self.changelog, 0)


@pytest.fixture
def t(kafka: str) -> Iterator[Transacting]:
    with Transacting(kafka) as made:
        yield made


def compacted(kafka: str) -> str:
    """A topic that takes no record without a key; its leader is ready."""
    topic = new_topic(kafka, **{"cleanup.policy": "compact"})
    KafkaProbe(kafka).ends([TopicPartition(topic, 0)])
    return topic


def failure(call: Callable[[], object]) -> ErrorClass | None:
    try:
        call()
    except KafkaException as exception:
        return classify(exception)
    return None


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", [None, BatchIsolation()])
def test_a_commits_offset_is_that_after_the_last_acknowledged_record_of_each_changelog(
    t: Transacting, isolation: BatchIsolation | None
) -> None:
    t.producer = t.another(isolation=isolation)
    for expected in (2, 5):  # a commit's marker takes an offset
        t.send()
        t.send()
        t.producer.flush(TIMEOUT_MS)
        assert t.producer.acknowledged == {t.log: expected}
        t.producer.commit(TIMEOUT_MS)


@pytest.mark.kafka
def test_a_transaction_is_as_old_as_its_first_record_and_a_producer_without_one_has_no_age(t: Transacting) -> None:
    clock = StepClock()
    producer = t.producer = t.another(clock)
    assert producer.age_ms() is None
    t.send()
    clock.advance(70)
    t.send()
    assert producer.age_ms() == 70
    producer.commit(TIMEOUT_MS)
    assert producer.age_ms() is None
    t.send()
    assert producer.age_ms() == 0
    producer.flush(TIMEOUT_MS)  # of a record that is on its way the broker doesn't know yet, and may refuse its end
    producer.abort(TIMEOUT_MS)
    assert producer.age_ms() is None


@pytest.mark.kafka
def test_a_transaction_ages_while_its_machine_is_suspended_and_does_not_get_younger_when_the_clock_is_put_back(
    t: Transacting,
) -> None:
    machine = Machine()
    producer = t.producer = t.another(machine)
    t.send()
    machine.put(60_000)
    machine.advance(70)
    assert producer.age_ms() == 60_070
    machine.put(-3_600_000)
    assert producer.age_ms() == 60_070
    producer.flush(TIMEOUT_MS)
    producer.abort(TIMEOUT_MS)


@pytest.mark.kafka
def test_an_aborted_transaction_leaves_neither_offsets_nor_refusals_and_the_producer_goes_on(t: Transacting) -> None:
    t.producer = t.another(**{"linger.ms": 900})
    t.send()  # still in the queue: the abort purges it, and its reports come later
    t.producer.abort(TIMEOUT_MS)
    t.producer.poll()
    assert (t.producer.acknowledged, t.producer.refused) == ({}, [])
    t.send()
    t.producer.flush(TIMEOUT_MS)
    assert t.log in t.producer.acknowledged
    t.producer.commit(TIMEOUT_MS)


def dead(t: Transacting) -> None:
    """Every call says so, none shows it as a refusal of records, and closing doesn't wait."""
    producer = t.producer
    assert failure(lambda: producer.send_offsets(*offsets(t), TIMEOUT_MS)) is ErrorClass.FATAL
    assert failure(lambda: producer.commit(TIMEOUT_MS)) is ErrorClass.FATAL
    assert failure(lambda: producer.abort(TIMEOUT_MS)) is ErrorClass.FATAL
    assert failure(lambda: t.send(producer)) is ErrorClass.FATAL
    assert producer.refused == []
    began = time.monotonic()
    producer.close()
    assert time.monotonic() - began < 5


def offsets(t: Transacting) -> tuple[dict[TopicPartition, OffsetAndMetadata], bytes]:
    return {TopicPartition(t.out, 0): OffsetAndMetadata(1)}, group_metadata("g", 1, "m", None)


@pytest.mark.kafka
def test_a_producer_whose_transactional_id_was_taken_over_is_dead(t: Transacting) -> None:
    t.send()
    t.producer.flush(TIMEOUT_MS)
    successor = t.another()
    t.send()
    failure(lambda: t.producer.flush(TIMEOUT_MS))
    dead(t)
    t.send(successor)
    successor.commit(TIMEOUT_MS)


@pytest.mark.kafka
def test_a_transaction_that_timed_out_at_the_broker_kills_its_producer_and_a_new_one_goes_on(tmp_path: Path) -> None:
    fast = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with EmbeddedKafka(tmp_path, properties=fast) as broker:
        t = Transacting(broker.bootstrap_servers, **{"transaction.timeout.ms": 5_000, "message.timeout.ms": 5_000})
        t.send()
        t.producer.flush(TIMEOUT_MS)
        deadline = time.monotonic() + 60
        while failure(lambda: _again(t)) is not ErrorClass.FATAL:
            assert time.monotonic() < deadline
        dead(t)
        successor = t.another()
        t.send(successor)
        successor.commit(TIMEOUT_MS)
        successor.close()
        _closing_without_a_broker(broker, t)


def _again(t: Transacting) -> None:
    t.send()
    t.producer.flush(1_000)
    t.producer.poll()


def _closing_without_a_broker(broker: EmbeddedKafka, t: Transacting) -> None:
    """librdkafka's own close would wait for ever here. In this test as it has a broker of its own."""
    producer = t.another()
    t.send(producer)
    producer.flush(TIMEOUT_MS)
    assert not producer.disconnected
    broker.kill()
    logging.getLogger("milestones.librdkafka").setLevel(logging.CRITICAL)
    began = time.monotonic()
    while not producer.disconnected:
        assert time.monotonic() < began + 20
        producer.poll()
    began = time.monotonic()
    producer.close(1_000)
    assert time.monotonic() - began < 5


@pytest.mark.kafka
@pytest.mark.parametrize(("generation", "member"), [(7, "nobody"), (0, "nobody")])
def test_a_member_that_the_group_does_not_know_costs_the_transaction_but_not_the_producer(
    t: Transacting, generation: int, member: str
) -> None:
    t.send()
    at = {TopicPartition(t.out, 0): OffsetAndMetadata(1)}
    metadata = group_metadata(t.id, generation, member, None)
    assert failure(lambda: t.producer.send_offsets(at, metadata, TIMEOUT_MS)) is ErrorClass.ABORTABLE
    assert failure(lambda: t.producer.commit(TIMEOUT_MS)) is ErrorClass.ABORTABLE
    t.producer.abort(TIMEOUT_MS)
    t.send()
    t.producer.commit(TIMEOUT_MS)


def test_a_producer_that_never_met_a_broker_closes_at_once_and_closing_again_is_harmless() -> None:
    producer = OutputProducer({"bootstrap.servers": "127.0.0.1:1"})
    began = time.monotonic()
    producer.close()
    producer.close()
    assert time.monotonic() - began < 5


def test_another_threads_touch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = OutputProducer({"bootstrap.servers": "127.0.0.1:1"})
    with monkeypatch.context() as patched:
        patched.setattr("milestones.common.kafka.clients.get_ident", lambda: -1)
        with pytest.raises(OwnershipError, match="OutputProducer belongs to thread"):
            producer.poll()
    producer.close()


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", [None, BatchIsolation()])
def test_a_refused_record_takes_none_but_its_batch_with_it_and_none_at_all_if_outputs_are_told_apart(
    kafka: str, isolation: BatchIsolation | None
) -> None:
    """The client makes the batches, one or several of so many outputs: each output is written, or it is refused."""
    topic = compacted(kafka)
    producer = OutputProducer({"bootstrap.servers": kafka, "linger.ms": 50}, isolation=isolation)
    keys = [None if number in (10, 20) else b"k" for number in range(30)]
    outputs = [emitted(topic, b"%d" % number, key=key) for number, key in enumerate(keys)]
    producer.send(TASK, outputs)
    producer.flush(TIMEOUT_MS)
    bad = [output[VALUE] for output in outputs if output[KEY] is None]
    refused = [one.output.value for one in producer.refused]
    written = [record.value for record in KafkaProbe(kafka).read(topic)]
    assert {*bad} <= {*refused}
    assert sorted([*written, *refused]) == sorted(output[VALUE] for output in outputs)
    if isolation:
        assert refused == bad
    assert {one.error.code() for one in producer.refused} <= {
        KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    }  # fmt: skip
    producer.close()


@pytest.mark.kafka
@pytest.mark.parametrize("count", [200, 60_000])
def test_a_record_too_large_takes_a_small_batch_with_it_and_none_if_the_batch_is_sent_alone(
    t: Transacting, count: int
) -> None:
    """Of many outputs the last ones are sent when the transaction has failed already."""
    topic = new_topic(t.kafka, **{"max.message.bytes": "4000"})
    outputs = [emitted(topic, key=b"%d" % number) for number in range(count)]
    outputs[150] = emitted(topic, b"v" * 5_000, key=b"150")
    bad = output_of(outputs[150])
    t.producer = t.another(isolation=BatchIsolation(20))
    batch = refused_by(t, outputs)
    assert bad in batch
    assert len(batch) <= 20
    t.producer = t.another(isolation=BatchIsolation(20, suspects(batch)))
    assert refused_by(t, outputs) == [bad]


def refused_by(t: Transacting, outputs: Sequence[Emitted]) -> list[Output]:
    """The outputs that are told to be refused when these are sent."""
    try:
        until = time.monotonic() + TIMEOUT_MS / 1_000
        while outputs and not t.producer.refused:
            outputs = t.producer.send(TASK, outputs, wait_ms=10)
            assert time.monotonic() < until
        t.producer.flush(TIMEOUT_MS)
    except RefusedInTransactionError:
        pass  # by then it is told
    return [one.output for one in t.producer.refused]


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", [None, BatchIsolation()])
def test_a_record_that_fails_its_transaction_is_known_as_a_whole_if_outputs_are_told_apart(
    t: Transacting, isolation: BatchIsolation | None
) -> None:
    t.producer = t.another(isolation=isolation)
    topic = compacted(t.kafka)
    good, bad = emitted(topic), emitted(topic, key=None, headers=[("a header", b"1")], node="the sink")
    t.producer.send(TASK, [good, bad, good])
    t.producer.flush(TIMEOUT_MS)
    refused = [(one.output, one.sent) for one in t.producer.refused]
    assert refused == ([(output_of(bad), True)] if isolation else [])
    with pytest.raises(RefusedInTransactionError) as caught:
        t.producer.commit(TIMEOUT_MS)
    assert caught.value.single
    successor = t.another()
    successor.send(TASK, [good])
    successor.commit(TIMEOUT_MS)


@pytest.mark.kafka
def test_a_time_too_far_ahead_that_fails_a_transaction_is_told_with_its_topic_and_the_setting(t: Transacting) -> None:
    topic = new_topic(t.kafka)
    t.producer.send(TASK, [emitted(topic, timestamp=9_000_000_000_000)])
    t.producer.flush(TIMEOUT_MS)
    with pytest.raises(RefusedInTransactionError, match=f"--entity-name {topic} .*message.timestamp.after.max.ms"):
        t.producer.commit(TIMEOUT_MS)


def test_a_producer_that_hung_in_a_call_begins_nothing_more_and_counts_as_dead(
    t: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(caller: CallThread, wait_ms: int) -> bool:
        caller.late = True
        raise LateError("no answer")

    monkeypatch.setattr(CallThread, "returned", hang)
    with pytest.raises(KafkaException):
        t.producer.init_transactions(100)
    with pytest.raises(KafkaException) as caught:
        t.producer.begin()
    assert classify(caught.value) is ErrorClass.FATAL
    assert not t.producer.in_transaction


def test_an_error_of_the_end_is_not_taken_for_a_record_that_was_refused(
    t: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the coordinator says last may leave open whether the transaction was committed."""
    t.send()
    t.producer.flush(TIMEOUT_MS)
    answers = iter([None, KafkaException(KafkaError(KafkaError.UNKNOWN, "at the end", txn_requires_abort=True))])

    def answer(wait_ms: int) -> bool:
        if error := next(answers):
            raise error
        return True

    monkeypatch.setattr(t.producer._call_thread, "begin", lambda function, timeout_ms: None)
    monkeypatch.setattr(t.producer._call_thread, "returned", answer)
    t.producer.send_offsets({}, b"", TIMEOUT_MS)
    with pytest.raises(KafkaException, match="at the end"):
        t.producer.commit(TIMEOUT_MS)
