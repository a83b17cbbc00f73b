"""An instance of the application on Kafka Streams: a real process, as `Instance` is one of ours.

*Guarantees*: every process that was started is ended; its log is kept.
*Assumes*: the jars can be had (by their Maven coordinates, once), and a Java 17 or newer is there.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Self

from compat_tests.harness.instance import ROOT, Instance, environment
from compat_tests.harness.world import World
from compat_tests.java.jvm import compiled
from compat_tests.oracles.findings import Findings
from compat_tests.takeover.parts import Application
from milestones.common.kafka.embedded.jars import KAFKA_VERSION, resolve
from milestones.common.kafka.embedded.java import find_java

SOURCES = Path(__file__).parent / "src"
JARS = (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36")
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.showDateTime=true")
STAYS = "take.over.stay"
"""The setting with which an instance that ends stays a member of its group, as is Kafka Streams' default."""
SERDE = "org.apache.kafka.common.serialization.Serdes$StringSerde"


def java_class_path() -> tuple[Path, str]:
    """The `java` to run with, and the class path. `JavaNotFoundError`, `JarsError`, `BenchError`."""
    java = find_java()
    return java, compiled(java, SOURCES, resolve(f"kafka-streams-{KAFKA_VERSION}", JARS), "take-over")


class JavaInstance(Instance):
    """A process that may be started again and again, on the same state directory."""

    def __init__(
        self, world: World, application: Application, name: str, application_id: str = "", **settings: Any
    ) -> None:
        """`settings`: Kafka Streams', with underscores, beyond those of `SETTINGS`."""
        app = application_id or world.application_id
        super().__init__(name, "", {}, world.directory)
        self._application = application
        self.java_state_dir = world.directory / f"{name}-of-java"
        """Not `state_dir`: nobody is to look for our stores there."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self._settings: dict[str, Any] = {
            "application.id": app,
            "client.id": name,
            "bootstrap.servers": world.cluster.bootstrap_servers,
            "processing.guarantee": world.guarantee,
            "state.dir": self.java_state_dir,
            "commit.interval.ms": 100,
            "statestore.cache.max.bytes": 0,
            "num.stream.threads": 1,
            "default.key.serde": SERDE,
            "default.value.serde": SERDE,
            "consumer.auto.offset.reset": "earliest",
            "consumer.session.timeout.ms": 6_000,
            "consumer.heartbeat.interval.ms": 500,
            "producer.transaction.timeout.ms": 20_000,  # a JVM that warms up on a busy machine needs more than 5 s
            "__emit.interval.ms.kstreams.windowed.aggregation__": 0,
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
            **named,
        }
        world.instances.append(self)

    def start(self, *_: Any, stays: bool = False, **changes: Any) -> Self:
        """Start the process. `stays`: as `STAYS`."""
        assert not self.running, f"{self} runs already"
        java, path = java_class_path()
        settings = {**self._settings, **changes, STAYS: str(stays).lower()}
        file = self._directory / f"{self.name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        parts, application = ",".join(self._application.parts), self._application
        program = ["TakeOver", str(file), application.inputs, parts, str(application.pause_us)]
        command = [str(java), *JVM, "-cp", path, *program]
        self.starts += 1
        self.may_end = False
        with self.log_file.open("ab") as log:
            log.write(f"---- start {self.starts}: {' '.join(command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment(None), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self

    def write_stacks(self) -> None:
        """A JVM writes its stacks at SIGQUIT, which is no help here: its log says what it does."""

    def disk_use(self) -> Findings:
        return []

    def leftovers(self) -> Findings:
        return []
