"""What a session promises: the right Python, the driver's modules, no traces."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from milestones.common.errors import ConfigError
from milestones.pipeline import session
from milestones.pipeline.session import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _task(_: Any) -> tuple[str, str]:
    import milestones.pipeline

    return sys.executable, str(Path(milestones.pipeline.__file__).resolve())


def test_tasks_run_on_the_drivers_python_and_find_its_modules(spark: SparkSession) -> None:
    import milestones.pipeline

    found = spark.sparkContext.parallelize(range(2), 2).map(_task).collect()
    assert set(found) == {(sys.executable, str(Path(milestones.pipeline.__file__).resolve()))}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_executors_elsewhere_can_reach_the_driver(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    prepare(master)
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,512]"])
def test_executors_on_this_machine_are_talked_to_on_loopback_only(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    prepare(master)
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_nothing_is_written_into_pyspark_or_the_current_folder(spark: SparkSession, tmp_path: Path) -> None:
    before = sorted(Path.cwd().iterdir())
    spark.range(10).write.parquet(str(tmp_path / "some"))
    spark.sql("create table if not exists numbers as select id from range(3)")
    assert spark.table("numbers").count() == 3
    spark.sql("drop table numbers")
    assert sorted(Path.cwd().iterdir()) == before
    assert not (Path(pyspark.__path__[0]) / "work").exists()


class Failing:
    """A builder whose session doesn't start."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def master(self, _: str) -> Failing:
        return self

    def appName(self, _: str) -> Failing:  # noqa: N802  # Spark's
        return self

    def config(self, _key: str, _value: str) -> Failing:
        return self

    def getOrCreate(self) -> None:  # noqa: N802  # Spark's
        raise self.error


TRACE = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
\tat org.apache.spark.SparkContext.assertNotStopped(SparkContext.scala:133)
Caused by: java.io.IOException: Failed to connect to /127.0.0.1:9
\tat org.apache.spark.network.Client.create(Client.java:1)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "[JAVA_GATEWAY_EXITED] Java gateway process exited"),
        (TRACE, "java.io.IOException: Failed to connect to /127.0.0.1:9"),
        ("", "RuntimeError"),
    ],
)
def test_a_master_with_which_spark_does_not_start_is_an_error_of_the_config_that_says_why(
    monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setattr(session.SparkSession, "builder", Failing(RuntimeError(text)))
    with pytest.raises(ConfigError) as caught:
        session.spark_session(master="locl[2]")
    assert f"config master='locl[2]': Spark doesn't start there: {reason}. Check that" in str(caught.value)
    assert caught.value.exit_code == 2
