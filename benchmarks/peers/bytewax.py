"""Bytewax's programs: `python -m benchmarks.peers.bytewax PROGRAM name=value ...` (a `Job`).

Its state is in a SQLite file, of which it takes a snapshot at each commit interval, together with the offsets of its
input: there is no changelog, and no group of Kafka's. After a failure it goes on from there: at least once.

*Guarantees*: all that isn't in a `Job` is default, but for the producer's batches, which are as large as the others',
and its partitioner, which is Kafka's.
*Assumes*: runs in an environment of its own, with `bytewax[kafka]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.job import Job

PRODUCER = {
    "acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 5,
    "batch.size": 1_000_000, "queue.buffering.max.kbytes": 131_072,
}  # fmt: skip

Sale = dict[str, Any]


def _keyed(given: Any) -> Any:
    return op.map("keyed", given, lambda message: (message.key.decode(), orjson.loads(message.value)))


def _json(counted: Any) -> Any:
    return op.map("json", counted, lambda pair: KafkaSinkMessage(pair[0].encode(), orjson.dumps(pair[1])))


def count(given: Any) -> Any:
    def add(total: dict[str, int] | None, sale: Sale) -> tuple[dict[str, int], dict[str, int]]:
        before = total or {"count": 0, "sum": 0}
        after = {"count": before["count"] + 1, "sum": before["sum"] + sale["amount"]}
        return after, after

    return _json(op.stateful_map("totals", _keyed(given), add))


def stateless(given: Any) -> Any:
    kept = op.filter("kept", _keyed(given), lambda pair: pair[1]["amount"] % 10 > 0)
    return _json(op.map_value("short", kept, lambda sale: {"id": sale["id"], "amount": sale["amount"]}))


def running(given: Any) -> Any:
    def add(count: int | None, _sale: Sale) -> tuple[int, int]:
        after = (count or 0) + 1
        return after, after

    return _json(op.stateful_map("totals", _keyed(given), add))


def last(given: Any) -> Any:
    keyed = op.map("keyed", given, lambda message: (message.key.decode(), message.value))
    kept = op.stateful_map("last", keyed, lambda _last, value: (value, value))
    return op.map("bytes", kept, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "count": count,
    "windows-stateless": stateless,
    "windows-count": running,
    "last": last,
}


def main() -> int:
    """The exit code."""
    program, job = sys.argv[1], Job.parse(sys.argv[2:])
    brokers, flow = [job.bootstrap_servers], Dataflow(job.application_id)
    given = op.input("in", flow, KafkaSource(brokers, [job.input]))
    op.output("out", PROGRAMS[program](given), KafkaSink(brokers, job.output, PRODUCER))
    Path(job.state_dir).mkdir()
    init_db_dir(Path(job.state_dir), 1)
    every = timedelta(milliseconds=int(job.commit_interval_ms))
    cli_main(flow, epoch_interval=every, recovery_config=RecoveryConfig(job.state_dir))
    return 0


if __name__ == "__main__":
    sys.exit(main())
