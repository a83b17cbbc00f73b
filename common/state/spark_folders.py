"""The state directories of Spark tasks on a machine. Each task has one of its own, because several processes run there
at the same time, and a state directory belongs to one process.

    <state_dir>/spark-<application_id>/
        <task>/<application_id>/            the `StateDirectory` of a task
        attempts/<name>/<application_id>/   that of an attempt whose task's directory was locked; removed at its end
        global-<n>/<application_id>/        that of a process, for its global stores

*Guarantees*: only directories of this application are found. (An application on Kafka may be called
`spark-<application_id>`, so its state directory has the same path.)
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milestones.common.records import GLOBAL, TaskId

ATTEMPTS = "attempts"


def spark_folder(state_dir: str | Path, application_id: str) -> Path:
    """Return the folder of all Spark tasks of the application."""
    return Path(state_dir) / f"spark-{application_id}"


def spark_task_folder(state_dir: str | Path, application_id: str, task: TaskId) -> Path:
    """Return the folder of one task."""
    return spark_folder(state_dir, application_id) / str(task)


def spark_attempts_folder(state_dir: str | Path, application_id: str) -> Path:
    """Return the folder in which each attempt that needs it has a folder."""
    return spark_folder(state_dir, application_id) / ATTEMPTS


def spark_global_folder(state_dir: str | Path, application_id: str, number: int) -> Path:
    """Return the folder of the global stores of one process. Processes that run at the same time have different
    numbers."""
    return spark_folder(state_dir, application_id) / f"{GLOBAL}-{number}"


def spark_directories(state_dir: str | Path, application_id: str) -> Iterator[Path]:
    """Find the state directories of all Spark tasks below `state_dir`."""
    folder = spark_folder(state_dir, application_id)
    for above in (*folder.glob("*_*"), *folder.glob("global-*"), *(folder / ATTEMPTS).glob("*")):
        if (above / application_id).is_dir():
            yield above / application_id
