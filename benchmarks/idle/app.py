"""Tasks that wait for input, on Milestones: most only pass records on, some count them."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.idle import PLAIN, RUNNING, STATEFUL
from benchmarks.job import Job
from benchmarks.ours import begin, config
from milestones import Streams, StreamsBuilder, Topology, serdes


def topology(job: Job) -> Topology:
    """Two sub-topologies: a task for each partition of its topic."""
    builder = StreamsBuilder()
    builder.stream(f"{job.input}-{PLAIN}", key=serdes.BYTES, value=serdes.BYTES).to(job.output)
    stateful = builder.stream(f"{job.input}-{STATEFUL}", key=serdes.BYTES, value=serdes.BYTES)
    stateful.group_by_key().count("counts").to_stream().to(job.output, key=serdes.BYTES, value=serdes.LONG)
    return builder.build()


def main() -> int:
    """The exit code."""
    job = begin()
    streams = Streams(topology(job), config(job))

    def tell(new: object, _old: object) -> None:
        if str(new).endswith("RUNNING"):
            Path(job.state_dir + RUNNING).touch()

    streams.set_state_listener(tell)
    return streams.run()


if __name__ == "__main__":
    sys.exit(main())
