"""`docs/metrics.md`, made from the table: `python -m milestones.common.metrics.document > docs/metrics.md`.

*Guarantees*: the page says what the table says; a test compares them.
*Assumes*: nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from milestones.common.metrics.export import exported_name, meaning
from milestones.common.metrics.registry import PUBLISH_INTERVAL_MS
from milestones.common.metrics.scopes import SCOPES, Scope, SensorSpec, metric_name

_INTRODUCTION = f"""\
# Metrics

Groups and names are those of Kafka Streams and Kafka's consumer; those marked *own* have no counterpart there. Rates
are per second unless the name says otherwise; rates, averages and maxima are taken over `metrics_sample_window_ms`, and
are 0 where nothing was measured in it. Metrics of level DEBUG are published when `metrics_recording_level` is `DEBUG`
or `TRACE`. Metrics of a thing appear with it and go with it (a task that moves away takes its metrics along); the
totals of a task or thread that comes back begin at 0. There are none of single stores and topics: they would cost
something per record.

**How to read them.** `metrics_port` opens an HTTP endpoint on `metrics_host`: `/metrics` for Prometheus. In code,
`Streams.metrics()` gives everything as plain dictionaries, by group. Text, such as a state, is exported as the label
`value` of a metric that is always 1. For Prometheus each metric has the label `application_id` too. Beside them
`/metrics` has, on Linux, what Prometheus' clients tell of a process: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds` and more.

**Units** aren't in the names, which are Kafka Streams' own: the meaning tells them. Latencies of threads are in ms,
those of tasks in ns, as there.

**Probes.** The same port answers `/livez` with 200 as long as the process may live, also while it rebalances, restores
or waits for its brokers; with 503 and the reason once the client has failed. `/readyz` has 200 while the client is
RUNNING, the group's coordinator answers and no task stands still. For ten seconds, or three of `heartbeat_interval_ms`,
the coordinator's silence counts as none; `last-heartbeat-seconds-ago` is that silence as a number. A task stands still
that has ended, or whose state's disk is full; with `readiness = "running"` that doesn't count. Any other path is 404.

**Status.** `/status` on the same port answers with JSON what `Streams.status()` says: tasks, places, lags, the texts of
errors of tasks that fail or have ended, calls of your functions that take long. Texts of errors may hold your data, so
they are in no metric: a metric has the class of the error.

**Why reading is safe, and free for the threads that work.** Everything that is counted belongs to one thread, which
adds to plain integers, per turn of its loop rather than per record (level DEBUG excepted). About every
{PUBLISH_INTERVAL_MS} ms that thread works out the values and puts them, in a new object that is never changed again, in
the place of the previous one. A reader takes the reference: it sees one publication or the next, whole, and no lock is
needed. So values are up to a second old, and what was counted after the last publication of a thing that is gone was
never shown. A thread that is stuck in a long call shows what it last published, with its age (`age_ms`).
"""


def markdown() -> str:
    return "\n".join([_INTRODUCTION, *(line for scope in SCOPES for line in _group(scope))])


def _group(scope: type[Scope]) -> Iterator[str]:
    yield f"## {scope.group}\n"
    yield f"{(scope.__doc__ or '').split(' Owner:')[0]} Tags: {', '.join(f'`{tag}`' for tag in scope.tag_names)}.\n"
    yield "| metric | Prometheus | level | meaning |\n|---|---|---|---|"
    for row in scope.rows.values():
        yield from _metrics(scope.group, row)
    yield ""


def _metrics(group: str, row: SensorSpec[Any]) -> Iterator[str]:
    own = " *(own)*" if row.own else ""
    for suffix, kind in row.make(0).statistics.items():
        name = metric_name(row.name) + suffix
        exported = exported_name(group, name, kind)
        yield f"| `{name}` | `{exported}` | {row.level} | {meaning(group, name)}{own} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
