"""A producer that was closed, without a broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from milestones.common.config import StreamsConfig
from milestones.common.kafka.failures import ErrorClass, classify
from milestones.common.kafka.producer import OutputProducer, can_start_another_transaction
from milestones.common.records import TaskId
from tests.outputs import emitted

OUTPUT = emitted("out")
CALLS: dict[str, Callable[[OutputProducer], object]] = {
    "begin": lambda producer: producer.begin(),
    "send": lambda producer: producer.send(TaskId(0, 0), [OUTPUT]),
    "poll": lambda producer: producer.poll(),
    "flush": lambda producer: producer.flush(0),
    "abort": lambda producer: producer.abort(0),
    "commit": lambda producer: producer.commit(0),
}


def closed(transactional_id: str | None) -> OutputProducer:
    config = StreamsConfig(application_id="app", bootstrap_servers="localhost:1", variables={})
    producer = OutputProducer(config.producer_settings("test", transactional_id))
    producer.close(0)
    return producer


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("transactional_id", ["closed", None])
def test_a_closed_producer_refuses_every_call_as_one_that_is_dead(call: str, transactional_id: str | None) -> None:
    producer = closed(transactional_id)
    with pytest.raises(KafkaException, match="closed") as caught:
        CALLS[call](producer)
    assert classify(caught.value) is ErrorClass.FATAL


def test_a_closed_producer_starts_no_other_transaction() -> None:
    assert not can_start_another_transaction(closed("closed"))
