"""Runs a topology on a Spark of its own, as a process: `python -m compat_tests.spark.app MODE MASTER TOPOLOGY --config
FILE`. `spark.KEY=VALUE` after the master are Spark's settings. The mode `backfill:URL` backfills the topology, with the
archive of that URL if there is one.

*Guarantees*: the exit codes are the runtime's own; SIGTERM ends a run; SIGUSR1 writes all threads' stacks and the
run's progress into the log.
*Assumes*: nothing.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import signal
import sys
import threading

from pyspark.sql import SparkSession

from compat_tests.apps import STATE, STATUS, begin_log
from compat_tests.apps.topologies import named
from milestones import MilestonesError, StreamsConfig
from milestones.pipeline import run_on_spark, spark_session
from milestones.pipeline.backfill import backfill

log = logging.getLogger("compat_tests")

BACKFILL = "backfill:"


def run(arguments: argparse.Namespace) -> int:
    """The process's exit code."""
    config = StreamsConfig.from_toml(arguments.config)
    settings = dict(text.split("=", 1) for text in arguments.settings)
    fills, stop = arguments.mode.startswith(BACKFILL), threading.Event()
    if not fills:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def work_off(spark: SparkSession) -> None:
        made = named(arguments.topology)(config.application_id)
        begun = run_on_spark(made, spark, mode=arguments.mode, interval_ms=100, config=config)
        signal.signal(signal.SIGUSR1, lambda *_: log.info("%s%s", STATUS, begun.progress))
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)
        state = None
        while not begun.wait(0.1):
            if begun.state is not state:
                state = begun.state
                log.info("%s%s", STATE, state.value)
            if stop.is_set():
                begun.stop()
        log.info("%s%s", STATE, begun.state.value)
        log.info("%s%s", STATUS, begun.progress)

    def fill(spark: SparkSession) -> None:
        made, history = named(arguments.topology)(config.application_id), arguments.mode.removeprefix(BACKFILL) or None
        log.info("%s%s", STATUS, backfill(made, spark, history=history, config=config))

    try:
        with spark_session(config.application_id, master=arguments.master, settings=settings) as spark:
            (fill if fills else work_off)(spark)
            return 0
    except MilestonesError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode")
    parser.add_argument("master")
    parser.add_argument("settings", nargs="*", help="spark.KEY=VALUE, then the topology")
    parser.add_argument("--config", required=True)
    parser.add_argument("--census", help="nothing is counted here")
    arguments = parser.parse_args()
    arguments.topology = arguments.settings.pop()
    begin_log()
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
