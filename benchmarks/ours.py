"""What our contenders have in common, whatever the work: `sys.exit(run(topology))` is one whose threads are counted.

*Guarantees*: all that isn't in a `Job` is default.
*Assumes*: imported by a contender's own process only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.job import Job
from milestones import Streams, StreamsConfig, Topology


def begin() -> Job:
    """What this process is to do; its log goes to standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    return Job.parse(sys.argv[1:])


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


def run(topology: Callable[[Job], Topology], *, counted: str = "num_stream_threads") -> int:
    """Run the job's topology with its number of threads; `counted`: the setting that says which. The exit code."""
    job = begin()
    threads: dict[str, Any] = {counted: int(job.threads)}
    workers = None if job.workers == "1" else int(job.workers)
    return Streams(topology(job), config(job), **threads).run(workers=workers)
