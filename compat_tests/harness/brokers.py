"""Where the suite's Kafka comes from: `--broker auto`, `testcontainers`, `process`, or `HOST:PORT`.

*Guarantees*: one broker per session (each worker of pytest-xdist has one), taken away at its end. It deletes by age
each second, so that no case passes because the broker hasn't looked yet. A broker of the user's is left as it was,
except for topics whose deletion failed.
*Assumes*: a broker of the user's allows session timeouts of 6 s (Kafka's default).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from compat_tests.containers.container import KafkaContainer, why_none
from compat_tests.network.proxy import KafkaProxy
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.embedded.properties import DELETES_BY_AGE

PROXIED = "PROXIED"
Own: TypeAlias = EmbeddedKafka | KafkaContainer
"""In a child process, or in a container."""


class Broker:
    """A Kafka, and what can be done to it: to one of yours, nothing. `proxy`: in front of one of the session's own:
    clients that use its `bootstrap_servers` go through it."""

    def __init__(self, bootstrap_servers: str, kafka: Own | None = None, proxy: KafkaProxy | None = None) -> None:
        self.bootstrap_servers, self._kafka, self.proxy = bootstrap_servers, kafka, proxy

    @property
    def has_faults(self) -> bool:
        """Whether the calls below do anything, and there is a proxy."""
        return self._kafka is not None

    @property
    def _own(self) -> Own:
        if self._kafka is None:
            raise NotImplementedError("an external broker has no fault controls")
        return self._kafka

    def kill(self) -> None:
        self._own.kill()

    def start(self) -> None:
        self._own.start()

    def pause(self) -> None:
        self._own.pause()

    def resume(self) -> None:
        self._own.unpause()


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
        yield Broker(choice)
        return
    properties = {**DELETES_BY_AGE, **(properties or {})}
    with KafkaProxy() as proxy:
        listeners, advertised = {PROXIED: "PLAINTEXT"}, {PROXIED: proxy.port}
        kafka: Own
        if choice == "testcontainers":
            kafka = KafkaContainer(properties=properties, listeners=listeners, advertised=advertised)
        else:
            kafka = EmbeddedKafka(directory, properties=properties, listeners=listeners, advertised=advertised)
        with kafka:
            proxy.connect_to(kafka.address(PROXIED))
            yield Broker(kafka.bootstrap_servers, kafka, proxy)
