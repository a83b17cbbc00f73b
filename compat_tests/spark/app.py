"""Runs a topology on a Spark of its own, as a process: `python -m compat_tests.spark.app MODE MASTER TOPOLOGY --config
FILE`. `spark.KEY=VALUE` after the master are Spark's settings.

*Guarantees*: the exit codes are the runtime's own; SIGTERM ends the run; SIGUSR1 writes all threads' stacks and the
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
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from compat_tests.apps import STATE, STATUS
from compat_tests.apps.topologies import named
from milestones import MilestonesError, StreamsConfig
from milestones.pipeline import run_on_spark, spark_session

log = logging.getLogger("compat_tests")


def run(arguments: argparse.Namespace) -> int:
    """The process's exit code."""
    config = StreamsConfig.from_toml(arguments.config)
    settings = dict(text.split("=", 1) for text in arguments.settings)
    stop = threading.Event()
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

    return on_a_session(config.application_id, arguments.master, settings, work_off)


def on_a_session(name: str, master: str, settings: Mapping[str, str], work: Callable[[SparkSession], None]) -> int:
    """The process's exit code, once `work` is done."""
    try:
        with spark_session(name, master=master, settings=settings) as spark:
            work(spark)
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
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(threadName)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
