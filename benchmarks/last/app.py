"""Keeps each key's last value in a store, and puts it out, on Milestones."""

from __future__ import annotations

import sys

from benchmarks.job import Job
from benchmarks.last import STORE
from benchmarks.ours import run
from milestones import StreamsBuilder, Topology, serdes


def topology(job: Job) -> Topology:
    """What is executed."""
    builder = StreamsBuilder()
    (
        builder.stream(job.input, key=serdes.STRING, value=serdes.BYTES)
        .group_by_key()
        .aggregate(bytes, lambda _key, value, _last: value, STORE, value=serdes.BYTES)
        .to_stream()
        .to(job.output)
    )
    return builder.build()


if __name__ == "__main__":
    sys.exit(run(topology))
