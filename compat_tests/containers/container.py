"""Apache Kafka in a container, with the controls of `EmbeddedKafka`: one KRaft node, by testcontainers.

The container runs either the official image or the one of `image.py`: both keep Kafka's jars in `/opt/kafka/libs`.
The node listens on the same port inside as it is published at outside, so that the address it advertises is right for
clients, and for itself when it sends transaction markers. The port is ours to choose: one that Docker maps by itself
would change with each restart.

*Guarantees*: published on the loopback interface only. `start` returns when clients are served. After `kill` or `stop`,
`start` brings the same data back on the same ports, transactions in the middle of their completion included. The
container never outlives its owner, even one that dies by `kill -9`.
*Assumes*: the Docker engine runs on this machine. One thread uses a `KafkaContainer` at a time.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

# Read by testcontainers when it is imported: loopback only, and no container but ours.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
os.environ.setdefault("TC_HOST", "127.0.0.1")

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from testcontainers.core.container import DockerContainer

from compat_tests.containers import watchdog
from compat_tests.containers.image import BUILD_COMMAND, JARS, LOCAL_IMAGE, OFFICIAL_IMAGE
from milestones.common.kafka.embedded import BrokerDiedError, EmbeddedKafkaError
from milestones.common.kafka.embedded.broker import cluster_id
from milestones.common.kafka.embedded.node import TAIL_LINES, SingleNode, tail_of
from milestones.common.kafka.embedded.properties import (
    CLEAN_SHUTDOWN,
    CONTROLLER_LISTENER,
    FENCED,
    FENCING_S,
    HOST,
    controller_properties,
    logging_properties,
    properties_text,
    server_properties,
)

IMAGE_VARIABLE = "MILESTONES_KAFKA_IMAGE"
_HOME = PurePosixPath("/kafka")
_STOP_TIMEOUT_S = 30
START_S = 120.0
_PING_TIMEOUT_S = 5
_FREEZES = 5
_LOG_OPTIONS = {"max-size": "20m", "max-file": "3"}
_START = """#!/bin/sh
set -eu
cd {home}
run() {{ exec java -Dlog4j2.configurationFile=file:{home}/log4j2.properties {jvm} -cp '{jars}/*' "$@"; }}
if [ ! -e data/meta.properties ]; then
    (run kafka.tools.StorageTool format -t {cluster} -c server.properties)
elif [ ! -e data/{clean} ]; then
    : > fencing.log  # before the controller is there: what a former one said isn't taken for this one's
    (run kafka.Kafka controller.properties) >> fencing.log 2>&1 &
    controller=$!
    for _ in $(seq {fencing_tenths}); do
        if grep -q '{fenced}' fencing.log || ! kill -0 $controller; then break; fi
        sleep 0.1
    done
    kill $controller && wait $controller || true
