"""`EmbeddedKafka`: runs Apache Kafka as a child process with one KRaft node, for tests, demos and development.

*Guarantees*: `start` returns when the broker serves clients. The broker never outlives the process that started it,
even if that process dies by `kill -9`. A temporary data directory is deleted with the broker; one given by the caller
is kept. After `kill` or `stop`, `start` runs the broker with the same data on the same ports.
*Assumes*: one thread uses an `EmbeddedKafka` at a time. No other program uses its data directory.

*Why this way*: tests need a real broker that can be killed and paused, on machines without Docker and without Java.
- A supervisor process starts the broker, because only another process can end the broker after `kill -9` of its owner.
- After a kill, a controller alone runs first, because Kafka may lose transactions if the broker restarts within its old
  session (`properties.controller_properties`).
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import shutil
import signal
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from milestones.common.kafka.embedded.errors import BrokerDiedError, EmbeddedKafkaError
from milestones.common.kafka.embedded.jars import kafka_jars
from milestones.common.kafka.embedded.java import find_java
from milestones.common.kafka.embedded.lock import locked
from milestones.common.kafka.embedded.node import SingleNode, tail_of
from milestones.common.kafka.embedded.process import SupervisedProcess
from milestones.common.kafka.embedded.properties import (
    CLEAN_SHUTDOWN,
    FENCED,
    FENCING_S,
    controller_properties,
    logging_properties,
    properties_text,
    server_properties,
)

_STOP_TIMEOUT_S = 30.0
_TAIL_BYTES = 65_536
_LOOK_PAUSE_S = 0.05

_open: weakref.WeakSet[EmbeddedKafka] = weakref.WeakSet()


class EmbeddedKafka(SingleNode):
    """A Kafka broker that runs as a child process.

    `data_dir`: the directory for the broker's data, which is kept. None means a temporary directory, which is deleted
    by `close`. `log`: a function that gets a line of text at each step that takes time. `SingleNode` explains the other
    arguments.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, int] | None = None,
        jvm_options: Sequence[str] = (),
        start_timeout_s: float = 90,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(port, properties, listeners, advertised, jvm_options, start_timeout_s)
        self._temporary = data_dir is None
        self._data_dir = data_dir.absolute() if data_dir is not None else None
        self._log = log
        self._process: SupervisedProcess | None = None

    @property
    def data_dir(self) -> Path:
        """The directory with the broker's data, settings and log. A temporary one exists from the first start on."""
        if self._data_dir is None:
            raise EmbeddedKafkaError("the temporary data directory exists only between start and close")
        return self._data_dir

    @property
    def log_file(self) -> Path:
        """The path of the broker's log. The output of its JVM is in `jvm.log` in the same directory."""
        return self.data_dir / "kafka.log"

    @property
    def pid(self) -> int | None:
        """The process id of the broker, or None while the broker isn't running."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def _start(self) -> None:
        java, jars = find_java(), kafka_jars(self._log)
        _open.add(self)
        process = self._acquire()
        self._on_ports(lambda: self._launch(process, [str(java), *self._jvm_options, "-cp", f"{jars}/*"]), self.kill)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker as `kill -9` does. Its data stay as they are."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the broker (SIGSTOP): its connections stay open, but it answers nothing. Does nothing if the broker
        isn't running."""
        if self._process is not None:
            self._process.signal(signal.SIGSTOP)

    def unpause(self) -> None:
        """Resume a paused broker (SIGCONT)."""
        if self._process is not None:
            self._process.signal(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the broker ends. Returns its exit code, which is negative if a signal ended it. Returns None if
        the broker is still running after `timeout_s`."""
        return self._process.wait(timeout_s) if self._process is not None else None

    def close(self) -> None:
        """End the broker, and don't use this object any more. Temporary data are deleted without a clean shutdown.
        Other data are kept, after a clean shutdown."""
        process, self._process = self._process, None
        _open.discard(self)
        if process is not None:
            process.close()
        if self._temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.signal(how)
        self.unpause()  # a suspended process doesn't handle SIGTERM
        if self._process.wait(_STOP_TIMEOUT_S) is None and self._process.running:
            self._process.signal(signal.SIGKILL)
            self._process.wait(_STOP_TIMEOUT_S)

    def _launch(self, process: SupervisedProcess, java: list[str]) -> None:
        settings = self._write_settings()
        jvm_log = self.data_dir / "jvm.log"
        jvm_log.unlink(missing_ok=True)
        deadline = time.monotonic() + self._start_timeout_s
        data = self.data_dir / "data"
        new = not (data / "meta.properties").exists()
        unclean = not new and not (data / CLEAN_SHUTDOWN).exists()
        if new:
            self._log("formatting the broker's data directory")
            process.run([*java, "kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", settings], jvm_log)
            if process.wait(self._start_timeout_s) != 0:
                raise self._died("formatting its data directory failed")
        logging = f"-Dlog4j2.configurationFile={(self.data_dir / 'log4j2.properties').as_uri()}"
        node = [*java[:1], logging, *java[1:], "kafka.Kafka"]
        if unclean:
            self._end_former_session(process, node, jvm_log)
        self._log(f"starting Apache Kafka on {self.bootstrap_servers}")
        process.run([*node, settings], jvm_log)
        self._await_ready(deadline)
        self._log(f"Apache Kafka serves {self.bootstrap_servers} (process {process.pid}, log {self.log_file})")

    def _end_former_session(self, process: SupervisedProcess, node: list[str], jvm_log: Path) -> None:
        """Run the controller alone until it has ended the killed broker's session (see `controller_properties`)."""
        known = self.log_file.stat().st_size if self.log_file.exists() else 0
        process.run([*node, str(self.data_dir / "controller.properties")], jvm_log)
        deadline = time.monotonic() + FENCING_S
        while time.monotonic() < deadline and process.poll(_LOOK_PAUSE_S) is None:
            if FENCED.encode() in self._logged_since(known):
                break
        self._end(signal.SIGTERM)

    def _logged_since(self, size: int) -> bytes:
        """Returns the bytes that were added to the log since it had this size. If the log was rotated, returns all of
        the new log."""
        text = self.log_file.read_bytes() if self.log_file.exists() else b""
        return text[size:] if len(text) >= size else text

    def _acquire(self) -> SupervisedProcess:
        """Create the data directory if needed, lock it, and start the supervisor. Returns the supervised process."""
        if self._process is not None and not self._process.closed:
            return self._process
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="milestones-kafka-"))
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            with locked(self._data_dir / "in-use.lock") as lock:
                self._process = SupervisedProcess(self._data_dir if self._temporary else None, lock)
        except OSError as error:
            raise self._unusable(error) from error
        return self._process

    def _settings(self) -> dict[str, str]:
        data = self.data_dir / "data"
        return server_properties(data, self._ports, self._protocols, self._properties, self._advertised)

    def _write_settings(self) -> str:
        settings = self.data_dir / "server.properties"
        logging = logging_properties(self.log_file)
        try:
            (self.data_dir / "data").mkdir(exist_ok=True)
            settings.write_text(properties_text(self._settings()), "ascii")
            controller = properties_text(controller_properties(self._settings()))
            (self.data_dir / "controller.properties").write_text(controller, "ascii")
            (self.data_dir / "log4j2.properties").write_text(properties_text(logging), "ascii")
        except OSError as error:
            raise self._unusable(error) from error
        return str(settings)

    def _unusable(self, error: OSError) -> EmbeddedKafkaError:
        return EmbeddedKafkaError(f"the data directory {self._data_dir} can't be used: {error}")

    def _ended(self, wait_s: float) -> str | None:
        code = self._process.poll(wait_s) if self._process is not None else None
        return None if code is None else f"it ended with exit code {code} while starting"

    def _died(self, what: str) -> BrokerDiedError:
        tail = "\n".join(_tail(self.data_dir / "jvm.log") + _tail(self.log_file))
        return BrokerDiedError(
            f"the broker on {self.bootstrap_servers} with its data in {self.data_dir} could not be used: {what}. "
            f"Its logs end with\n{tail or '(nothing)'}"
        )


def cluster_id() -> str:
    """Returns a new cluster id in the form that Kafka's storage tool accepts."""
    # The storage tool would take a leading dash for an option.
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii")[1:22]


def _tail(path: Path) -> list[str]:
    """Returns the last lines of a log, or an empty list if the log doesn't exist."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return tail_of(lines)


@atexit.register
def _close_all() -> None:
    for broker in list(_open):
        with contextlib.suppress(Exception):
            broker.close()
