"""A contender's process: `python -m benchmarks.spark.app CONTENDER name=value ...` (a `Job`).

*Guarantees*: the clock runs from the call that begins the work to the end of its last batch.
*Assumes*: imported by a contender's own process only.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks.job import Job
from benchmarks.spark import RESULT, STORE
from benchmarks.spark.structured import CONNECTOR, QUERIES, STATE, count
from milestones import StreamsBuilder, StreamsConfig, Topology, serdes
from milestones.pipeline import run_on_spark, spark_session

MASTER, MEMORY = "local[2]", "2g"
MICRO_BATCH_RECORDS = 250_000


def topology(job: Job) -> Topology:
    """The running count: an output for each record."""
    builder = StreamsBuilder()
    records = builder.stream(job.input, key=serdes.STRING, value=serdes.BYTES)
    records.group_by_key().count(STORE).to_stream().to(job.output, value=serdes.LONG)
    return builder.build()


def config(job: Job) -> StreamsConfig:
    return StreamsConfig(
        application_id=job.application_id,
        bootstrap_servers=job.bootstrap_servers,
        processing_guarantee=job.guarantee,
        state_dir=job.state_dir,
    )


def batch(job: Job, spark: SparkSession) -> int:
    run = run_on_spark(topology(job), spark, config=config(job))
    run.wait()
    return run.progress.records


def micro_batches(job: Job, spark: SparkSession) -> int:
    """Until nothing is left; the wait for that isn't work."""
    made = topology(job)
    run = run_on_spark(
        made, spark, mode="micro_batch", interval_ms=0, max_records=MICRO_BATCH_RECORDS, config=config(job)
    )
    while not run.wait(0.05):
        if run.progress.jobs and run.progress.lag == 0:
            run.stop()
    return run.progress.records


def structured(query: str) -> Callable[[Job, SparkSession], int]:
    return lambda job, spark: count(spark, job.bootstrap_servers, job.input, query, Path(job.state_dir))


OURS: dict[str, Callable[[Job, SparkSession], int]] = {"milestones-batch": batch, "milestones-micro": micro_batches}
CONTENDERS = {**OURS, **{query: structured(query) for query in QUERIES}}


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    name, job = sys.argv[1], Job.parse(sys.argv[2:])
    settings = {**STATE, **(CONNECTOR if name in QUERIES else {}), "spark.driver.memory": MEMORY}
    with spark_session("benchmark", master=MASTER, settings=settings) as spark:
        spark.sparkContext.parallelize(range(4), 4).map(lambda number: number + 1).collect()
        spark.range(1000).groupBy("id").count().collect()
        began, used = time.perf_counter(), cpu_s()
        records = CONTENDERS[name](job, spark)
        result = {"records": records, "seconds": time.perf_counter() - began, "cpu_s": cpu_s() - used}
    sys.stdout.write(f"{RESULT}{json.dumps(result)}\n")
    return 0


def cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(at.user + at.system + at.children_user + at.children_system for at in times))


if __name__ == "__main__":
    sys.exit(main())
