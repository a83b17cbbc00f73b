"""Quix Streams' programs: `python -m benchmarks.peers.quix PROGRAM name=value ...` (a `Job`).

*Guarantees*: all that isn't in a `Job` is default, but for the producer's batches, which are as large as the others'.
*Assumes*: runs in an environment of its own, with `quixstreams`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from quixstreams import Application, State
from quixstreams.state.recovery import RecoveryManager

from benchmarks.job import Job
from benchmarks.restore import ENDED, STARTED
from benchmarks.windows import GRACE_MS, OTHER, TABLE_JOIN, WINDOW_MS

BATCHES = {"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.kbytes": 131_072}


def application(job: Job) -> Any:
    """All that isn't default."""
    return Application(
        broker_address=job.bootstrap_servers,
        consumer_group=job.application_id,
        auto_offset_reset="earliest",
        commit_interval=int(job.commit_interval_ms) / 1000,
        processing_guarantee="exactly-once" if job.exactly_once else "at-least-once",
        state_dir=job.state_dir,
        producer_extra_config={"acks": "all", **BATCHES},
    )


def _sales(app: Any, topic: str) -> Any:
    return app.dataframe(app.topic(topic))


def count(app: Any, job: Job) -> None:
    def add(sale: dict[str, Any], state: State) -> dict[str, int]:
        total = state.get("total") or {"count": 0, "sum": 0}
        total = {"count": total["count"] + 1, "sum": total["sum"] + sale["amount"]}
        state.set("total", total)
        return total

    _sales(app, job.input).apply(add, stateful=True).to_topic(app.topic(job.output))


def stateless(app: Any, job: Job) -> None:
    sales = _sales(app, job.input).filter(lambda sale: sale["amount"] % 10 > 0)
    sales.apply(lambda sale: {"id": sale["id"], "amount": sale["amount"]}).to_topic(app.topic(job.output))


def running(app: Any, job: Job) -> None:
    def add(_sale: dict[str, Any], state: State) -> int:
        count: int = state.get("count", 0) + 1
        state.set("count", count)
        return count

    _sales(app, job.input).apply(add, stateful=True).to_topic(app.topic(job.output))


def tumbling(app: Any, job: Job) -> None:
    counts = _sales(app, job.input).tumbling_window(WINDOW_MS, grace_ms=GRACE_MS).count().current()
    counts.apply(lambda found: {"start": found["start"], "count": found["value"]}).to_topic(app.topic(job.output))


def table_join(app: Any, job: Job) -> None:
    """With the latest row of the table that isn't later than the record."""
    rows = _sales(app, job.input + OTHER)
    sales = _sales(app, job.input).join_asof(rows, how="inner", on_merge=_met)
    sales.to_topic(app.topic(job.output))


def _met(sale: dict[str, Any], other: dict[str, Any]) -> dict[str, int]:
    return {"sale": sale["id"], "other": other["id"]}


def last(app: Any, job: Job) -> None:
    def keep(value: bytes, state: State) -> bytes:
        state.set("last", value.decode())
        return value

    given = app.dataframe(app.topic(job.input, value_deserializer="bytes"))
    given.apply(keep, stateful=True).to_topic(app.topic(job.output, value_serializer="bytes"))


def restore(app: Any, job: Job) -> None:
    """The count of a store that is there; tells when the restoration of its partitions begins, and when it has ended,
    with what their stores say."""
    restored = RecoveryManager.do_recovery

    def told(manager: RecoveryManager) -> None:
        partitions = [one for by_store in manager.partitions.values() for one in by_store.values()]
        for _ in partitions:
            print(STARTED, round(time.time() * 1000), flush=True)
        restored(manager)
        for one in partitions:
            print(ENDED, round(time.time() * 1000), one.offset + 1, flush=True)

    RecoveryManager.do_recovery = told
    count(app, job)


PROGRAMS: dict[str, Callable[[Any, Job], None]] = {
    "count": count,
    "restore": restore,
    "windows-stateless": stateless,
    "windows-count": running,
    "windows-tumbling": tumbling,
    f"windows-{TABLE_JOIN}": table_join,
    "last": last,
}


def main() -> int:
    """The exit code."""
    program, job = sys.argv[1], Job.parse(sys.argv[2:])
    app = application(job)
    PROGRAMS[program](app, job)
    app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
