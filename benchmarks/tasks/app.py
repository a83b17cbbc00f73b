"""The tasks of `idle`, on Milestones. The log has how long each loop let its group wait, second by second, and how long
each commit took; each of its lines begins with the time, s since the epoch.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.idle.app import topology
from benchmarks.job import Job
from benchmarks.ours import config
from milestones import Streams
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.parts import Clients
from milestones.stream_thread.loop import StreamLoop
from milestones.stream_thread.metrics import TimedCommit

SAID_EVERY_S = 1.0
log = logging.getLogger("benchmarks.tasks")


class Looks:
    """The looks of one loop at its group: one at the beginning of each turn. Belongs to the loop's thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._last, self._kafka_ns = time.perf_counter(), self._waited_ns()
        self._said = self._last
        self._gap = self._own = 0.0

    def look(self) -> None:
        """Note the time since the last one, and how much of it wasn't in calls of Kafka's clients."""
        now, kafka_ns = time.perf_counter(), self._waited_ns()
        gap = now - self._last
        self._gap = max(self._gap, gap)
        self._own = max(self._own, gap - max(0, kafka_ns - self._kafka_ns) / 1e9)
        self._last, self._kafka_ns = now, kafka_ns
        if now - self._said >= SAID_EVERY_S:
            log.info(
                "looks at the group at most %.4f s apart, %.4f s of it outside Kafka's calls", self._gap, self._own
            )
            self._said, self._gap, self._own = now, 0.0, 0.0

    def _waited_ns(self) -> int:
        clients = self._clients
        return clients.consumer.blocked_ns + clients.producer.blocked_ns + clients.member.blocked_ns


def watch_looks() -> None:
    """From now on the log has the longest time between two looks at the group of each loop."""
    init, run_once = StreamLoop.__init__, StreamLoop.run_once
    looks: dict[StreamLoop, Looks] = {}

    def made(loop: StreamLoop, context: Any, parts: Any, clients: Clients, on_state: Any) -> None:
        init(loop, context, parts, clients, on_state)
        looks[loop] = Looks(clients)

    def turn(loop: StreamLoop, now_ms: int) -> bool:
        looks[loop].look()
        return run_once(loop, now_ms)

    StreamLoop.__init__ = made  # type: ignore[assignment, method-assign]
    StreamLoop.run_once = turn  # type: ignore[assignment, method-assign]


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
