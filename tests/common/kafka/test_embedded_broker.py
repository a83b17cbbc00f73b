"""The embedded broker itself. One test, for each start takes seconds."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from milestones.common.kafka.embedded import BrokerDiedError, EmbeddedKafka, EmbeddedKafkaError, PortTakenError

pytestmark = pytest.mark.kafka


def produce(broker: EmbeddedKafka, transaction: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transaction})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("kept", value)
    producer.commit_transaction(30)


def values(broker: EmbeddedKafka, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("kept", 0, 0)])
    try:
        messages = consumer.consume(count, 30)
        assert all(message.error() is None for message in messages)
        return [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()


def test_committed_data_outlive_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, listeners={"SECOND": "PLAINTEXT"}) as broker:
        address, first = broker.bootstrap_servers, broker.pid
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
        produce(broker, "one", "before kill -9")
        broker.kill()
        assert not broker.running
        assert broker.pid is None
        broker.start()
        assert (broker.bootstrap_servers, broker.pid != first) == (address, True)
        produce(broker, "one", "after kill -9")
        broker.restart()
        assert values(broker, 2) == ["before kill -9", "after kill -9"]
        assert broker.address("SECOND") != address
        assert "Kafka Server started" in broker.log_file.read_text()
        with pytest.raises(EmbeddedKafkaError, match="runs already"):
            broker.start()
    assert (tmp_path / "data" / "meta.properties").exists()
    with socket.socket() as probe:
        host, port = address.split(":")
        assert probe.connect_ex((host, int(port))) != 0


def test_a_taken_port_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"port {port}"), EmbeddedKafka(port=port):
            pass


def test_a_broker_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(BrokerDiedError, match=r"Invalid value none for configuration num\.io\.threads"),
        EmbeddedKafka(properties={"num.io.threads": "none"}),
    ):
        pass
