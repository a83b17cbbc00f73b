"""A query that reads a topic with the data source and keeps its rows, as a process: `python -m
compat_tests.spark.source_app TOPIC --config FILE`.

It goes on from its checkpoint to what is there now. Each micro-batch has a folder, which a second run of it overwrites:
a sink that is idempotent. With `hold` it stands still in a micro-batch, for good, to be killed there.

*Guarantees*: exit code 0 when all that was there is kept.
*Assumes*: nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from milestones.pipeline import spark_session
from milestones.pipeline.source import FORMAT, register_kafka

log = logging.getLogger("compat_tests")

HELD = "stands still in micro-batch"
HALF, WHOLE = "half", "whole"
"""Where to stand still: one partition of the batch is kept, or all of it, and Spark doesn't know it yet."""
HELD_BATCH = 1


def run(topic: str, config: dict[str, Any]) -> None:
    folder, hold = Path(config["folder"]), config.get("hold")

    def keep(frame: DataFrame, number: int) -> None:
        rows, place = frame.select("partition", "offset", "key", "value"), str(folder / f"rows/batch={number}")
        if hold == HALF and number == HELD_BATCH:
            rows.where("partition = 0").write.mode("overwrite").parquet(place)
            stand_still(number)
        rows.write.mode("overwrite").parquet(place)
        if hold == WHOLE and number == HELD_BATCH:
            stand_still(number)

    with spark_session("source", master="local[2]") as spark:
        register_kafka(spark)
        options = {
            "kafka.bootstrap.servers": config["bootstrap_servers"], "subscribe": topic, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(config["rate"]),
        }  # fmt: skip
        query = (
            spark.readStream.format(FORMAT)
            .options(**options)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def stand_still(number: int) -> None:
    log.info("%s %d", HELD, number)
    threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--census", help="nothing is counted here")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    run(arguments.topic, tomllib.loads(arguments.config.read_text()))


if __name__ == "__main__":
    main()
