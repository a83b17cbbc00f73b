"""Tasks that write each record into several stores, on Milestones. It prints when each task has its first record, and
how long each database took to open. The log has how long each loop let its group wait, second by second; each of its
lines begins with the time, s since the epoch.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.job import Job
from benchmarks.looks import watch_looks
from benchmarks.ours import config
from benchmarks.stores import OPENED, PROCESSES, SECOND, SESSION_TIMEOUT_MS
from milestones import Processor, ProcessorContext, Record, StoreSpec, Streams, Topology, serdes
from milestones.common.state.engine import NOBODYS, Owners
from milestones.common.state.engines.rocksdict_engine import RocksDictEngine, RocksDictEngines

MOST_LAG = 1 << 40


def say(what: str, number: float) -> None:
    """Print it in one step: several threads do."""
    print(f"{what} {number}\n", end="", flush=True)


def names(job: Job) -> list[str]:
    """The stores."""
    return [f"store-{number}" for number in range(int(job.work))]


def in_each(stores: list[str]) -> type[Processor]:
    """What writes each record into these stores, and forwards it."""

    class InEachStore(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self._stores = [context.get_state_store(name) for name in stores]
            self._begun = False

        def process(self, record: Record) -> None:
            if not self._begun:
                self._begun = True
                say(PROCESSES, round(time.time() * 1000))
            for store in self._stores:
                store.put(record.key, record.value)
            self.context.forward(record)

    return InEachStore


def topology(job: Job) -> Topology:
    """What is executed."""
    made = (
        Topology()
        .add_source("in", job.input, key=serdes.STRING, value=serdes.BYTES)
        .add_processor("in-each-store", in_each(names(job)), "in")
    )
    for name in names(job):
        made.add_state_store(StoreSpec(name, key_serde=serdes.STRING, value_serde=serdes.BYTES), "in-each-store")
    return made.add_sink("out", job.output, "in-each-store", key=serdes.STRING, value=serdes.BYTES)


def watch_opening() -> None:
    """From now on each opening of a database is printed."""
    opened = RocksDictEngines.open

    def timed(engines: RocksDictEngines, directory: Path, owners: Owners = NOBODYS) -> RocksDictEngine:
        began = time.perf_counter()
        try:
            return opened(engines, directory, owners)
        finally:
            say(OPENED, round(1000 * (time.perf_counter() - began), 1))

    RocksDictEngines.open = timed  # type: ignore[assignment, method-assign]


def main() -> int:
    """The exit code."""
    logging.basicConfig(level=logging.INFO, format="%(created).3f %(levelname)s %(name)s: %(message)s")
    job = Job.parse(sys.argv[1:])
    watch_looks()
    watch_opening()
    member: dict[str, Any] = {} if job.state_dir.endswith(SECOND) else {"group_instance_id": "first"}
    streams = Streams(
        topology(job), config(job), num_stream_threads=int(job.threads), acceptable_recovery_lag=MOST_LAG,
        session_timeout_ms=SESSION_TIMEOUT_MS, **member,
    )  # fmt: skip
    return streams.run()


if __name__ == "__main__":
    sys.exit(main())
