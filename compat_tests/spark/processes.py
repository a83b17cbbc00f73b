"""A run on Spark as a process of its own, with executors that can be struck one by one.

*Guarantees*: every process that was started is ended, executors and their workers too.
*Assumes*: `python -m compat_tests.spark.app`; executors on this machine (`local-cluster`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from compat_tests.harness.instance import ROOT, Instance
from compat_tests.harness.world import World
from compat_tests.oracles.findings import Findings
from compat_tests.spark.running import GATHERED, WRITTEN
from milestones.common.kafka.embedded.ports import free_port
from milestones.testing import until

EXECUTOR, WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"
CLUSTER = "local-cluster[2,1,512]"
SOON_LOST = (
    "spark.executor.heartbeatInterval=1s",
    "spark.network.timeout=8s",
    "spark.network.timeoutInterval=1s",
)
"""An executor that stands still counts as lost after some seconds."""
SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=200ms",
    "spark.speculation.quantile=0.1",
    "spark.speculation.multiplier=1.2",
    "spark.speculation.efficiency.enabled=false",
)
"""A task that takes longer than others is started once more, on another host."""
TWO_HOSTS = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")
"""Where executors on `two_hosts` find the driver: elsewhere it would have an address of the network."""
START_S = 120.0


class SparkProcess(Instance):
    """The driver's process. `settings`: Spark's."""

    def __init__(
        self, world: World, topology: str, mode: str, *settings: str, master: str = CLUSTER, **config: Any
    ) -> None:
        small = ("spark.executor.memory=512m", "spark.driver.memory=512m")
        self.entry = ("compat_tests.spark.app", mode, master, *small, *settings)
        complete = {**world.settings, "state_dir": str(world.directory / WRITTEN), **config}
        super().__init__("spark", topology, complete, world.directory)
        self.state_dir = world.directory / GATHERED
        self._seen: dict[int, psutil.Process] = {}
        world.instances.append(self)

    def leftovers(self) -> Findings:
        """Nothing is said about a process that is Spark's."""
        return []

    def executors(self) -> list[psutil.Process]:
        """The executors that live, wherever they were started."""
        self._children()
        return [one for one in psutil.process_iter() if EXECUTOR in (line := _command(one)) and self._mine(line)]

    def _mine(self, command: str) -> bool:
        """An executor is told the address of its driver."""
        ports = {f":{at.laddr.port}" for child in self._children() for at in _listening(child)}
        return any(port in command for port in ports)

    def workers(self, executor: psutil.Process) -> list[psutil.Process]:
        """The Python processes that run tasks of an executor; not the one that forks them."""
        found = [child for child in executor.children(recursive=True) if WORKER in _command(child)]
        return [child for child in found if not child.children()]

    def _children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                self._seen[child.pid] = child
        return [child for child in self._seen.values() if child.is_running()]

    def end(self) -> None:
        self._children()
        super().end()
        for child in self._seen.values():
            with suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGKILL)
        psutil.wait_procs(list(self._seen.values()), timeout=10)


@contextmanager
def two_hosts(directory: Path) -> Iterator[str]:
    """A cluster of Spark's own kind with a worker of one core on each of two hosts, both of them this machine; its
    URL."""
    from milestones.pipeline.session import prepare

    prepare(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_LOCAL_IP", None)
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    commands = {
        "Master": ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        **{
            host: ["worker.Worker", "--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0",
                   "--work-dir", str(directory / f"work-{host}"), url]
            for host in ("127.0.0.2", "127.0.0.3")
        },
    }  # fmt: skip
    with ExitStack() as running:
        for name, (kind, *arguments) in commands.items():
            log_file = directory / f"{name}.log"
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [f"{os.environ['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
                    env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            running.callback(_end, process)
            ready = "I have been elected leader" if name == "Master" else "Successfully registered"
            until(lambda text=ready, file=log_file: text in file.read_text(), f"{name} is up", START_S)  # type: ignore[misc]
        yield url


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=10)
    process.wait()


def _listening(process: psutil.Process) -> list[Any]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return [at for at in process.net_connections("tcp") if at.status == psutil.CONN_LISTEN]
    return []


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(process.cmdline())
    return ""

