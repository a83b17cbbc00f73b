"""An instance with an empty disk that restores, by replay or from snapshots.

`python -m benchmarks.snapshot.app TOML`: the settings.
"""

from __future__ import annotations

import logging
import sys
import time

from benchmarks.snapshot import ASSIGNED, ENDED, STORE
from milestones import StateRestoreListener, Streams, StreamsBuilder, StreamsConfig, TopicPartition, Topology, serdes


class Told(StateRestoreListener):
    """Prints when each partition was complete."""

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        print(ENDED, round(time.time() * 1000), total_restored, flush=True)


class Assigned(logging.Handler):
    """Prints when the instance was given its tasks: all that a restoration takes comes after that."""

    def emit(self, record: logging.LogRecord) -> None:
        if "generation %d" in str(record.msg):
            print(ASSIGNED, round(time.time() * 1000), flush=True)


def topology(application_id: str) -> Topology:
    """A count whose store is what is restored; its input is empty."""
    builder = StreamsBuilder()
    stream = builder.stream(f"{application_id}-input", key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key().count(STORE)
    return builder.build()


def main(file: str) -> int:
    """The exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    logging.getLogger("milestones.stream_thread.rebalance").addHandler(Assigned())
    config = StreamsConfig.from_toml(file)
    streams = Streams(topology(config.application_id), config)
    streams.set_global_state_restore_listener(Told())
    return streams.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
