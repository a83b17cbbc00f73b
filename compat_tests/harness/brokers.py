"""Where the suite's Kafka comes from: `--broker auto`, `testcontainers`, `process`, or `HOST:PORT`.

*Guarantees*: one broker per session (each worker of pytest-xdist has one), taken away at its end; a broker of the
user's is left as it was, but for topics whose deletion failed.
*Assumes*: a broker of the user's allows session timeouts of 6 s (Kafka's default).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from compat_tests.containers.container import KafkaContainer, why_none
from compat_tests.network.proxy import KafkaProxy
from milestones.common.kafka.embedded import EmbeddedKafka

PROXIED = "PROXIED"


class Broker(Protocol):
    """A Kafka, and what can be done to it."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def has_faults(self) -> bool:
        """Whether the calls below do anything, and there is a proxy."""
        ...

    @property
    def proxy(self) -> KafkaProxy | None:
        """In front of the broker: clients that use its `bootstrap_servers` go through it."""
        ...

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class OwnBroker:
    """A broker of the session's own, in a container or a child process, with a proxy in front of a second listener."""

    has_faults = True

    def __init__(self, kafka: EmbeddedKafka | KafkaContainer, proxy: KafkaProxy, title: str) -> None:
        self._kafka, self.proxy, self.title = kafka, proxy, title

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.bootstrap_servers

    def kill(self) -> None:
        self._kafka.kill()

    def start(self) -> None:
        self._kafka.start()

    def pause(self) -> None:
        self._kafka.pause()

    def resume(self) -> None:
        self._kafka.unpause()


class ExternalBroker:
    """Somebody else's: nothing is done to it."""

    has_faults = False
    proxy = None

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.title = f"broker at {bootstrap_servers}"

    def kill(self) -> None:
        raise NotImplementedError("an external broker has no fault controls")

    start = pause = resume = kill


def resolve(choice: str) -> tuple[str, str]:
    """What `--broker` means on this machine, and why, for the header. Containers asked for by name must be possible."""
    if choice == "testcontainers" and (reason := why_none(download=True)):
        raise pytest.UsageError(f"--broker testcontainers: {reason}")
    if choice != "auto":
        return choice, ""
    if reason := why_none():
        return "process", f"no testcontainers, the embedded broker takes their place: {reason}"
    return "testcontainers", ""


def is_own(choice: str) -> bool:
    """Whether each session starts a broker for itself."""
    return choice in ("process", "testcontainers")


@contextmanager
def running(choice: str, directory: Path, properties: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A broker as `--broker` asked for, until the end of the block. `properties`: settings of Kafka's, which one of
    yours doesn't take."""
    if not is_own(choice):
        yield ExternalBroker(choice)
        return
    with KafkaProxy() as proxy:
        listeners, advertised = {PROXIED: "PLAINTEXT"}, {PROXIED: proxy.port}
        kafka: EmbeddedKafka | KafkaContainer
        if choice == "testcontainers":
            kafka = KafkaContainer(properties=properties, listeners=listeners, advertised=advertised)
        else:
            kafka = EmbeddedKafka(directory, properties=properties, listeners=listeners, advertised=advertised)
        with kafka:
            proxy.connect_to(kafka.address(PROXIED))
            title = f"container {kafka.name}" if isinstance(kafka, KafkaContainer) else f"process {kafka.pid}"
            yield OwnBroker(kafka, proxy, title)
