"""Windows, sessions and joins on Milestones, and the plain count beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.job import Job
from benchmarks.ours import run
from benchmarks.windows import (
    ADVANCE_MS,
    COUNT,
    GAP_MS,
    GRACE_MS,
    HOPPING,
    OTHER,
    SESSIONS,
    STATELESS,
    STORE,
    STREAM_JOIN,
    SUPPRESS,
    TABLE_JOIN,
    TUMBLING,
    WINDOW_MS,
    WITHIN_MS,
)
from milestones import JoinWindows, SessionWindows, StreamsBuilder, TimeWindows, Topology, serdes

Sale = dict[str, Any]


def joined(sale: Sale, other: Sale) -> dict[str, int]:
    """Which two records met."""
    return {"sale": sale["id"], "other": other["id"]}


def _stateless(builder: StreamsBuilder, job: Job) -> None:
    kept = _sales(builder, job).filter(lambda _key, sale: sale["amount"] % 10 > 0)
    kept.map_values(lambda sale: {"id": sale["id"], "amount": sale["amount"]}).to(job.output, value=serdes.JSON)


def _count(builder: StreamsBuilder, job: Job) -> None:
    _sales(builder, job).group_by_key().count(STORE).to_stream().to(job.output)


def _tumbling(builder: StreamsBuilder, job: Job) -> None:
    windows = TimeWindows(WINDOW_MS, grace=GRACE_MS)
    _sales(builder, job).group_by_key().windowed_by(windows).count(STORE).to_stream().to(job.output)


def _hopping(builder: StreamsBuilder, job: Job) -> None:
    windows = TimeWindows(WINDOW_MS, advance=ADVANCE_MS, grace=GRACE_MS)
    _sales(builder, job).group_by_key().windowed_by(windows).count(STORE).to_stream().to(job.output)


def _suppress(builder: StreamsBuilder, job: Job) -> None:
    counts = _sales(builder, job).group_by_key().windowed_by(TimeWindows(WINDOW_MS, grace=GRACE_MS)).count(STORE)
    counts.suppress(until="window_closes").to_stream().to(job.output)


def _sessions(builder: StreamsBuilder, job: Job) -> None:
    windows = SessionWindows(GAP_MS, grace=GRACE_MS)
    _sales(builder, job).group_by_key().windowed_by(windows).count(STORE).to_stream().to(job.output)


def _table_join(builder: StreamsBuilder, job: Job) -> None:
    table = builder.table(job.input + OTHER, "customers", key=serdes.STRING, value=serdes.JSON)
    _sales(builder, job).join(table, joined).to(job.output, value=serdes.JSON)


def _stream_join(builder: StreamsBuilder, job: Job) -> None:
    other = builder.stream(job.input + OTHER, key=serdes.STRING, value=serdes.JSON)
    within = JoinWindows(WITHIN_MS, grace=GRACE_MS)
    _sales(builder, job).join(other, joined, within=within).to(job.output, value=serdes.JSON)


def _sales(builder: StreamsBuilder, job: Job) -> Any:
    return builder.stream(job.input, key=serdes.STRING, value=serdes.JSON)


_WRITTEN: dict[str, Callable[[StreamsBuilder, Job], None]] = {
    STATELESS: _stateless,
    COUNT: _count,
    TUMBLING: _tumbling,
    HOPPING: _hopping,
    SUPPRESS: _suppress,
    SESSIONS: _sessions,
    TABLE_JOIN: _table_join,
    STREAM_JOIN: _stream_join,
}


def topology(job: Job) -> Topology:
    """What is executed."""
    builder = StreamsBuilder()
    _WRITTEN[job.work](builder, job)
    return builder.build()


if __name__ == "__main__":
    sys.exit(run(topology))
