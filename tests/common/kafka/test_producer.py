"""The producer of outputs, on a real broker: what is refused takes nothing else with it, or says why it must."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.config import StreamsConfig
from milestones.common.errors import ProductionError
from milestones.common.kafka.admin import OwnAdmin
from milestones.common.kafka.failures import ErrorClass, classify
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.topics import Cluster
from milestones.common.records import Emitted, TaskId, TopicPartition, output_of
from tests.outputs import emitted
from tests.topics import new_topic

pytestmark = pytest.mark.kafka

TASK = TaskId(0, 0)
TIMEOUT_MS = 20_000


NOWHERE = "127.0.0.1:1"

Make = Callable[..., OutputProducer]


@pytest.fixture
def producer() -> Iterator[Make]:
    """Makes producers, which are closed at the end."""
    with ExitStack() as closing:

        def make(servers: str, transactional_id: str | None = None, **settings: Any) -> OutputProducer:
            config = StreamsConfig(application_id="app", bootstrap_servers=servers, **settings, variables={})
            admin = OwnAdmin(lambda: Cluster(config.admin_settings("test")))
            made = OutputProducer(config.producer_settings("test", transactional_id), admin=admin)
            closing.callback(made.close)
            if transactional_id is not None:
                made.init_transactions(TIMEOUT_MS)
            return made

        yield make


def outputs(topic: str, *sizes: int) -> list[Emitted]:
    return [emitted(topic, b"v" * size) for size in sizes]


@pytest.mark.parametrize("transactional", [False, True])
def test_what_the_client_refuses_is_told_and_all_else_is_sent(producer: Make, kafka: str, transactional: bool) -> None:
    out = new_topic(kafka)
    p = producer(kafka, out if transactional else None)
    sent = outputs(out, 1, 2_000_000, 2)
    p.send(TASK, sent, [out])
    p.flush(TIMEOUT_MS)
    (refused,) = p.refused
    assert (refused.task, refused.output, refused.sent) == (TASK, output_of(sent[1]), False)
    assert p.acknowledged == {TopicPartition(out, 0): 2}
    if transactional:
        p.commit(TIMEOUT_MS)
    assert p.blocked_ns > 0


def test_who_waits_for_room_is_asked_each_time_whether_to_go_on(producer: Make) -> None:
    p, asked = producer(NOWHERE, producer_queue_buffering_max_messages=2), list[int]()

    def check() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise StaleGenerationError("enough")

    with pytest.raises(StaleGenerationError, match="enough"):
        p.send(TASK, outputs("out", 1, 2, 3), wait_ms=60_000, check=check)


def test_what_finds_no_room_within_the_time_given_comes_back_in_order(producer: Make) -> None:
    p, sent = producer(NOWHERE, producer_queue_buffering_max_messages=2), outputs("out", 1, 2, 3, 4)
    assert p.send(TASK, sent, wait_ms=200) == sent[2:]
    assert p.send(TASK, sent[2:]) == sent[2:]
    assert "the brokers are up" in p.why_full({"out"}).text


def test_a_topic_whose_partitions_have_leaders_is_not_what_outputs_wait_for(producer: Make, kafka: str) -> None:
    out = new_topic(kafka)
    p = producer(kafka)
    assert re.search(rf"{out} have a leader; check .*min.insync.replicas", p.why_full({out}).text)
    why = p.why_full({out, "none-of-ours"})
    assert why.missing == ("none-of-ours",)
    assert "there is no topic none-of-ours, or this principal may not see it; create" in why.text


def test_a_producer_that_is_closed_with_records_on_their_way_is_let_go() -> None:
    p = OutputProducer({"bootstrap.servers": NOWHERE})
    p.send(TASK, outputs("out", 1, 2, 3))
    p.close()
    closed = weakref.ref(p)
    del p
    for thread in threading.enumerate():
        if thread.name == "producer-transactions":
            thread.join(10)
    gc.collect()
    assert closed() is None


def test_what_the_broker_refuses_fails_the_next_call_of_its_transaction_with_the_cause(
    producer: Make, kafka: str
) -> None:
    out = new_topic(kafka, **{"max.message.bytes": "1000"})
    p = producer(kafka, out)
    for call in (lambda: p.send(TASK, outputs(out, 1)), lambda: p.commit(TIMEOUT_MS)):
        p.send(TASK, outputs(out, 5_000))
        p.flush(TIMEOUT_MS)
        with pytest.raises(ProductionError, match=rf"{out}.*makes its whole transaction.*producer_message_max_bytes"):
            call()
        assert p.refused == []
        p.abort(TIMEOUT_MS)


def test_what_the_broker_refuses_without_a_transaction_is_told(producer: Make, kafka: str) -> None:
    out = new_topic(kafka, **{"max.message.bytes": "1000"})
    p = producer(kafka)
    p.send(TASK, outputs(out, 5_000), dead_letters=True)
    p.flush(TIMEOUT_MS)
    (refused,) = p.refused
    assert (refused.sent, refused.dead_letter, refused.output.topic, len(refused.output.value or b"")) == (
        True, True, out, 5_000,
    )  # fmt: skip


def test_without_a_transaction_a_changelogs_offset_is_its_end_after_the_flush(producer: Make, kafka: str) -> None:
    """Nobody is fenced: what somebody else has written meanwhile isn't restored over our own records."""
    out, log = new_topic(kafka), new_topic(kafka)
    p, other = producer(kafka), producer(kafka)
    for expected in (3, 6):
        p.send(TASK, outputs(log, 1) + outputs(out, 1), [log])
        p.send(TASK, outputs(log, 1), [log])
        p._producer.flush()
        other.send(TASK, outputs(log, 9))
        other.flush(TIMEOUT_MS)
        p.flush(TIMEOUT_MS)
        assert (p.acknowledged, other.acknowledged) == ({TopicPartition(log, 0): expected}, {})
    p.acknowledged.clear()
    p.send(TASK, outputs(out, 1), [log])
    p.flush(TIMEOUT_MS)
    assert p.acknowledged == {}


def test_a_flush_isnt_over_before_the_ends_of_changelogs_are_known(
    producer: Make, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, p = new_topic(kafka), producer(kafka)
    p.send(TASK, outputs(log, 1), [log])
    codes = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.TOPIC_AUTHORIZATION_FAILED]
    expected = [ErrorClass.RETRIABLE, ErrorClass.FATAL]

    def start_listing(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(codes.pop(0)))

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "start_listing", start_listing)
        for failure in expected:
            with pytest.raises(KafkaException) as caught:
                p.flush(TIMEOUT_MS)
            assert (classify(caught.value), p.acknowledged) == (failure, {})
    p.flush(TIMEOUT_MS)
    assert p.acknowledged == {TopicPartition(log, 0): 1}