fi
run kafka.Kafka server.properties
"""


def start_script(home: PurePosixPath, jvm_options: Sequence[str]) -> str:
    """What the container runs at each start; `home`: the folder of the settings and the data."""
    return _START.format(
        home=home, jars=JARS, jvm=" ".join(jvm_options), cluster=cluster_id(), clean=CLEAN_SHUTDOWN,
        fenced=FENCED, fencing_tenths=10 * FENCING_S,
    )  # fmt: skip


class ContainerError(EmbeddedKafkaError):
    """No container can be had; the message says why and what to do."""


def why_none(download: bool = False) -> str | None:
    """Why no Kafka container can be started here; None when one can. `download`: an image may be pulled for it."""
    with warnings.catch_warnings():
        # Docker's client forgets to close a socket that it couldn't connect.
        warnings.simplefilter("ignore", ResourceWarning)
        reason = _why_none(download)
        gc.collect()
    return reason


def _why_none(download: bool) -> str | None:
    try:
        with contextlib.closing(docker.from_env(timeout=_PING_TIMEOUT_S)) as client:
            client.ping()
            if download or os.environ.get(IMAGE_VARIABLE) or _first_present(client) is not None:
                return None
    except (DockerException, RequestException) as error:
        return f"the Docker engine doesn't answer ({_brief(error)})"
    return f"there is neither {LOCAL_IMAGE} (built by `{BUILD_COMMAND}`) nor {OFFICIAL_IMAGE}"


def choose_image() -> str:
    """The image named by `MILESTONES_KAFKA_IMAGE`, else the one built here, else the official one, to be pulled."""
    if named := os.environ.get(IMAGE_VARIABLE):
        return named
    with _docker_errors("look for images"), contextlib.closing(docker.from_env()) as client:
        return _first_present(client) or OFFICIAL_IMAGE


def _first_present(client: Any) -> str | None:
    for image in (LOCAL_IMAGE, OFFICIAL_IMAGE):
        with contextlib.suppress(ImageNotFound):
            client.images.get(image)
            return image
    return None


class KafkaContainer(SingleNode):
    """The broker in a container of its own, as `SingleNode` says."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(None, properties, listeners, advertised, (), START_S)
        self._image = ""
        self._testcontainer: DockerContainer | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    @property
    def name(self) -> str:
        """The container's name, for `docker logs` and the like."""
        return str(self._container.name)

    @property
    def running(self) -> bool:
        return self._status() in ("running", "paused")

    def _start(self) -> None:
        self._started = time.time()
        if self._testcontainer is None:
            self._ports = {}
            self._on_ports(self._create, self.close)
        else:
            with _docker_errors(f"start {self.name} again"):
                self._container.start()
        self._await_ready(time.monotonic() + self._start_timeout_s)

    def stop(self) -> None:
        self.unpause()
        if self.running:
            with _docker_errors(f"stop {self.name}"):
                self._container.stop(timeout=_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the broker as `kill -9` does; its data stay as they are."""
        if not self.running:
            return
        with _docker_errors(f"kill {self.name}"):
            self._container.kill()
            self._container.wait(timeout=_STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Make the broker stand still: connections stay open, nothing is answered. Dead: nothing happens."""
        if self._status() == "running":
            with _docker_errors(f"pause {self.name}"):
                self._freeze()

    def _freeze(self) -> None:
        """On a busy machine the engine may see new threads come while it stops the others; then it undoes all."""
        for left in reversed(range(_FREEZES)):
            try:
                self._container.pause()
                return
            except APIError as error:
                if not left or "freeze" not in str(error):
                    raise

    def unpause(self) -> None:
        """Let a paused broker go on."""
        if self._status() == "paused":
            with _docker_errors(f"unpause {self.name}"):
                self._container.unpause()

    def log_tail(self) -> str:
        """The last lines of the broker's log."""
        if self._testcontainer is None:
            return ""
        with _docker_errors(f"read the log of {self.name}"):
            lines = self._container.logs(tail=20 * TAIL_LINES).decode("utf-8", "replace").splitlines()
        return "\n".join(tail_of(lines))

    def close(self) -> None:
        """Remove the container and its data. May be called twice."""
        container, self._testcontainer = self._testcontainer, None
        removed = True
        try:
            if container is not None:
                with _docker_errors("remove the container"):
                    container.stop()
        except EmbeddedKafkaError:
            removed = False
            raise
        finally:
            self._end_watchdog(removed)

    # ---- how it is done

    @property
    def _container(self) -> Any:
        if self._testcontainer is None:
            raise EmbeddedKafkaError("the container exists only between start and close")
        return self._testcontainer.get_wrapped_container()

    def _status(self) -> str:
        if self._testcontainer is None:
            return "none"
        with _docker_errors("ask for the container's state"):
            self._container.reload()
        return str(self._container.status)

    def _create(self) -> None:
        self._image, name = choose_image(), f"milestones-kafka-{uuid.uuid4().hex[:12]}"
        self._watch(name)
        self._testcontainer = self._described(name)
        with _docker_errors(f"start a container of {self._image}"):
            self._testcontainer.start()

    def _described(self, name: str) -> DockerContainer:
        with _docker_errors("reach the Docker engine"):
            container = DockerContainer(self._image)
        container.with_name(name).with_kwargs(
            entrypoint=["sh", str(_HOME / "start.sh")],
            user="root",  # the official image's own user can't write where the settings are
            network="bridge",
            log_config={"type": "json-file", "config": _LOG_OPTIONS},
        )
        for listener, port in self._ports.items():
            if listener != CONTROLLER_LISTENER:
                container.ports[f"{port}/tcp"] = (HOST, port)  # type: ignore[assignment]  # Docker takes an address, too
        for path, text in self._files().items():
            container.with_copy_into_container(text.encode("ascii"), str(_HOME / path))
        return container

    def _files(self) -> dict[str, str]:
        """What is put into the container before its first start, by path under its home."""
        anywhere = {name: HOST if name == CONTROLLER_LISTENER else "0.0.0.0" for name in self._ports}
        listeners = ",".join(f"{name}://{host}:{self._ports[name]}" for name, host in anywhere.items())
        settings = {"listeners": listeners, **self._properties}
        data = Path(str(_HOME / "data"))
        properties = server_properties(data, self._ports, self._protocols, settings, self._advertised)
        return {
            "server.properties": properties_text(properties),
            "controller.properties": properties_text(controller_properties(properties)),
            "log4j2.properties": properties_text(logging_properties(None)),
            "start.sh": start_script(_HOME, self._jvm_options),
        }

    def _ended(self, wait_s: float) -> str | None:
        if not self.running:
            return f"it ended within {time.time() - self._started:.0f} s of its start"
        time.sleep(wait_s)
        return None

    def _died(self, what: str) -> BrokerDiedError:
        tail = self.log_tail() or "(nothing)"
        return BrokerDiedError(
            f"the broker on {self.bootstrap_servers} in the container {self.name} of {self._image} could not be used: "
            f"{what}. Its log ends with\n{tail}"
        )

    def _watch(self, name: str) -> None:
        script = str(Path(watchdog.__file__).resolve())
        self._watchdog = subprocess.Popen(
            [sys.executable, "-P", script, name], stdin=subprocess.PIPE, start_new_session=True
        )

    def _end_watchdog(self, removed: bool) -> None:
        process, self._watchdog = self._watchdog, None
        if process is not None:
            process.communicate(watchdog.REMOVED if removed else b"")


@contextmanager
def _docker_errors(what: str) -> Iterator[None]:
    """What Docker and its client raise becomes a `ContainerError`."""
    try:
        yield
    except APIError as error:
        unpulled = isinstance(error, ImageNotFound) or "images/create" in str(error)
        hint = f". Build an image (`{BUILD_COMMAND}`), or name one that is there with {IMAGE_VARIABLE}"
        raise ContainerError(f"couldn't {what}: {_brief(error)}{hint if unpulled else ''}") from error
    except (DockerException, RequestException) as error:
        raise ContainerError(f"couldn't {what}, is the Docker engine running? {_brief(error)}") from error


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:600]
