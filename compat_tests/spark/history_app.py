"""Backfills a topology on a Spark of its own, as a process: `python -m compat_tests.spark.history_app MASTER HISTORY
TOPOLOGY --config FILE`; HISTORY is the URL of an archive, or `-`.

*Guarantees*: the exit codes are the runtime's own.
*Assumes*: nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys

from pyspark.sql import SparkSession

from compat_tests.apps import STATUS
from compat_tests.apps.topologies import named
from compat_tests.spark.app import on_a_session
from milestones import StreamsConfig
from milestones.pipeline.backfill import backfill

log = logging.getLogger("compat_tests")

NO_ARCHIVE = "-"


def run(arguments: argparse.Namespace) -> int:
    """The process's exit code."""
    config = StreamsConfig.from_toml(arguments.config)
    history = None if arguments.history == NO_ARCHIVE else arguments.history

    def fill(spark: SparkSession) -> None:
        made = named(arguments.topology)(config.application_id)
        log.info("%s%s", STATUS, backfill(made, spark, history=history, config=config))

    return on_a_session(config.application_id, arguments.master, {}, fill)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("master", "history", "topology"):
        parser.add_argument(name)
    parser.add_argument("--config", required=True)
    parser.add_argument("--census", help="nothing is counted here")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
