"""The tasks of `idle`, on Milestones. The log has how long each loop let its group wait, second by second, and how long
each commit took; each of its lines begins with the time, s since the epoch.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from benchmarks.idle.app import topology
from benchmarks.job import Job
from benchmarks.looks import watch_looks
from benchmarks.ours import config
from milestones import Streams
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.stream_thread.commits.timed_commit import TimedCommit

log = logging.getLogger("benchmarks.tasks")


def watch_commits() -> None:
    """From now on the log has each commit that succeeded."""
    run_once = TimedCommit.run_once

    def timed(commit: TimedCommit, wait_ms: int) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        before_ns = commit.elapsed_ns
        committed = run_once(commit, wait_ms)
        if committed is not None:
            log.info("a commit took %.4f s", (commit.elapsed_ns - before_ns) / 1e9)
        return committed

    TimedCommit.run_once = timed  # type: ignore[assignment, method-assign]


def main() -> int:
    """The exit code."""
    logging.basicConfig(level=logging.INFO, format="%(created).3f %(levelname)s %(name)s: %(message)s")
    job = Job.parse(sys.argv[1:])
    watch_looks()
    watch_commits()
    return Streams(topology(job), config(job), num_stream_threads=int(job.threads)).run()


if __name__ == "__main__":
    sys.exit(main())
