"""The folders of Spark tasks on a machine: each task has a state directory of its own, as processes run side by side.

    <state_dir>/spark-<application_id>/
        <task>/<application_id>/            a `StateDirectory`
        attempts/<name>/<application_id>/   of an attempt that found its task's directory locked; removed at its end
        global-<n>/<application_id>/        of a process, for its global stores

*Guarantees*: only directories of this application are found, though another may be called `spark-<application_id>`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milestones.common.records import GLOBAL, TaskId

ATTEMPTS = "attempts"


def spark_folder(state_dir: str | Path, application_id: str) -> Path:
    """The folder of all Spark tasks of the application."""
    return Path(state_dir) / f"spark-{application_id}"


def spark_task_folder(state_dir: str | Path, application_id: str, task: TaskId) -> Path:
    """The folder of one task."""
    return spark_folder(state_dir, application_id) / str(task)


def spark_attempts_folder(state_dir: str | Path, application_id: str) -> Path:
    """The folder of the folders of single attempts."""
    return spark_folder(state_dir, application_id) / ATTEMPTS


def spark_global_folder(state_dir: str | Path, application_id: str, number: int) -> Path:
    """The folder of the global stores of one process; processes side by side have other numbers."""
    return spark_folder(state_dir, application_id) / f"{GLOBAL}-{number}"


def spark_directories(state_dir: str | Path, application_id: str) -> Iterator[Path]:
    """The state directories of all Spark tasks below `state_dir`."""
    folder = spark_folder(state_dir, application_id)
    for above in (*folder.glob("*_*"), *folder.glob("global-*"), *(folder / ATTEMPTS).glob("*")):
        if (above / application_id).is_dir():
            yield above / application_id
