"""`app`, whose snapshots are made and restored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.snapshots.apps import App

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def app(kafka: str, tmp_path: Path, spark: SparkSession) -> App:
    return App(kafka, tmp_path, spark)
