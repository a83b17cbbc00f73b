"""`SingleNode`: the base class of brokers with one Kafka node, in a child process or in a container.

*Guarantees*: if another process takes a port just before the node's start, other ports are tried, unless the caller has
named a port.
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

# A small heap, one garbage collector thread, only the fast compiler: a fast start is more important than throughput.
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
TAIL_LINES = 25
_PORT_ATTEMPTS = 3
_PAUSE_S = 0.05
_PORT_LOST = ("Address already in use", "address already in use", "port is already allocated")
"""The texts with which Kafka and Docker report that another process uses a port."""


class SingleNode(ABC):
    """A Kafka broker with one node. As a context manager it starts the broker, and closes it at the end of the block.

    `port`: the port of the plain-text listener; None means a free port. `properties`: Kafka's broker settings, which
    replace the settings made here. `listeners`: additional listeners and their security protocols, such as
    `{"SECURE": "SASL_PLAINTEXT"}`. `address` returns their addresses. `advertised`: for a listener, the loopback port
    of a proxy, which the broker names to clients instead of the listener's own port.
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
        """The address of the plain-text listener, as `host:port`."""
        return self.address(CLIENT_LISTENER)

    def address(self, listener: str) -> str:
        """Returns the address of a listener, as `host:port`. Addresses are known from the first start on."""
        if listener not in self._ports:
            known = ", ".join(self._ports) or "none before the first start"
            raise EmbeddedKafkaError(f"no listener {listener!r}: there are {known}")
        return f"{HOST}:{self._ports[listener]}"

    @property
    @abstractmethod
    def running(self) -> bool:
        """True while the broker's process exists, even if the process is paused."""

    def start(self) -> None:
        """Start the broker and wait until it serves clients. Raises `EmbeddedKafkaError`."""
        if self.running:
            raise EmbeddedKafkaError(f"the broker on {self.bootstrap_servers} runs already")
        self._start()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Shut the broker down cleanly, and keep its data. If this takes longer than 30 s, the broker is killed."""

    def restart(self) -> None:
        """Stop the broker if it is running, then start it with the same data and ports."""
        self.stop()
        self.start()

    @abstractmethod
    def close(self) -> None:
        """End the broker, and don't use this object any more. A second call is harmless."""

    # ---- for subclasses, which start the process

    def _on_ports(self, launch: Callable[[], None], undo: Callable[[], None]) -> None:
        """Call `launch` on the ports of the last start, or on free ports. After an error, call `undo`. If another
        process has just taken one of the ports, try other ports, unless the caller has named a port."""
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
        """Wait until the broker serves clients. Raises `BrokerDiedError` if it ends, or isn't ready at `deadline` (in
        the time of `time.monotonic`)."""
        while time.monotonic() < deadline:
            if (ended := self._ended(_PAUSE_S)) is not None:
                raise self._died(ended)
            if _accepts(self._ports[CLIENT_LISTENER]) and _answers(self.bootstrap_servers):
                return
        raise self._died(f"it did not serve clients within {self._start_timeout_s:.0f} s")

    @abstractmethod
    def _ended(self, wait_s: float) -> str | None:
        """Wait at most `wait_s` for the end of the starting process. Returns a text about its end, or None if it is
        still running."""

    @abstractmethod
    def _died(self, what: str) -> BrokerDiedError:
        """Returns the error about a broker that can't be used. Its text names the broker, the reason `what`, and the
        last lines of the log."""


def tail_of(lines: Iterable[str]) -> list[str]:
    """Returns the last lines of a log. Frames of stack traces are left out, so that the reason of an error is shown."""
    return [line for line in lines if not line.startswith("\tat ")][-TAIL_LINES:]


def _accepts(port: int) -> bool:
    """True if a process listens on `port` of the loopback interface."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _answers(bootstrap_servers: str) -> bool:
    """True if a broker at this address serves clients. Returns False after two seconds without an answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        return len(admin.list_topics(timeout=2).brokers) > 0
    except KafkaException:
        return False
