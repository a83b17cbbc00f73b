"""Calls into Spark that return when all is done.

*Guarantees*: results in the order of the items; an error says why, in one line. One about a topic that is gone, or was
made anew, is raised here as there, and Spark makes no other attempt: none could do better.
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


@dataclass(frozen=True)
class NoUse:
    """In place of a result: what the function has raised."""

    error: SourceTopicError


def run_each(context: SparkContext, function: Callable[[T], R], items: Sequence[T], title: str) -> list[R]:
    """What `function` returns for each item, a Spark task for each. `SparkJobError`; the function's `SourceTopicError`.
    """
    if not items:
        return []
    try:
        context.setJobDescription(title)
        answers = context.parallelize(items, len(items)).map(partial(_answer, function)).collect()
    except Exception as error:  # whatever Spark raises
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
    """The line that says why, of Spark's many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if not line.startswith(("at ", "File ", "Traceback", "Caused by", "Driver stack"))]
    named = [line for line in python if "Error" in line or "Exception" in line or "lost" in line]
    return (named or python or lines or [type(error).__name__])[-1][:1000]
