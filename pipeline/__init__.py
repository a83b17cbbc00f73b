"""The same topology on Spark, and what is batch around a stream application. Needs the extra `milestones[spark]`.

*Guarantees*: nothing outside this package and `milestones spark` imports it or PySpark.
*Assumes*: the processes that run Spark's tasks can import what the driver can.
"""

from __future__ import annotations

from milestones.common.public import publish
from milestones.pipeline.driving.driver import TaskFailedError
from milestones.pipeline.progress import Progress, Round, RunState
from milestones.pipeline.run import SparkRun, run_on_spark
from milestones.pipeline.session import spark_session
from milestones.pipeline.spark_jobs import SparkJobError

__all__ = [
    "Progress", "Round", "RunState", "SparkJobError", "SparkRun", "TaskFailedError", "run_on_spark", "spark_session",
]  # fmt: skip

publish(__name__)
