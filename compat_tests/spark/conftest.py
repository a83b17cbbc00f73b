"""One Spark session for all cases: its start takes seconds. They are not for parallel workers: each case has processes
for two cores and more, and four of them at once starved each other for minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness import workers
from compat_tests.spark import PYSPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if not PYSPARK:
    collect_ignore_glob = ["test_*.py"]


ALONE = pytest.mark.skip(reason="a case on Spark takes the whole machine: run these without -n (`tox -e spark`)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if workers.handed(config) is not None:
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(ALONE)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine with two cores; cases stop what they start on it."""
    from milestones.pipeline import spark_session

    with spark_session("compatibility") as session:
        yield session
