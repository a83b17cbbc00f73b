"""Generates `docs/metrics.md` from the table: `python -m milestones.common.metrics.document > docs/metrics.md`.

*Guarantees*: the page says what the table says. A test compares both.
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

Groups and names are those of Kafka Streams and Kafka's consumer. A metric that is marked *own* doesn't exist there.
Rates are per second unless the name says otherwise. Rates, averages and maxima are computed over
`metrics_sample_window_ms`. They are 0 if nothing was measured in this time. Metrics of level DEBUG are published when
`metrics_recording_level` is `DEBUG` or `TRACE`. The metrics of a thread or task appear and disappear together with it.
When a task or thread comes back, its totals begin at 0. Single stores and topics have no metrics, as these would cost
time for each record.

**How to read them.** `metrics_port` opens an HTTP endpoint on `metrics_host`, with `/metrics` for Prometheus. In code,
`Streams.metrics()` returns all metrics as plain dictionaries, by group. Text, such as a state, is exported as the label
`value` of a metric that is always 1. For Prometheus each metric has the label `application_id`, too. On Linux,
`/metrics` also has the process metrics of Prometheus' clients: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds` and more.

**Units** aren't part of the names, as these are Kafka Streams' own. The meaning of a metric names the unit. Latencies
of threads are in ms, those of tasks in ns, as in Kafka Streams.

**Probes.** On the same port, `/livez` answers 200 as long as the process should live, even while it rebalances,
restores or waits for its brokers. After the client has failed, it answers 503 and the reason. `/readyz` answers 200
while the client is RUNNING, the group's coordinator answers and no task is blocked. The coordinator may be silent for
ten seconds, or for three times `heartbeat_interval_ms` if that is longer. `last-heartbeat-seconds-ago` is the length of
this silence. A task is blocked if it has ended, or if the disk of its state is full. With `readiness = "running"`,
blocked tasks don't count. Any other path answers 404.

**Status.** `/status` on the same port returns `Streams.status()` as JSON: tasks, places, lags, the error texts of tasks
that fail or have ended, and calls of your functions that take long. Error texts may contain your data. So no metric
contains them: a metric has only the class of the error.

**Why reading is safe, and costs the working threads nothing.** Each count belongs to one thread, which adds to plain
integers. It adds once per turn of its loop, not once per record (except for level DEBUG). About every
{PUBLISH_INTERVAL_MS} ms, this thread computes the values, and replaces the previous publication by a new object, which
never changes. A reader takes the reference, and so sees either publication as a whole, without a lock. So values are up
to a second old. When a task or thread ends, what it counted after its last publication is never shown. A thread that is
stuck in a long call shows its last publication, with its age (`age_ms`).
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
