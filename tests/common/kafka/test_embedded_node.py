"""What every broker of one's own does alike, shown by one without a process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from milestones.common.kafka.embedded import BrokerDiedError, EmbeddedKafkaError, PortTakenError
from milestones.common.kafka.embedded.node import SingleNode, tail_of
from milestones.common.kafka.embedded.properties import HOST


class Node(SingleNode):
    """Starts at once; `errors` are raised by its first launches, `end` is how it ends while it starts."""

    def __init__(self, *, port: int | None = None, advertised: dict[str, int] | None = None, **more: Any) -> None:
        super().__init__(port, None, more.get("listeners"), advertised, (), 0.01)
        self.errors: list[BaseException] = []
        self.launched: list[str] = []
        self.end: str | None = None
        self.undone = self.closed = 0

    @property
    def running(self) -> bool:
        return False

    def _start(self) -> None:
        self._on_ports(self._launch, self._undo)

    def _launch(self) -> None:
        self.launched.append(self.bootstrap_servers)
        if self.errors:
            raise self.errors.pop(0)

    def _undo(self) -> None:
        self.undone += 1

    def stop(self) -> None: ...

    def close(self) -> None:
        self.closed += 1

    def _ended(self, wait_s: float) -> str | None:
        return self.end

    def _died(self, what: str) -> BrokerDiedError:
        return BrokerDiedError(f"the node: {what}")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def lost() -> EmbeddedKafkaError:
    return BrokerDiedError("java.net.BindException: Address already in use")


def test_each_listener_has_a_port_of_its_own_that_it_keeps() -> None:
    node = Node(listeners={"SECURE": "SASL_PLAINTEXT"})
    node.start()
    node.restart()
    assert len(set(node.launched)) == 1
    assert node.address("SECURE") != node.bootstrap_servers


def test_a_port_that_is_lost_to_another_process_is_replaced() -> None:
    node = Node()
    node.errors = [lost(), lost()]
    node.start()
    assert len(set(node.launched)) == 3
    assert node.undone == 2


def test_after_three_lost_ports_the_error_is_told() -> None:
    node = Node()
    node.errors = [lost(), lost(), lost()]
    with pytest.raises(BrokerDiedError, match="Address already in use"):
        node.start()


def test_any_other_error_ends_the_start_at_once_with_everything_undone() -> None:
    node = Node()
    node.errors = [BrokerDiedError("out of memory")]
    with pytest.raises(BrokerDiedError, match="out of memory"), node:
        pass
    assert (len(node.launched), node.undone, node.closed) == (1, 1, 1)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(taken: int) -> None:
    with pytest.raises(PortTakenError, match=f"port {taken} of 127.0.0.1 belongs to another process"):
        Node(port=taken).start()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"port": 70_000}, "port=70000: must be 1 to 65535"),
        ({"advertised": {"PROXIED": 1}}, "advertised: no listener PROXIED: add it to `listeners`"),
    ],
)
def test_settings_that_cannot_be_are_refused_when_it_is_made(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(EmbeddedKafkaError, match=says):
        Node(**settings)


def test_addresses_are_known_from_the_first_start_on() -> None:
    with pytest.raises(EmbeddedKafkaError, match="no listener 'PLAINTEXT': there are none before the first start"):
        _ = Node().bootstrap_servers


def test_a_node_that_ends_while_it_starts_or_never_serves_is_told_as_dead() -> None:
    node = Node()
    node.start()
    node.end = "it ended with exit code 1"
    with pytest.raises(BrokerDiedError, match="exit code 1"):
        node._await_ready(float("inf"))
    with pytest.raises(BrokerDiedError, match="did not serve clients within 0 s"):
        node._await_ready(0)


def test_the_tail_of_a_log_has_no_frames_of_stack_traces() -> None:
    assert tail_of(["Error: no", "\tat kafka.Kafka.main", "Caused by: a port"]) == ["Error: no", "Caused by: a port"]
    assert len(tail_of(["line"] * 100)) == 25
