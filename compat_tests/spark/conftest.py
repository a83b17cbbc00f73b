"""One Spark session for all cases: its start takes seconds."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine with two cores; cases stop what they start on it."""
    from milestones.pipeline import spark_session

    with spark_session("compatibility") as session:
        yield session
