"""A run on Spark as a process of its own, with executors that can be struck one by one.

*Guarantees*: every process that was started is ended, executors and their workers too.
*Assumes*: `python -m compat_tests.spark.app`; executors on this machine (`local-cluster`).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]

from compat_tests.harness.instance import Instance
from compat_tests.harness.world import SETTINGS, World
from compat_tests.spark.running import GATHERED, WRITTEN

EXECUTOR, WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"
CLUSTER = "local-cluster[2,1,512]"
SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=200ms",
    "spark.speculation.quantile=0.1",
    "spark.speculation.multiplier=1.2",
    "spark.speculation.minTaskRuntime=1s",
)


class SparkProcess(Instance):
    """The driver's process. `settings`: Spark's."""

    def __init__(
        self, world: World, topology: str, mode: str, *settings: str, master: str = CLUSTER, **config: Any
    ) -> None:
        small = ("spark.executor.memory=512m", "spark.driver.memory=512m")
        self.entry = ("compat_tests.spark.app", mode, master, *small, *settings)
        complete: Mapping[str, Any] = {
            "application_id": world.application_id,
            "bootstrap_servers": world.cluster.bootstrap_servers,
            "processing_guarantee": world.guarantee,
            **SETTINGS,
            "state_dir": str(world.directory / WRITTEN),
            **config,
        }
        super().__init__("spark", topology, complete, world.directory)
        self.state_dir = world.directory / GATHERED
        self._seen: dict[int, psutil.Process] = {}
        world.instances.append(self)

    def executors(self) -> list[psutil.Process]:
        """The executors that live, in the order in which they were started."""
        found = [child for child in self._children() if EXECUTOR in _command(child)]
        return sorted(found, key=lambda child: child.pid)

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


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(process.cmdline())
    return ""

