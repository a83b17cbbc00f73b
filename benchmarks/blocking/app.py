"""Ten milliseconds of something per record, on Milestones: a call to a service, work in C, work in Python.

What the three kinds differ in is Python's global lock: who waits for an answer has let go of it, and so has a function
in C that says so; a function in Python has it all the time.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable

from benchmarks.blocking import DONE
from benchmarks.job import Job
from benchmarks.ours import run
from milestones import StreamsBuilder, Topology, serdes

CALL_S = 0.01
ITERATIONS, STEPS = 43_000, 340_000
"""About 10 ms each, on one core of the machine that `benchmarks/README.md` tells of."""


def call(_: bytes) -> None:
    """As long as a service takes to answer."""
    time.sleep(CALL_S)


def native(value: bytes) -> None:
    """A digest in OpenSSL, which lets go of the lock meanwhile."""
    hashlib.pbkdf2_hmac("sha256", value, b"salt", ITERATIONS)


def python(_: bytes) -> None:
    """A loop in Python."""
    total = 0
    for step in range(STEPS):
        total += step & 7


KINDS: dict[str, Callable[[bytes], None]] = {"call": call, "native": native, "python": python}


def topology(job: Job) -> Topology:
    """What is executed."""
    work = KINDS[job.work]

    def done(value: bytes) -> bytes:
        work(value)
        return value + DONE

    builder = StreamsBuilder()
    builder.stream(job.input, key=serdes.BYTES, value=serdes.BYTES).map_values(done).to(job.output)
    return builder.build()


if __name__ == "__main__":
    sys.exit(run(topology, counted="num_processing_threads"))
