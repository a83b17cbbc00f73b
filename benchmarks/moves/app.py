"""One instance: keeps each key's last value, and puts out the value's first bytes, in the task's own partition.

`python -m benchmarks.moves.app CONFIG INPUT OUTPUT`. Each line of its log begins with the time, s since the epoch.
"""

from __future__ import annotations

import logging
import sys

from benchmarks.moves import STORE
from milestones import Streams, StreamsBuilder, StreamsConfig, Topology, serdes

OUTPUT_BYTES = 8


def topology(source: str, output: str) -> Topology:
    """What is executed. The key's beginning is its partition, so that no task shares an output partition."""
    builder = StreamsBuilder()
    (
        builder.stream(source, key=serdes.STRING, value=serdes.BYTES)
        .group_by_key()
        .aggregate(bytes, lambda _key, value, _last: value, STORE, value=serdes.BYTES)
        .to_stream()
        .map_values(lambda value: value[:OUTPUT_BYTES])
        .to(output, value=serdes.BYTES, partitioner=lambda _topic, key, _value, _count: int(key.partition("-")[0]))
    )
    return builder.build()


def main() -> int:
    """The exit code."""
    logging.basicConfig(level=logging.INFO, format="%(created).3f %(levelname)s %(name)s: %(message)s")
    config_file, source, output = sys.argv[1:]
    return Streams(topology(source, output), StreamsConfig.from_toml(config_file)).run()


if __name__ == "__main__":
    sys.exit(main())
