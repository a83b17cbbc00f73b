"""Faust's programs: `python -m benchmarks.peers.faust PROGRAM name=value ...` (a `Job`).

Its tables are in RocksDB, with a changelog record for each update.

*Guarantees*: all that isn't in a `Job` is default, but for the producer's batches, which are as large as the others'.
*Assumes*: runs in an environment of its own, with `faust-streaming[rocksdict]` and orjson.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import faust

from benchmarks.job import Job
from benchmarks.restore import ENDED, STARTED
from benchmarks.windows import GRACE_MS, WINDOW_MS


def application(job: Job) -> Any:
    """All that isn't default."""
    return faust.App(
        job.application_id,
        broker=f"kafka://{job.bootstrap_servers}",
        store="rocksdb://",
        datadir=job.state_dir,
        processing_guarantee="exactly_once" if job.exactly_once else "at_least_once",
        broker_commit_interval=int(job.commit_interval_ms) / 1000,
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_linger=0.005,
        producer_max_batch_size=1_000_000,
        topic_allow_declare=True,
        topic_replication_factor=1,
        topic_disable_leader=True,
    )


class Program:
    """The topics of a job; `partitions` of the tables are those of the input."""

    def __init__(self, app: Any, job: Job, partitions: int) -> None:
        self.app, self.partitions = app, partitions
        self.sales = app.topic(job.input, key_type=bytes, value_type=None, value_serializer="json")
        self.raw = app.topic(job.input, key_type=bytes, value_type=bytes, value_serializer="raw")
        self.output = app.topic(job.output, key_type=bytes, value_serializer="json")
        self.raw_output = app.topic(job.output, key_type=bytes, value_type=bytes, value_serializer="raw")

    def table(self, name: str, default: Callable[[], Any]) -> Any:
        return self.app.Table(name, default=default, key_type=bytes, partitions=self.partitions)

    def agent(self, topic: Any, function: Callable[[Any], Any]) -> None:
        self.app.agent(topic)(function)


def count(program: Program) -> None:
    totals = program.table("totals", lambda: {"count": 0, "sum": 0})

    async def add(sales: Any) -> None:
        async for key, sale in sales.items():
            before = totals[key]
            total = {"count": before["count"] + 1, "sum": before["sum"] + sale["amount"]}
            totals[key] = total
            await program.output.send(key=key, value=total)

    program.agent(program.sales, add)


def stateless(program: Program) -> None:
    async def shorten(sales: Any) -> None:
        async for key, sale in sales.items():
            if sale["amount"] % 10 > 0:
                await program.output.send(key=key, value={"id": sale["id"], "amount": sale["amount"]})

    program.agent(program.sales, shorten)


def running(program: Program) -> None:
    totals = program.table("totals", int)

    async def add(sales: Any) -> None:
        async for key, _ in sales.items():
            totals[key] += 1
            await program.output.send(key=key, value=totals[key])

    program.agent(program.sales, add)


def tumbling(program: Program) -> None:
    size, expires = timedelta(milliseconds=WINDOW_MS), timedelta(milliseconds=GRACE_MS + WINDOW_MS)
    windowed = program.app.Table("totals", default=int, partitions=program.partitions)
    totals = windowed.tumbling(size, expires=expires).relative_to_stream()

    async def add(sales: Any) -> None:
        async for event in sales.events():
            key = event.key.decode()  # a window's key is JSON
            totals[key] += 1
            start = round(event.message.timestamp * 1000) // WINDOW_MS * WINDOW_MS
            found = {"start": start, "count": totals[key].current()}
            await program.output.send(key=event.key, value=found)

    program.agent(program.sales, add)


def last(program: Program) -> None:
    kept = program.table("last", str)

    async def keep(given: Any) -> None:
        async for key, value in given.items():
            kept[key] = value.decode()
            await program.raw_output.send(key=key, value=value)

    program.agent(program.raw, keep)


def restore(program: Program) -> None:
    """The count of a store that is there; tells of each partition what it is given to restore, and when all are."""
    totals = program.app.Table("totals", default=bytes, key_type=bytes, value_type=bytes, partitions=program.partitions)
    restored = Counter[int]()
    apply = totals.apply_changelog_batch

    def counted(batch: Iterable[Any]) -> None:
        events = list(batch)
        restored.update(event.message.partition for event in events)
        apply(events)

    totals.apply_changelog_batch = counted

    async def started(*_: Any, **__: Any) -> None:
        for _number in range(program.partitions):
            _tell(STARTED)

    async def ended() -> None:
        for number in range(program.partitions):
            _tell(ENDED, restored[number])

    async def keep(given: Any) -> None:
        async for key, value in given.items():
            totals[key] = value

    program.app.on_partitions_assigned.connect(started, weak=False)
    totals.on_recover(ended)
    program.agent(program.raw, keep)


def _tell(what: str, count: int = 0) -> None:
    """By the descriptor: Faust has standard output for its log."""
    os.write(1, f"{what} {round(time.time() * 1000)} {count}\n".encode())


PROGRAMS: dict[str, Callable[[Program], None]] = {
    "count": count,
    "restore": restore,
    "windows-stateless": stateless,
    "windows-count": running,
    "windows-tumbling": tumbling,
    "last": last,
}


def main() -> None:
    """Until it is asked to end."""
    program, job = sys.argv[1], Job.parse(sys.argv[2:])
    app = application(job)
    PROGRAMS[program](Program(app, job, int(job.partitions)))
    sys.argv[1:] = ["worker", "--loglevel=info", "--without-web"]
    app.main()


if __name__ == "__main__":
    main()
