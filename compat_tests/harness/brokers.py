"""Where the suite's Kafka comes from: `--broker process`, `testcontainers`, or `HOST:PORT`.

*Guarantees*: one broker per session, taken away at its end; a broker of the user's is left as it was, but for topics
whose deletion failed.
*Assumes*: a broker of the user's allows session timeouts of 6 s (Kafka's default).
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from milestones.common.kafka.embedded import EmbeddedKafka


class Broker(Protocol):
    """A Kafka, and what can be done to it."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def has_faults(self) -> bool:
        """Whether the calls below do anything."""
        ...

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class ProcessBroker:
    """The embedded broker: Apache Kafka as a child process."""

    has_faults = True

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._kafka = kafka
        self.title = f"embedded broker, process {kafka.pid}"

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.bootstrap_servers

    def kill(self) -> None:
        self._kafka.kill()

    def start(self) -> None:
        self._kafka.start()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._kafka.pid is not None:
            os.kill(self._kafka.pid, number)


class ExternalBroker:
    """Somebody else's: nothing is done to it."""

    has_faults = False

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.title = f"broker at {bootstrap_servers}"

    def kill(self) -> None:
        raise NotImplementedError("an external broker has no fault controls")

    start = pause = resume = kill


def resolve(choice: str) -> tuple[str, str]:
    """What `--broker` means on this machine, and why, for the header."""
    if choice != "testcontainers" or shutil.which("docker"):
        return choice, ""
    return "process", "Docker is missing, so testcontainers can't run: the embedded broker takes its place"


@contextmanager
def running(choice: str, directory: Path) -> Iterator[Broker]:
    """A broker as `--broker` asked for, until the end of the block."""
    if choice == "process":
        with EmbeddedKafka(directory) as kafka:
            yield ProcessBroker(kafka)
    elif choice == "testcontainers":
        from compat_tests.harness.container import ContainerBroker

        with ContainerBroker() as container:
            yield container
    else:
        yield ExternalBroker(choice)
