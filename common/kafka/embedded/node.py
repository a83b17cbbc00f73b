"""What a single Kafka node of one's own is, wherever its process runs: ports, listeners, a start that waits.

*Guarantees*: when another process takes a port between our look and the node's start, other ports are tried, unless the
caller named one.
*Assumes*: one thread uses a node at a time.
"""

from __future__ import annotations

import contextlib
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from milestones.common.kafka.embedded.errors import BrokerDiedError, EmbeddedKafkaError, PortTakenError
from milestones.common.kafka.embedded.ports import free_port, is_free
from milestones.common.kafka.embedded.properties import CLIENT_LISTENER, CONTROLLER_LISTENER, HOST

# A small heap, one collector thread, the fast compiler only: start-up counts more than peak throughput.
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
TAIL_LINES = 25
_PORT_ATTEMPTS = 3
_PAUSE_S = 0.05
_PORT_LOST = ("Address already in use", "address already in use", "port is already allocated")
"""How Kafka and Docker say that a port was taken."""


class SingleNode(ABC):
    """A Kafka broker of one's own; a context manager that starts it and takes it away.

    `port`: of the plain-text listener; None: a free one. `properties`: Kafka's own broker settings, which win over
    those made here. `listeners`: more listeners, name -> security protocol (`{"SECURE": "SASL_PLAINTEXT"}`); `address`
    tells where they are. `advertised`: listener -> the loopback port that clients are told instead of its own, that of
    a proxy.
    """

    def __init__(
        self,
        port: int | None,
        properties: Mapping[str, str] | None,
        listeners: Mapping[str, str] | None,
        advertised: Mapping[str, int] | None,
        jvm_options: Sequence[str],
        start_timeout_s: float,
    ) -> None:
        if port is not None and not 0 < port < 65536:
            raise EmbeddedKafkaError(f"port={port}: must be 1 to 65535, or None for a free one")
        self._port = port
        self._properties = dict(properties or {})
        self._protocols = {CLIENT_LISTENER: "PLAINTEXT", **(listeners or {}), CONTROLLER_LISTENER: "PLAINTEXT"}
        self._advertised = dict(advertised or {})
        if unknown := self._advertised.keys() - self._protocols.keys():
            raise EmbeddedKafkaError(f"advertised: no listener {', '.join(sorted(unknown))}: add it to `listeners`")
        self._jvm_options = (*JVM_OPTIONS, *jvm_options)
        self._start_timeout_s = start_timeout_s
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the plain-text listener."""
        return self.address(CLIENT_LISTENER)

    def address(self, listener: str) -> str:
        """`host:port` of a listener; known from the first start on."""
        if listener not in self._ports:
            known = ", ".join(self._ports) or "none before the first start"
            raise EmbeddedKafkaError(f"no listener {listener!r}: there are {known}")
        return f"{HOST}:{self._ports[listener]}"

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether the broker's process exists, paused or not."""

    def start(self) -> None:
        """Start the broker and wait until it serves clients. Raises `EmbeddedKafkaError`."""
        if self.running:
            raise EmbeddedKafkaError(f"the broker on {self.bootstrap_servers} runs already")
        self._start()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Shut the broker down cleanly; its data stay. Killed when that takes longer than 30 s."""

    def restart(self) -> None:
        """Stop it if it runs, then start it with the same data and ports."""
        self.stop()
        self.start()

    @abstractmethod
    def close(self) -> None:
        """End the broker for good. May be called twice."""

    # ---- for subclasses, which start the process

    def _on_ports(self, launch: Callable[[], None], undo: Callable[[], None]) -> None:
        """`launch()` on the ports it had, else on free ones; again on others when one of them was taken just now."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._choose_ports()
            try:
                launch()
                return
            except BaseException as error:
                undo()
                lost_race = isinstance(error, EmbeddedKafkaError) and any(said in str(error) for said in _PORT_LOST)
                if not lost_race or self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise
                self._ports = {}

    def _choose_ports(self) -> None:
        for listener in self._protocols:
            wanted = self._port if listener == CLIENT_LISTENER else None
            taken = {*self._ports.values(), *self._advertised.values()}
            port = self._ports.get(listener) or wanted or free_port(taken)
            if not is_free(port):
                raise PortTakenError(
                    f"port {port} of {HOST} belongs to another process: end that, or choose another port"
                )
            self._ports[listener] = port

    def _await_ready(self, deadline: float) -> None:
        """Until clients are served; `deadline`: by `time.monotonic`."""
        while time.monotonic() < deadline:
            if (ended := self._ended(_PAUSE_S)) is not None:
                raise self._died(ended)
            if _accepts(self._ports[CLIENT_LISTENER]) and _answers(self.bootstrap_servers):
                return
        raise self._died(f"it did not serve clients within {self._start_timeout_s:.0f} s")

    @abstractmethod
    def _ended(self, wait_s: float) -> str | None:
        """How the starting process ended, within `wait_s` from now; None while it runs."""

    @abstractmethod
    def _died(self, what: str) -> BrokerDiedError:
        """The error that names the node, `what` became of it, and the tail of its log."""


def tail_of(lines: Iterable[str]) -> list[str]:
    """The last lines of a log, without the frames of stack traces: they would crowd out the reason."""
    return [line for line in lines if not line.startswith("\tat ")][-TAIL_LINES:]


def _accepts(port: int) -> bool:
    """True if something listens on `port` of the loopback interface."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _answers(bootstrap_servers: str) -> bool:
    """True if a broker serves clients there; says no within two seconds."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        return len(admin.list_topics(timeout=2).brokers) > 0
    except KafkaException:
        return False
