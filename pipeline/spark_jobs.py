"""Calls into Spark that return when all is done.

*Guarantees*: results in the order of the items; an error says why, in one line.
*Assumes*: a classic session; a Spark Connect session has no `SparkContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from milestones.common.errors import MilestonesError

T = TypeVar("T")
R = TypeVar("R")


class SparkJobError(MilestonesError):
    """Spark gave a job up: each attempt at one of its tasks failed."""


def context_of(spark: SparkSession) -> SparkContext:
    """`MilestonesError` when the session has none."""
    try:
        return spark.sparkContext
    except Exception as error:  # Spark Connect has its own for what it lacks
        raise MilestonesError(
            f"this Spark session has no SparkContext ({error}); Spark Connect can't run Python code beside Kafka's "
            "partitions: use a classic session, such as that of milestones.pipeline.spark_session"
        ) from error


def run_each(context: SparkContext, function: Callable[[T], R], items: Sequence[T], title: str) -> list[R]:
    """What `function` returns for each item, a Spark task for each. `SparkJobError`."""
    if not items:
        return []
    try:
        context.setJobDescription(title)
        return context.parallelize(items, len(items)).map(function).collect()
    except Exception as error:  # whatever Spark raises
        raise SparkJobError(f"{title}: {reason_in(error)}") from error
    finally:
        context.setJobDescription("")


def reason_in(error: BaseException) -> str:
    """The line that says why, of Spark's many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if not line.startswith(("at ", "File ", "Traceback", "Caused by", "Driver stack"))]
    named = [line for line in python if "Error" in line or "Exception" in line or "lost" in line]
    return (named or python or lines or [type(error).__name__])[-1][:1000]
