"""The count on Milestones: count and sum per key, one output per record."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.count import STORE
from benchmarks.job import Job
from benchmarks.ours import run
from milestones import StreamsBuilder, Topology, serdes


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


if __name__ == "__main__":
    sys.exit(run(topology))
