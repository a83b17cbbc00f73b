"""Makes a Spark session that works without further settings: Python, Java, folders and addresses are set as Spark needs
them.

*Guarantees*: Spark's tasks use the driver's Python interpreter. With a master on this machine, they can import the same
modules as the driver. No files are written into the installation of PySpark or into the current folder: work folders,
warehouse and Spark's temporary files are in a folder that is removed when the process ends.
*Assumes*: a process has one session at a time, as Spark demands. Spark's Java process runs until the Python process
ends.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from milestones.common.errors import ConfigError, MilestonesError
from milestones.common.python_program import python
from milestones.pipeline.java import java_home

LOOPBACK = "127.0.0.1"

# Switch off what a stream application doesn't need, and limit what is too much for a small machine.
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
}


def spark_session(
    name: str = "milestones", *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session, or return the running one. Used in a `with`, the session is stopped at the end of the block.

    `master` is Spark's: `local[2]`, `local-cluster[2,1,1024]` (executors, cores, MiB), a cluster's URL. `settings` and
    existing environment variables have precedence over the values that are set here. Raises `JavaNotFoundError`, and
    `ConfigError` when Spark doesn't start.
    """
    folder = prepare(master)
    builder = SparkSession.builder.master(master).appName(name)
    places = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    for key, value in {**_QUIET, **places, **_near(master), **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ConfigError("master", master, _why_not(error)) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _why_not(error: Exception) -> str:
    """Return the reason why Spark didn't start: the last cause in Java's stack trace, without the trace."""
    causes = [line.strip() for line in str(error).splitlines() if re.match(r"\s*(:|Caused by:)", line)]
    first = next(iter(str(error).splitlines()), type(error).__name__)
    reason = (causes[-1].removeprefix("Caused by:") if causes else first).strip(": .")
    return (
        f"Spark doesn't start there: {reason}. Check that it is a master of Spark (local[2], spark://host:7077, yarn, "
        "k8s://https://host) whose cluster is up and takes this user, the settings spark.*, and what Java says above"
    )


def _near(master: str) -> dict[str, str]:
    """Return the settings that are valid only if executors run on this machine."""
    if not is_near(master):
        return {}
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.executorEnv.PYTHONPATH": path}


_folder: Path | None = None


def is_near(master: str) -> bool:
    """True if executors run on this machine: `local`, `local[...]`, `local-cluster[...]`."""
    return master.startswith("local")


def _python(name: str) -> str:
    """Return the path of this program's Python, for Spark's workers. `MilestonesError`."""
    try:
        return python("Spark")
    except OSError as error:
        raise MilestonesError(f"{error}; set {name} to a Python that has this package") from error


def prepare(master: str) -> Path:
    """Set the environment in which Spark starts, once, and return the folder of this process. The driver listens on
    loopback only if all executors run on this machine: others couldn't reach it.
    """
    global _folder
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="milestones-spark-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            if name not in os.environ:
                os.environ[name] = _python(name)
        os.environ["JAVA_HOME"] = str(java_home(_folder))
        os.environ.setdefault("SPARK_HOME", str(_home(_folder)))
    if is_near(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return _folder


def _home(folder: Path) -> Path:
    """Make a copy of Spark's installation by links, with a `work` folder of this process, because `local-cluster`
    writes into that folder.
    """
    home = folder / "home"
    home.mkdir()
    for entry in Path(pyspark.__path__[0]).iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home
