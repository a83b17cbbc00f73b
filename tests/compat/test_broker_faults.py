"""What a case may do to a broker, in a container or a child process: the same controls with the same effects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from compat_tests.containers.container import why_none
from compat_tests.harness import brokers
from compat_tests.harness.brokers import Broker
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api
from milestones.testing import KafkaProbe

pytestmark = pytest.mark.kafka

CALL_S = 30.0
QUIET = {"log_level": 0}


@contextmanager
def broker_of(kind: str, directory: Path) -> Iterator[Broker]:
    if kind == "testcontainers" and (reason := why_none()):
        pytest.skip(reason)
    with brokers.running(kind, directory) as broker:
        yield broker


def producer(bootstrap_servers: str, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, **QUIET})
    made.init_transactions(CALL_S)
    return made


def begin(writer: Producer, value: str) -> None:
    writer.begin_transaction()
    writer.produce("kept", value)


def committed(broker: Broker) -> list[str]:
    """The committed records, read past the proxy."""
    records = KafkaProbe(broker.bootstrap_servers).read("kept", stable=True)
    return [(record.value or b"").decode() for record in records]


@pytest.mark.parametrize("kind", ["process", "testcontainers"])
def test_kill_pause_and_a_lost_late_or_missing_end_of_a_transaction_do_what_they_say(kind: str, tmp_path: Path) -> None:
    with broker_of(kind, tmp_path) as broker:
        proxy = broker.proxy
        assert proxy is not None
        KafkaProbe(broker.bootstrap_servers).create({"kept": 1})
        writer = producer(proxy.bootstrap_servers, "one")

        begin(writer, "answer lost")
        lost = proxy.lose(Api.END_TXN, times=1)
        writer.commit_transaction(CALL_S)
        assert lost.hits == 1

        begin(writer, "request late")
        assert writer.flush(CALL_S) == 0
        held = proxy.hold(Api.END_TXN, Side.REQUEST)
        with pytest.raises(KafkaException):
            writer.commit_transaction(0.5)
        held.wait()
        cut = proxy.lose(side=Side.REQUEST)
        proxy.disconnect()
        assert committed(broker) == ["answer lost"]
        answers = held.hits
        held.end()
        cut.end()
        writer.commit_transaction(CALL_S)
        assert (committed(broker), answers) == (["answer lost", "request late"], 1)

        broker.kill()
        broker.start()
        begin(writer, "after kill -9")
        writer.commit_transaction(CALL_S)

        broker.pause()
        begin(writer, "paused")
        with pytest.raises(KafkaException):
            writer.commit_transaction(0.5)
        broker.resume()
        writer.commit_transaction(CALL_S)
        assert committed(broker) == ["answer lost", "request late", "after kill -9", "paused"]
        broker.pause()
