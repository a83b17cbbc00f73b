"""Kafka in a container, by testcontainers: the official `apache/kafka` image, or one of the same layout.

`MILESTONES_KAFKA_IMAGE` names it; the default is what `harness/build_image.sh` builds. Both keep Kafka's jars in
`/opt/kafka/libs`. The container waits for a start script, which is put in once the mapped port is known, so that the
advertised listener is right.

*Guarantees*: reachable on loopback only; removed at the end, whatever happened.
*Assumes*: a Docker engine runs, and has the image or may pull it.
"""

from __future__ import annotations

import io
import os
import tarfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from compat_tests.harness.waiting import until
from milestones.common.kafka.embedded.properties import properties_text, server_properties

IMAGE = "milestones/kafka:local"
PORT, CONTROLLER_PORT = 9092, 9094
START_S = 120.0

_WAIT = "while [ ! -f /start.sh ]; do sleep 0.05; done; exec sh /start.sh"
_START = """cat > /tmp/server.properties <<'END'
{properties}END
cp='/opt/kafka/libs/*'
java -cp "$cp" kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c /tmp/server.properties
exec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$cp" kafka.Kafka /tmp/server.properties
"""


class ContainerBroker(AbstractContextManager["ContainerBroker"]):
    """A broker in a container."""

    has_faults = True

    def __init__(self) -> None:
        # Read by testcontainers when it is imported: traffic goes to loopback, nothing but our container is started.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        os.environ.setdefault("TC_HOST", "127.0.0.1")
        from testcontainers.core.container import DockerContainer

        image = os.environ.get("MILESTONES_KAFKA_IMAGE", IMAGE)
        self.title = f"container of {image}"
        self._container: Any = DockerContainer(image)
        self._container.with_bind_ports(f"{PORT}/tcp", ("127.0.0.1", None))  # type: ignore[arg-type]
        self._container.with_kwargs(entrypoint=["sh", "-c", _WAIT])
        self.bootstrap_servers = ""

    def __enter__(self) -> ContainerBroker:
        self._container.start()
        try:
            port = int(self._container.get_exposed_port(PORT))
            self.bootstrap_servers = f"127.0.0.1:{port}"
            self._put_start_script(port)
            self._await_ready()
        except BaseException:
            self._container.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._container.stop()

    def _put_start_script(self, port: int) -> None:
        ports = {"PLAINTEXT": port, "CONTROLLER": CONTROLLER_PORT}
        protocols = dict.fromkeys(ports, "PLAINTEXT")
        inside = {"listeners": f"PLAINTEXT://0.0.0.0:{PORT},CONTROLLER://127.0.0.1:{CONTROLLER_PORT}"}
        properties = server_properties(Path("/tmp/kafka"), ports, protocols, inside)
        script = _START.format(properties=properties_text(properties)).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo("start.sh")
            entry.size = len(script)
            tar.addfile(entry, io.BytesIO(script))
        self._container.get_wrapped_container().put_archive("/", archive.getvalue())

    def _await_ready(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

        def answers() -> bool:
            try:
                return bool(admin.list_topics(timeout=2).brokers)
            except KafkaException:
                return False

        until(answers, f"{self.title} answers on {self.bootstrap_servers}", START_S)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def start(self) -> None:
        """Again, after `kill`: the same data, the same port."""
        self._container.get_wrapped_container().start()
        self._await_ready()

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        self._container.get_wrapped_container().unpause()
