"""A store that is restored by Milestones."""

from __future__ import annotations

import sys
import time

from benchmarks.job import Job
from benchmarks.ours import begin, config
from benchmarks.restore import ENDED, STARTED, STORE
from milestones import StateRestoreListener, Streams, StreamsBuilder, TopicPartition, Topology, serdes


class Told(StateRestoreListener):
    """Prints when each partition began and ended."""

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        print(STARTED, round(time.time() * 1000), ending_offset - starting_offset, flush=True)

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        print(ENDED, round(time.time() * 1000), total_restored, flush=True)


def topology(job: Job) -> Topology:
    """What is executed, once the store is there."""
    builder = StreamsBuilder()
    builder.stream(job.input, key=serdes.STRING, value=serdes.STRING).group_by_key().count(STORE).to_stream().to(
        job.output
    )
    return builder.build()


def main() -> int:
    """The exit code."""
    job = begin()
    streams = Streams(topology(job), config(job))
    streams.set_global_state_restore_listener(Told())
    return streams.run()


if __name__ == "__main__":
    sys.exit(main())
