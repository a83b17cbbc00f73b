"""One Spark session for all tests here: its start takes seconds. Without PySpark none of them is collected, and
the header says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.spark import PYSPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.attempts_bench import Make
    from tests.pipeline.driver_bench import Bench

SPARK_S = 600

if not PYSPARK:
    collect_ignore_glob = ["*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test comes first waits for Spark's start."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.timeout(SPARK_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine with two cores. Tests share it: stop what you start on it, change no settings."""
    from milestones.pipeline import spark_session

    with spark_session("tests") as session:
        yield session


@pytest.fixture
def bench(kafka: str, tmp_path: Path) -> Iterator[Make]:
    """Makes benches of attempts at Spark tasks, on a real broker."""
    from tests.pipeline.attempts_bench import benches

    with benches(kafka, tmp_path) as make:
        yield make


@pytest.fixture
def batch() -> Bench:
    """A driver of a batch that has ten records to read."""
    from tests.pipeline.driver_bench import ten_records

    return ten_records()
