"""Topics that exist, whose leader isn't ready yet: it refuses the first batches of a producer and may take the next."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from milestones.common.kafka.failures import ErrorClass, classify
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import TaskId
from milestones.testing import KafkaProbe
from tests.outputs import emitted

TASK, TIMEOUT_MS = TaskId(0, 0), 20_000
TOPICS, RECORDS = 30, 5
NOW = 0
"""The timestamp by which the client gives its own; old records would be gone before they are read."""


def in_doubt(producer: OutputProducer, topic: str) -> bool:
    """Write the records; whether the producer can't say if they were written."""
    try:
        producer.send(TASK, [emitted(topic, timestamp=NOW)] * RECORDS)
        producer.flush(TIMEOUT_MS)
        if producer.transactional:
            producer.commit(TIMEOUT_MS)
    except KafkaException as exception:
        if classify(exception) is not ErrorClass.ABORTABLE:
            raise
        return True
    return False


@pytest.mark.kafka
@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_producer_says_is_written_is_in_a_topic_that_was_just_made(kafka: str, transactional: bool) -> None:
    """Each record is a batch of its own, several are under way: in one of twenty topics the first are refused."""
    admin, sure, id = AdminClient({"bootstrap.servers": kafka}), list[str](), uuid4().hex[:8]
    settings = {"bootstrap.servers": kafka, "enable.idempotence": True, "batch.num.messages": 1}
    for number in range(TOPICS):
        topic = f"new-{id}-{number}"
        producer = OutputProducer({**settings, **({"transactional.id": topic} if transactional else {})})
        if transactional:
            producer.init_transactions(TIMEOUT_MS)
        admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
        if not in_doubt(producer, topic):
            sure.append(topic)
        producer.close()
    print(f"{TOPICS - len(sure)} of {TOPICS} times it couldn't say")
    written = [(record.topic, record.value) for record in KafkaProbe(kafka).read(*sure)]
    assert written == [(topic, b"v") for topic in sorted(sure) for _ in range(RECORDS)]


@pytest.mark.kafka
def test_a_transaction_in_doubt_is_made_again_by_the_same_producer(kafka: str) -> None:
    topic = f"doubt-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    producer = OutputProducer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_MS)
    outputs = [emitted(topic, timestamp=NOW)] * RECORDS
    producer.send(TASK, outputs)
    producer._watch.assumed = True
    with pytest.raises(KafkaException) as caught:
        producer.flush(TIMEOUT_MS)
    assert classify(caught.value) is ErrorClass.ABORTABLE
    assert caught.value.args[0].code() == KafkaError._INCONSISTENT
    producer.abort(TIMEOUT_MS)
    producer.send(TASK, outputs)
    producer.flush(TIMEOUT_MS)
    producer.commit(TIMEOUT_MS)
    assert [record.value for record in KafkaProbe(kafka).read(topic)] == [b"v"] * RECORDS
    producer.close()
