"""The count on Milestones: count and sum per key, one output per record."""

from __future__ import annotations

import logging
import sys
from typing import Any

from benchmarks.count import STORE
from benchmarks.job import Job
from milestones import Streams, StreamsBuilder, StreamsConfig, Topology, serdes


def nothing() -> dict[str, int]:
    """A key before its first record."""
    return {"count": 0, "sum": 0}


def add(_key: str, sale: dict[str, Any], total: dict[str, int]) -> dict[str, int]:
    """One record more."""
    return {"count": total["count"] + 1, "sum": total["sum"] + sale["amount"]}


def topology(job: Job) -> Topology:
    """What is executed."""
    builder = StreamsBuilder()
    (
        builder.stream(job.input, key=serdes.STRING, value=serdes.JSON)
        .group_by_key()
        .aggregate(nothing, add, STORE, value=serdes.JSON)
        .to_stream()
        .to(job.output)
    )
    return builder.build()


def config(job: Job) -> StreamsConfig:
    """All that isn't default."""
    return StreamsConfig(
        application_id=job.application_id,
        bootstrap_servers=job.bootstrap_servers,
        milestones=job.stage,
        processing_guarantee=job.guarantee,
        commit_interval_ms=int(job.commit_interval_ms),
        state_dir=job.state_dir,
    )


def main() -> int:
    """The exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    job = Job.parse(sys.argv[1:])
    return Streams(topology(job), config(job)).run()


if __name__ == "__main__":
    sys.exit(main())
