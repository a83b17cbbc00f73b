"""The embedded broker itself. One test, for each start takes seconds."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from milestones.common.kafka.embedded import BrokerDiedError, EmbeddedKafka, EmbeddedKafkaError, PortTakenError
from milestones.testing import KafkaProbe

pytestmark = pytest.mark.kafka


def test_committed_data_outlive_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, listeners={"SECOND": "PLAINTEXT"}) as broker:
        address, first = broker.bootstrap_servers, broker.pid
        probe = KafkaProbe(address)
        probe.create({"kept": 1})
        probe.write("kept", "before kill -9", transactional_id="one")
        broker.kill()
        assert not broker.running
        assert broker.pid is None
        broker.start()
        assert (broker.bootstrap_servers, broker.pid != first) == (address, True)
        probe.write("kept", "after kill -9", transactional_id="one")
        broker.restart()
        assert [record.value for record in probe.read("kept")] == [b"before kill -9", b"after kill -9"]
        assert broker.address("SECOND") != address
        assert "Kafka Server started" in broker.log_file.read_text()
        with pytest.raises(EmbeddedKafkaError, match="runs already"):
            broker.start()
    assert (tmp_path / "data" / "meta.properties").exists()
    with socket.socket() as look:
        host, port = address.split(":")
        assert look.connect_ex((host, int(port))) != 0


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
