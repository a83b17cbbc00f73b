"""Runs Spark jobs, and returns when they have ended.

*Guarantees*: results are in the order of the items. An error gives the reason in one line. If a Spark task finds that a
topic is gone or was made anew, the same error is raised in the driver, and Spark makes no other attempt, because it
would fail, too.
*Assumes*: a classic session; a Spark Connect session has no `SparkContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from milestones.common.errors import MilestonesError, SourceTopicError

T = TypeVar("T")
R = TypeVar("R")


class SparkJobError(MilestonesError):
    """Raised when Spark gave a job up, because each attempt at one of its tasks failed."""


def context_of(spark: SparkSession) -> SparkContext:
    """Return the session's `SparkContext`. Raises a `MilestonesError` if it has none."""
    try:
        return spark.sparkContext
    except Exception as error:  # Spark Connect raises its own kind of error
        raise MilestonesError(
            f"this Spark session has no SparkContext ({error}); Spark Connect can't run Python code beside Kafka's "
            "partitions: use a classic session, such as that of milestones.pipeline.spark_session"
        ) from error


@dataclass(frozen=True)
class NoUse:
    """The error that the function has raised, in the place of its result."""

    error: SourceTopicError


def run_each(context: SparkContext, function: Callable[[T], R], items: Sequence[T], title: str) -> list[R]:
    """Call `function` for each item, in a Spark task of its own, and return the results. `SparkJobError`; the
    function's `SourceTopicError`.
    """
    if not items:
        return []
    try:
        context.setJobDescription(title)
        answers = context.parallelize(items, len(items)).map(partial(_answer, function)).collect()
    except Exception as error:  # Spark may raise anything
        raise SparkJobError(f"{title}: {reason_in(error)}") from error
    finally:
        context.setJobDescription("")
    results: list[R] = []
    for answer in answers:
        if isinstance(answer, NoUse):
            raise answer.error
        results.append(answer)
    return results


def _answer(function: Callable[[T], R], item: T) -> R | NoUse:
    """What Spark calls."""
    try:
        return function(item)
    except SourceTopicError as error:
        return NoUse(error)


def reason_in(error: BaseException) -> str:
    """Return the one line of Spark's error text that gives the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if not line.startswith(("at ", "File ", "Traceback", "Caused by", "Driver stack"))]
    named = [line for line in python if "Error" in line or "Exception" in line or "lost" in line]
    return (named or python or lines or [type(error).__name__])[-1][:1000]
