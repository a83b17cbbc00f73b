"""One instance: tasks of three stores, which each record writes.

`python -m benchmarks.opening.app CONFIG INPUT OUTPUT SLOW`. The last store of the task that the file SLOW names opens
slowly; if it says `calls`, a call of user code takes as long. The log has how long the loop let its group wait, and
each long commit; each of the log's lines begins with the time, s since the epoch.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.looks import watch_looks
from benchmarks.opening import CALLED, CALLS, LONG_S, OPEN, SLOW_S, STORES
from milestones import Processor, ProcessorContext, Record, StoreSpec, Streams, StreamsConfig, Topology, serdes
from milestones.common.state.task_storage import LocalTaskStorage
from milestones.stream_thread.commits.driver import CommitDriver
from milestones.stream_thread.tasks import ThreadTasks

P = ParamSpec("P")
T = TypeVar("T")
LEVEL = os.environ.get("OPENING_LOG_LEVEL", "INFO")
log = logging.getLogger("benchmarks.opening")


class InEachStore(Processor):
    """Writes each record into all stores, and forwards it."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._stores = [context.get_state_store(name) for name in STORES]

    def process(self, record: Record) -> None:
        for store in self._stores:
            store.put(record.key, record.value)
        self.context.forward(record)


def topology(source: str, output: str) -> Topology:
    """What is executed. The key's beginning is its partition, so that no task shares an output partition."""
    made = (
        Topology()
        .add_source("in", source, key=serdes.STRING, value=serdes.BYTES)
        .add_processor("in-each-store", InEachStore, "in")
    )
    for name in STORES:
        made.add_state_store(StoreSpec(name, key_serde=serdes.STRING, value_serde=serdes.BYTES), "in-each-store")
    return made.add_sink(
        "out", output, "in-each-store", key=serdes.STRING, value=serdes.BYTES,
        partitioner=lambda _topic, key, _value, _count: int(key.partition("-")[0]),
    )  # fmt: skip


def says(slow: Path, what: str) -> bool:
    """Whether the file is there, and says so."""
    return slow.exists() and slow.read_text() == what


def slow_opening(slow: Path) -> None:
    """From now on the last store of the task that the file names takes long to open."""
    opened = LocalTaskStorage.open

    def open_slowly(storage: LocalTaskStorage, spec: StoreSpec) -> None:
        slowly = spec.name == STORES[-1] and says(slow, str(storage.task))
        if slowly:
            log.info("task %s: store %s takes %.0f s to open", storage.task, spec.name, SLOW_S)
            time.sleep(SLOW_S)
        opened(storage, spec)
        if slowly:
            log.info(OPEN)

    LocalTaskStorage.open = open_slowly  # type: ignore[assignment, method-assign]


def slow_calls(slow: Path) -> None:
    """From now on a call of user code takes long while the file says so."""
    process = InEachStore.process

    def call_slowly(processor: InEachStore, record: Record) -> None:
        slowly = says(slow, CALLS)
        if slowly:
            slow.unlink()
            log.info("a call takes %.0f s", SLOW_S)
            time.sleep(SLOW_S)
        process(processor, record)
        if slowly:
            log.info(CALLED)

    InEachStore.process = call_slowly  # type: ignore[assignment, method-assign]


def timed_turns() -> None:
    """From now on the log has each long time that the stream loop spent on moving tasks on, or on a commit."""
    ThreadTasks.run_once = timed("tasks", ThreadTasks.run_once)  # type: ignore[method-assign]
    CommitDriver.run_once = timed("commit", CommitDriver.run_once)  # type: ignore[method-assign]


def timed(what: str, call: Callable[P, T]) -> Callable[P, T]:
    """The same call, noted."""

    def noted(*args: P.args, **named: P.kwargs) -> T:
        began = time.perf_counter()
        try:
            return call(*args, **named)
        finally:
            note(what, time.perf_counter() - began)

    return noted


def note(what: str, took_s: float) -> None:
    """In the log, if it was long."""
    if took_s >= LONG_S:
        log.info("%s took %.3f s", what, took_s)


def main() -> int:
    """The exit code."""
    logging.basicConfig(level=LEVEL, format="%(created).3f %(levelname)s %(name)s: %(message)s")
    config_file, source, output, slow = sys.argv[1:]
    slow_opening(Path(slow))
    slow_calls(Path(slow))
    watch_looks()
    timed_turns()
    return Streams(topology(source, output), StreamsConfig.from_toml(config_file)).run()


if __name__ == "__main__":
    sys.exit(main())
