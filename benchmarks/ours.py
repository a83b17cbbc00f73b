"""What our contenders have in common, whatever the work.

*Guarantees*: all that isn't in a `Job` is default.
*Assumes*: imported by a contender's own process only.
"""

from __future__ import annotations

import logging
import sys

from benchmarks.job import Job
from milestones import StreamsConfig


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
