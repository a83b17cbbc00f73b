"""A count on Milestones that notes when each record is processed, and leaves that at its end."""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path

from benchmarks.commits import STORE, TIMES, times
from benchmarks.job import Job
from benchmarks.ours import begin, config
from milestones import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    Streams,
    StreamsBuilder,
    Topology,
    serdes,
)

_kept: list[tuple[int, array[int]]] = []
"""Of each task that there ever was: its partition, and when its records were processed."""


class Timed(FixedKeyProcessor[str, bytes, bytes]):
    """Notes the time, and hands the record on."""

    def init(self, context: FixedKeyProcessorContext[str, bytes]) -> None:
        super().init(context)
        of_task = array("q")
        _kept.append((context.task_id.partition, of_task))
        self._note = of_task.append

    def process(self, record: FixedKeyRecord[str, bytes]) -> None:
        self._note(time.monotonic_ns())
        self.context.forward(record)


def topology(job: Job) -> Topology:
    """What is executed."""
    builder = StreamsBuilder()
    (
        builder.stream(job.input, key=serdes.STRING, value=serdes.BYTES)
        .process_values(Timed)
        .group_by_key()
        .count(STORE)
        .to_stream()
        .to(job.output)
    )
    return builder.build()


def main() -> int:
    """The exit code."""
    job = begin()
    code = Streams(topology(job), config(job), num_stream_threads=int(job.threads)).run()
    times.write(Path(job.state_dir + TIMES), _kept)
    return code


if __name__ == "__main__":
    sys.exit(main())
