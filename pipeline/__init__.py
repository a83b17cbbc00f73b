"""Run the same topology on Spark, and do batch work around a stream application. Needs the extra `milestones[spark]`.

*Guarantees*: only this package and `milestones spark` import this package or PySpark.
*Assumes*: the processes that run Spark's tasks can import the same modules as the driver.
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
