"""The producer of outputs, on a real broker: what is refused takes nothing else with it, or says why it must."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from milestones.common.config import StreamsConfig
from milestones.common.errors import ProductionError
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import Output, TaskId, TopicPartition

pytestmark = pytest.mark.kafka

TASK = TaskId(0, 0)
TIMEOUT_MS = 20_000


def producer(kafka: str, transactional_id: str | None = None) -> OutputProducer:
    config = StreamsConfig(application_id="app", bootstrap_servers=kafka, variables={})
    made = OutputProducer(config.producer_settings("test", transactional_id))
    if transactional_id is not None:
        made.init_transactions(TIMEOUT_MS)
    return made


def topic(kafka: str, **settings: str) -> str:
    name = f"out-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 1, config=settings)])[name].result(20)
    return name


def outputs(topic: str, *sizes: int) -> list[Output]:
    return [Output(topic, 0, b"k", b"v" * size, 5, None, "sink") for size in sizes]


@pytest.mark.parametrize("transactional", [False, True])
def test_what_the_client_refuses_is_told_and_all_else_is_sent(kafka: str, transactional: bool) -> None:
    out = topic(kafka)
    p = producer(kafka, out if transactional else None)
    sent = outputs(out, 1, 2_000_000, 2)
    p.send(TASK, sent, [out])
    p.flush(TIMEOUT_MS)
    (refused,) = p.refused
    assert (refused.task, refused.output, refused.sent) == (TASK, sent[1], False)
    assert p.acknowledged == {TopicPartition(out, 0): 2}
    if transactional:
        p.commit(TIMEOUT_MS)
    assert p.blocked_ns > 0
    p.close()


def test_what_the_broker_refuses_fails_the_next_call_of_its_transaction_with_the_cause(kafka: str) -> None:
    out = topic(kafka, **{"max.message.bytes": "1000"})
    p = producer(kafka, out)
    for call in (lambda: p.send(TASK, outputs(out, 1)), lambda: p.commit(TIMEOUT_MS)):
        p.send(TASK, outputs(out, 5_000))
        p.flush(TIMEOUT_MS)
        with pytest.raises(ProductionError, match=rf"{out}.*fails its whole transaction.*producer_message_max_bytes"):
            call()
        assert p.refused == []
        p.abort(TIMEOUT_MS)
    p.close()


def test_what_the_broker_refuses_without_a_transaction_is_told(kafka: str) -> None:
    out = topic(kafka, **{"max.message.bytes": "1000"})
    p = producer(kafka)
    p.send(TASK, outputs(out, 5_000), dead_letters=True)
    p.flush(TIMEOUT_MS)
    (refused,) = p.refused
    assert (refused.sent, refused.dead_letter, refused.output.topic, len(refused.output.value or b"")) == (
        True, True, out, 5_000,
    )  # fmt: skip
    p.close()
